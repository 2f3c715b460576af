"""Fault injection: named points at which a test can kill, stop or disturb this process. Off in production.

`COGRAIL_FAULT=name:count:mode` arms the point `name` for its `count`-th visit (`*` matches any name).
Modes: `kill9`, `stop` (SIGSTOP), `raise` (like a broken connection), and at commits `commit_unknown` (commit,
then raise). `COGRAIL_FAULT_LOG=file` appends the name of every visited point to the file, and `!name` where the
fault struck. A test that forks calls `arm` and `record` instead, and may add its own modes to `modes`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

import psycopg


class FaultRaised(psycopg.OperationalError):
    """An injected error; it looks like the error of a broken connection."""


@dataclass(slots=True)
class _Fault:
    name: str
    visits_left: int
    mode: str


_fault: _Fault | None = None
_log: str | None = None
is_on = False


def arm(text: str | None) -> None:
    """Arm one point, given as `name:count:mode`; None disarms it. Raises ValueError for an unknown mode."""
    global _fault  # noqa: PLW0603  one process has one fault
    _fault = None
    if text:
        name, count, mode = text.rsplit(":", 2)
        if mode not in modes:
            raise ValueError(f"{mode!r} is not a fault mode; use one of {', '.join(modes)}")
        _fault = _Fault(name, int(count), mode)
    _update_is_on()


def record(path: str | None) -> None:
    """Append the name of every visited point to this file; None stops recording."""
    global _log  # noqa: PLW0603
    _log = path or None
    _update_is_on()


def _update_is_on() -> None:
    global is_on  # noqa: PLW0603
    is_on = _fault is not None or _log is not None


def point(name: str) -> None:
    """Visit a point. Nothing happens unless a test armed it."""
    if is_on:
        _visit(name)


def _visit(name: str) -> None:
    _write(name)
    fault = _fault
    if fault is None or fault.name not in ("*", name):
        return
    fault.visits_left -= 1
    if fault.visits_left == 0:
        _write(f"!{name}")
        modes[fault.mode](name)


def _write(line: str) -> None:
    if _log is not None:
        with open(_log, "a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def _kill(name: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(name: str) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _raise(name: str) -> None:
    raise FaultRaised(f"injected fault at {name}")


def _raise_after_commit(name: str) -> None:
    if name.endswith(".commit.after"):
        _raise(name)


modes: dict[str, Callable[[str], None]] = {
    "kill9": _kill,
    "stop": _stop,
    "raise": _raise,
    "commit_unknown": _raise_after_commit,
}

arm(os.environ.get("COGRAIL_FAULT"))
record(os.environ.get("COGRAIL_FAULT_LOG"))
