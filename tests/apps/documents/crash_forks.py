"""Work in a fork that is killed at a fault-injection point."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from cograil import fault_injection


def killed_at(point: str, work: Callable[[], Any]) -> bool:
    """Do this in a fork that is killed at its first visit of this point; whether it came there."""
    victim = os.fork()
    if not victim:
        code = 1
        try:
            fault_injection.arm(f"{point}:1:kill9")
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(victim, 0)
    return os.waitstatus_to_exitcode(status) == -signal.SIGKILL
