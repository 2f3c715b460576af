"""The heartbeat of a stage: a file that is touched while something happens, and an end when nothing does.

A stage lives while it, or a process that it started, computes or tells progress. A two-hour OCR goes on
for as long as it moves; one that has not moved for the timeout is stopped with all that it started. It does
that itself; for one that stands still as a whole a watcher does: the file says which process it is.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cograil.apps.documents.core import is_heartbeat_stale

LAST_WORDS_SECONDS = 5.0
EXIT_STUCK = 75


class Heart:
    """Touches the heartbeat of a stage in a thread of its own."""

    def __init__(self, path: Path, every_seconds: float, timeout_seconds: float) -> None:
        self.is_stuck = False
        self._path = path
        self._every = every_seconds
        self._timeout = timeout_seconds
        self._end = threading.Event()
        self._moves = 0
        self._moved_at = time.monotonic()
        self._seen: tuple[int, int] = (0, -1)

    def beat(self) -> None:
        """Something was done."""
        self._moves += 1

    @contextmanager
    def beating(self) -> Iterator[Heart]:
        """From the beginning of this block to its end."""
        self._write(f"{_name_of(os.getpid())} {self._every:g} {self._timeout:g}")
        thread = threading.Thread(target=self._run, name="heart", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._end.set()
            thread.join()
            self._write("")  # this process may do other things from here on

    def _run(self) -> None:
        while not self._end.wait(self._every):
            seen = (self._moves, cpu_ticks())
            if seen != self._seen:
                self._seen, self._moved_at = seen, time.monotonic()
                self._touch()
            elif time.monotonic() - self._moved_at > self._timeout:
                self._stop()
                return

    def _write(self, content: str) -> None:
        with contextlib.suppress(OSError):
            self._path.write_text(content)

    def _touch(self) -> None:
        with contextlib.suppress(OSError):
            self._path.touch()

    def _stop(self) -> None:
        """End what was started; if that does not end the stage itself, end this process."""
        self.is_stuck = True
        for process in started():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        if not self._end.wait(LAST_WORDS_SECONDS):
            os._exit(EXIT_STUCK)


class Standstills:
    """Ends stages whose hearts stand still too, with all that they started.

    A machine that slept wakes up with old heartbeats: so they are watched for a while before.
    """

    def __init__(self) -> None:
        self._since: dict[Path, float] = {}

    def end(self, path: Path) -> bool:
        """Whether the stage of this heartbeat was ended now: one of this machine, the same process still."""
        process, pause = _still(path)
        if not process:
            self._since.pop(path, None)
            return False
        if time.monotonic() - self._since.setdefault(path, time.monotonic()) < pause:
            return False
        del self._since[path]
        with contextlib.suppress(ProcessLookupError, PermissionError):
            is_group = os.getpgid(process) == process
            (os.killpg if is_group else os.kill)(process, signal.SIGKILL)
            return True
        return False


def _still(path: Path) -> tuple[int, float]:
    """The process that should have touched this file by now, and how long to watch it; or (0, 0)."""
    try:
        name, every, timeout = path.read_text(errors="replace").rsplit(" ", 2)
        process, pause = int(name.partition(" ")[0]), 4 * float(every)
        is_old = is_heartbeat_stale(path, float(timeout) + LAST_WORDS_SECONDS)
    except (OSError, ValueError):
        return 0, 0.0
    return (process, pause) if is_old and process > 1 and name == _name_of(process) else (0, 0.0)


def _name_of(process: int) -> str:
    """What no other process is called, here or elsewhere, now or later; "" where nobody can say."""
    fields = _stat(process) if sys.platform == "linux" else []
    if not fields:
        return ""
    machine = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{process} {fields[19]} {machine} {os.readlink('/proc/self/ns/pid')}"


def cpu_ticks() -> int:
    """What this process and those it started have computed so far, without the thread that asks.

    Where nobody says so, time is taken for it.
    """
    if sys.platform != "linux":
        return time.monotonic_ns()
    times = os.times()
    own = time.process_time() - time.thread_time() + times.children_user + times.children_system
    return int(own * 20) + sum(_ticks(process) for process in started())


def _ticks(process: int) -> int:
    fields = _stat(process)
    return sum(int(value) for value in fields[11:15]) if fields else 0


def started() -> list[int]:
    """The processes that descend from this one."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if sys.platform == "linux" else []:
        if name.isdecimal() and (fields := _stat(int(name))):
            parents.setdefault(int(fields[1]), []).append(int(name))
    found, left = [], [os.getpid()]
    while left:
        children = parents.get(left.pop(), [])
        found += children
        left += children
    return found


def _stat(process: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may hold anything."""
    try:
        return Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
