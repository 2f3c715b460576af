"""The heartbeat of a stage: a file that is touched while the stage makes progress; a stalled stage is stopped.

A stage makes progress while it, or a process that it started, uses CPU time or reports progress. A stage without any
for the timeout is stopped with all its processes: by itself, or by a watcher if its whole process is frozen (the
file names the process).
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

EXIT_GRACE_SECONDS = 5.0
EXIT_STUCK = 75


class StageHeartbeat:
    """Touches the heartbeat file of a stage in a separate thread."""

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
        """Record progress."""
        self._moves += 1

    @contextmanager
    def beating(self) -> Iterator[StageHeartbeat]:
        """Write the heartbeat until the end of this block."""
        self._write(f"{_name_of(os.getpid())} {self._every:g} {self._timeout:g}")
        thread = threading.Thread(target=self._run, name="heart", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._end.set()
            thread.join()
            self._write("")  # the stage has ended: this process must not be killed for it

    def _run(self) -> None:
        while not self._end.wait(self._every):
            activity = (self._moves, cpu_ticks())
            if activity != self._seen:
                self._seen, self._moved_at = activity, time.monotonic()
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
        """Kill all child processes; exit this process if that does not end the stage."""
        self.is_stuck = True
        for process in started():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        if not self._end.wait(EXIT_GRACE_SECONDS):
            os._exit(EXIT_STUCK)


class StallDetector:
    """Kills stages whose heartbeat thread is frozen too, with all their processes.

    After a suspend all heartbeats are old, so each is observed for a while first.
    """

    def __init__(self) -> None:
        self._since: dict[Path, float] = {}

    def end(self, path: Path) -> bool:
        """Kill the stalled stage of this heartbeat; False if it is not stalled, or not on this machine."""
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
    """The stalled process of this heartbeat, and how long to observe it; (0, 0.0) if it is not stalled."""
    try:
        name, every, timeout = path.read_text(errors="replace").rsplit(" ", 2)
        process, pause = int(name.partition(" ")[0]), 4 * float(every)
        is_old = is_heartbeat_stale(path, float(timeout) + EXIT_GRACE_SECONDS)
    except (OSError, ValueError):
        return 0, 0.0
    return (process, pause) if is_old and process > 1 and name == _name_of(process) else (0, 0.0)


def _name_of(process: int) -> str:
    """A name of this process that is unique across machines and time; "" where /proc does not say."""
    fields = _stat(process) if sys.platform == "linux" else []
    if not fields:
        return ""
    machine = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{process} {fields[19]} {machine} {os.readlink('/proc/self/ns/pid')}"


def cpu_ticks() -> int:
    """CPU time of this process and its descendants so far, without the calling thread.

    Elapsed time where the system does not say.
    """
    if sys.platform != "linux":
        return time.monotonic_ns()
    times = os.times()
    own_seconds = time.process_time() - time.thread_time() + times.children_user + times.children_system
    return int(own_seconds * 20) + sum(_ticks(process) for process in started())


def _ticks(process: int) -> int:
    fields = _stat(process)
    return sum(int(value) for value in fields[11:15]) if fields else 0


def started() -> list[int]:
    """The ids of all descendants of this process."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if sys.platform == "linux" else []:
        if name.isdecimal() and (fields := _stat(int(name))):
            parents.setdefault(int(fields[1]), []).append(int(name))
    descendants, unvisited = [], [os.getpid()]
    while unvisited:
        children = parents.get(unvisited.pop(), [])
        descendants += children
        unvisited += children
    return descendants


def _stat(process: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may hold anything."""
    try:
        return Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
