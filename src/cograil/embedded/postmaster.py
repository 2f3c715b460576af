"""The previous server of a cluster, according to its `postmaster.pid`.

This process holds the lock of the data directory, so the process that started that server is dead. Either
the server is still shutting down, and the start waits; or it is dead, and its process id may belong to
another process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from cograil.errors import DatabaseUnavailable

WAIT_SECONDS = 60.0


class Predecessor:
    """The previous server of this cluster, if its file exists."""

    def __init__(self, cluster: Path) -> None:
        self.cluster = cluster
        self.pid = _recorded_pid(cluster / "postmaster.pid")

    def end(self, report: Callable[[str], None]) -> None:
        """Wait until it has ended. Raises DatabaseUnavailable when it does not shut down."""
        if self.pid is None or not self._is_running():
            return
        report(f"waiting for the previous PostgreSQL (process {self.pid}) to shut down")
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGINT)
        until = time.monotonic() + WAIT_SECONDS
        while self._is_running():
            if time.monotonic() > until:
                raise DatabaseUnavailable(
                    f"the previous PostgreSQL (process {self.pid}) in {self.cluster} does not shut down; "
                    f"see `kill -QUIT {self.pid}`"
                )
            time.sleep(0.02)

    def environment(self) -> Mapping[str, str]:
        """Return the variable that makes the new server ignore this process id of another process or a
        zombie.

        PostgreSQL would refuse to start while a process of that id lives. Removing postmaster.pid would
        also help, but PostgreSQL finds the shared memory of orphaned backends through it: this check, which
        keeps two servers from writing to one cluster, must stay.
        """
        return {} if self.pid is None else {"PG_GRANDPARENT_PID": str(self.pid)}

    def _is_running(self) -> bool:
        """Return whether the process of that id is a server of this cluster; a zombie is not."""
        return self.pid is not None and os.fsencode(self.cluster) in _arguments(self.pid)


def _recorded_pid(file: Path) -> int | None:
    with suppress(FileNotFoundError, ValueError, IndexError):
        return abs(int(file.read_text(encoding="utf-8", errors="replace").splitlines()[0])) or None
    return None


def _arguments(pid: int) -> list[bytes]:
    if Path("/proc/self/cmdline").exists():
        with suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return []
    listing = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False
    )
    return listing.stdout.split()
