"""Selection of the pg_dump, pg_restore and psql to run against a server.

pg_dump must be as new as the server. The programs in the wheel of the embedded server are preferred, unless
the connection is encrypted: they are built without TLS. Otherwise the programs of the system are used.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cograil.embedded.postgres_binaries import DEBIAN, Binaries, installed
from cograil.errors import UsageError

APPLICATION = "cograil db"


def find_programs(server_version: int, *, needs_tls: bool = False) -> Binaries:
    """Return the oldest client programs that are new enough for this server, so that most versions read the
    dump.

    Raises UsageError, which says what to install.
    """
    return _choose(server_version, needs_tls=needs_tls, prefer_newest=False)


def find_newest_programs(server_version: int, *, needs_tls: bool = False) -> Binaries:
    """Return the newest client programs for this server: they read every older dump. Raises UsageError."""
    return _choose(server_version, needs_tls=needs_tls, prefer_newest=True)


def _choose(server_version: int, *, needs_tls: bool, prefer_newest: bool) -> Binaries:
    candidates = list(_candidates(needs_tls=needs_tls))
    fitting = [programs for programs in candidates if programs.version >= server_version]
    if fitting:
        return (max if prefer_newest else min)(fitting, key=lambda programs: programs.version)
    versions = ", ".join(sorted({str(programs.version) for programs in candidates})) or "none"
    tls = ", built with TLS," if needs_tls else ""
    raise UsageError(
        f"the server is PostgreSQL {server_version}: pg_dump and psql of version {server_version} "
        f"or newer{tls} are needed and this machine has {versions}; install them, for example with "
        f"`apt-get install postgresql-client-{server_version}`"
    )


def _candidates(*, needs_tls: bool) -> Iterator[Binaries]:
    if not needs_tls:
        yield from (programs for programs in installed().values() if DEBIAN not in programs.directory.parents)
    for program in sorted(DEBIAN.glob("*/bin/pg_dump")):
        if version := program_version(program):
            yield Binaries(version, program.parent)
    on_path = shutil.which("pg_dump")
    if on_path and (version := program_version(Path(on_path))):
        yield Binaries(version, Path(on_path).parent)


@cache
def program_version(program: Path) -> int:
    """Return the major version of a client program; 0 when it does not run here."""
    try:
        output = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    match = re.search(r"\) (\d+)", output)
    return int(match[1]) if match else 0


def program_arguments(conninfo: str) -> tuple[str, dict[str, str]]:
    """Return the connection string without its password, for a command line, and the environment with it."""
    parts: dict[str, Any] = conninfo_to_dict(conninfo)
    password = parts.pop("password", None)
    environment = os.environ | {"PGAPPNAME": APPLICATION}
    if password:
        environment["PGPASSWORD"] = str(password)
    return make_conninfo(**parts), environment
