"""As whom PostgreSQL runs. A person runs it as themselves; root cannot, for PostgreSQL refuses that.

Nor can, for its first start, a number without an account, as in many containers: that one is the guest of a
user namespace, where it has the number of an account.

Root runs it, in this order, as
1. the owner of the cluster, if that is not root;
2. the guest of a user namespace: no account, no other owner of files;
3. an existing account, `postgres` or `nobody`, where namespaces are forbidden (many containers).
What counts is a trial: whether the server's program runs that way, in this directory.
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
    """The first guest that can run PostgreSQL here. Raises DatabaseUnavailable when none can."""
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
    """The command, wrapped so that it runs as this guest and ends with our process."""
    script = [sys.executable, "-I", "-S", str(guest_script.__file__)]
    return [*script, guest, str(os.getpid()), str(directory), *command]


def in_words(guest: str) -> str:
    """Whose a new cluster is, where that is not who started us."""
    if guest in (SELF, NAMESPACE):
        return ""
    uid = int(guest.partition(":")[0])
    name = pwd.getpwuid(uid).pw_name if guest_script.has_account(uid) else str(uid)
    return f"; it belongs to {name}, as whom root runs PostgreSQL where it may not make a user namespace"


def hand_over(paths: list[Path], guest: str) -> None:
    """Make the guest the owner of these trees. Does nothing where it is."""
    if os.geteuid() != 0:
        return
    uid, gid = (0, 0) if guest in (SELF, NAMESPACE) else map(int, guest.split(":"))
    for top in paths:
        if top.stat().st_uid == uid:
            continue
        for directory, _, files in os.walk(top, topdown=False):
            for name in files:
                os.lchown(os.path.join(directory, name), uid, gid)
            # The top last: it tells whether all is handed over, also after a kill in between.
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
    """Why this guest cannot run the server; None when it can."""
    trial = command_as(guest, data_dir, [str(programs.path("postgres")), "--version"])
    done = subprocess.run(trial, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip()[-300:] or f"exit code {done.returncode}"
