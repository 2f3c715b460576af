"""The heartbeat of a stage: a file that is touched while something happens, and an end when nothing does.

A stage lives while it, or a process that it started, computes or tells progress. A two-hour OCR goes on
for as long as it moves; one that has not moved for the timeout is stopped with all that it started.
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
        self._touch()
        thread = threading.Thread(target=self._run, name="heart", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._end.set()
            thread.join()

    def _run(self) -> None:
        while not self._end.wait(self._every):
            seen = (self._moves, cpu_ticks())
            if seen != self._seen:
                self._seen, self._moved_at = seen, time.monotonic()
                self._touch()
            elif time.monotonic() - self._moved_at > self._timeout:
                self._stop()
                return

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
