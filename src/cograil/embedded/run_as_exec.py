"""Starts PostgreSQL as another user: changes the user, then executes the server.

It runs as a separate script (`python -I -S run_as_exec.py GUEST PARENT DIRECTORY COMMAND...`) and uses only the
standard library. These steps need a fresh process: between fork and exec of a process with threads they may
deadlock.

GUEST is one of
    self            the current user
    namespace       the current user, in a user namespace in which it has the id of an existing account other
                    than root. PostgreSQL refuses to run as root, and initdb without an account. Files of the
                    user stay accessible, and no account is created.
    UID:GID         that user, started by root. It keeps one capability, to enter directories that only root may
                    enter, because the virtual environment is often in one.

On Linux the kernel sends SIGINT, which is PostgreSQL's fast shutdown, when the parent dies.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import sys

# The user ids in a namespace, of which the first with an account is used: the first ordinary user; daemon or
# bin, which every system with accounts has; nobody, which also owns the files of unmapped users.
NAMES_INSIDE = (1000, 1, 2, 65534)

CLONE_NEWUSER = 0x10000000
PR_SET_PDEATHSIG = 1
PR_SET_SECUREBITS = 28
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 47, 2
SECBIT_NO_SETUID_FIXUP = 1 << 2
CAP_DAC_OVERRIDE = 1
CAPABILITY_VERSION_3 = 0x20080522


def main(guest: str, parent: str, directory: str, *command: str) -> None:
    """Become the user, end with the parent, enter the directory, execute the command."""
    if guest == "namespace":
        enter_namespace()
    elif guest != "self":
        uid, gid = guest.split(":")
        become(int(uid), int(gid))
    if sys.platform == "linux":
        # After the change of credentials, which clears the setting.
        call("prctl", PR_SET_PDEATHSIG, int(signal.SIGINT), 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit("the parent is gone")
    os.chdir(directory)
    os.execv(command[0], command)


def enter_namespace() -> None:
    """Enter a new user namespace, as a user with an account there that is this user outside."""
    uid, gid, inside = os.getuid(), os.getgid(), name_inside()
    call("unshare", CLONE_NEWUSER)
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"{inside} {uid} 1")
    write("/proc/self/gid_map", f"{inside} {gid} 1")


def name_inside() -> int:
    """Return the first of NAMES_INSIDE that has an account here; the first of all when none has."""
    return next((uid for uid in NAMES_INSIDE if has_account(uid)), NAMES_INSIDE[0])


def has_account(uid: int) -> bool:
    """Return whether this user id has an account."""
    try:
        return bool(pwd.getpwuid(uid))
    except KeyError:
        return False


def become(uid: int, gid: int) -> None:
    """Become this user, with CAP_DAC_OVERRIDE and no other capability, also after exec."""
    # Without this bit access(2), which PostgreSQL uses to find its own files, ignores capabilities.
    call("prctl", PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    keep_capability(CAP_DAC_OVERRIDE)


def keep_capability(capability: int) -> None:
    """Drop all capabilities but this one, and keep it across exec."""
    only = 1 << capability
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    effective_permitted_inheritable = (ctypes.c_uint32 * 6)(only, only, only, 0, 0, 0)
    call("capset", header, effective_permitted_inheritable)
    call("prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0)


def call(name: str, *arguments: object) -> None:
    """Call a function of the C library; raises OSError when it fails."""
    as_long = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*as_long) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except OSError as error:
        sys.exit(f"cannot run PostgreSQL as {sys.argv[1]}: {error}")
