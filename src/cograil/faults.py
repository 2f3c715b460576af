"""Named points at which a test may kill, stop or disturb this process. Off in production.

`COGRAIL_FAULT=name:count:mode` arms the point `name` for its `count`-th visit (`*` = any name).
Modes: `kill9`, `stop` (SIGSTOP), `raise`, and at commits `commit_unknown` (commit, then raise).
`COGRAIL_FAULT_LOG=file` appends the name of every point passed, to enumerate them.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass


class FaultRaised(Exception):
    """A test asked for an error here."""


@dataclass(slots=True)
class _Fault:
    name: str
    left: int
    mode: str


def _armed() -> _Fault | None:
    text = os.environ.get("COGRAIL_FAULT")
    if not text:
        return None
    name, count, mode = text.rsplit(":", 2)
    return _Fault(name, int(count), mode)


_fault = _armed()
_log = os.environ.get("COGRAIL_FAULT_LOG")
is_on = _fault is not None or _log is not None


def point(name: str) -> None:
    """Pass a point; nothing happens unless a test armed it."""
    if is_on:
        _pass(name)


def _pass(name: str) -> None:
    if _log is not None:
        with open(_log, "a", encoding="utf-8") as file:
            file.write(f"{name}\n")
    if _fault is None or _fault.name not in ("*", name):
        return
    _fault.left -= 1
    if _fault.left == 0:
        _strike(_fault.mode, name)


def _strike(mode: str, name: str) -> None:
    if mode == "kill9":
        os.kill(os.getpid(), signal.SIGKILL)
    elif mode == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif mode == "raise":
        raise FaultRaised(name)
    elif mode == "commit_unknown" and name.endswith("commit.after"):
        raise FaultRaised(name)
