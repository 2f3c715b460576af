"""The user that runs PostgreSQL, which refuses to run as root.

An ordinary user runs it as themselves. A user id without an account, as in many containers, cannot run its
first start; it runs in a user namespace, in which it has the id of an account.

Root runs it, in this order, as
1. the owner of the cluster, if that is not root;
2. the user of a user namespace: this needs no account and no other owner of files;
3. an existing account, `postgres` or `nobody`, where namespaces are forbidden (many containers).
The first that can start the server's program in this directory is used.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from cograil.embedded import run_as_exec as guest_script
from cograil.embedded.postgres_binaries import Binaries
from cograil.errors import DatabaseUnavailable

SELF, NAMESPACE = "self", "namespace"
ACCOUNTS = ("postgres", "nobody")


def choose_guest(programs: Binaries, data_dir: Path, cluster: Path) -> str:
    """Return the first candidate that can run PostgreSQL here. Raises DatabaseUnavailable when none can."""
    tried = []
    for guest in _guests(cluster):
        refusal = _refusal(guest, programs, data_dir)
        if refusal is None:
            return guest
        tried.append(f"  {guest}: {refusal}")
    raise DatabaseUnavailable(
        f"PostgreSQL cannot be run from {programs.directory} in {data_dir}:\n"
        + "\n".join(tried)
        + "\nRun cograil as an ordinary user, or set COGRAIL_DATABASE_URL to a server of your own."
    )


def command_as(guest: str, directory: Path, command: list[str]) -> list[str]:
    """Return the command, wrapped so that it runs as this user and ends with this process."""
    script = [sys.executable, "-I", "-S", str(guest_script.__file__)]
    return [*script, guest, str(os.getpid()), str(directory), *command]


def in_words(guest: str) -> str:
    """Return the owner of a new cluster as text, when it is not the user that started cograil."""
    if guest in (SELF, NAMESPACE):
        return ""
    uid = int(guest.partition(":")[0])
    name = pwd.getpwuid(uid).pw_name if guest_script.has_account(uid) else str(uid)
    return f"; it belongs to {name}, because root runs PostgreSQL as this user where user namespaces are not allowed"


def hand_over(paths: list[Path], guest: str) -> None:
    """Make the user the owner of these trees, unless it is already."""
    if os.geteuid() != 0:
        return
    uid, gid = (0, 0) if guest in (SELF, NAMESPACE) else map(int, guest.split(":"))
    for top in paths:
        if top.stat().st_uid == uid:
            continue
        for directory, _, files in os.walk(top, topdown=False):
            for name in files:
                os.lchown(os.path.join(directory, name), uid, gid)
            # The root of the tree last: its owner shows that the whole tree is done.
            os.lchown(directory, uid, gid)


def _guests(cluster: Path) -> Iterator[str]:
    if os.geteuid() != 0:
        if not cluster.exists() and not guest_script.has_account(os.geteuid()):
            yield NAMESPACE
        yield SELF
        return
    if cluster.exists() and (owner := cluster.stat()).st_uid != 0:
        yield f"{owner.st_uid}:{owner.st_gid}"
    yield NAMESPACE
    for name in ACCOUNTS:
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            continue
        yield f"{account.pw_uid}:{account.pw_gid}"


def _refusal(guest: str, programs: Binaries, data_dir: Path) -> str | None:
    """Return why this user cannot run the server; None when it can."""
    trial = command_as(guest, data_dir, [str(programs.path("postgres")), "--version"])
    done = subprocess.run(trial, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip()[-300:] or f"exit code {done.returncode}"
