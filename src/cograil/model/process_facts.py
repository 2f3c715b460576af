"""The host, process id and version of a process, for the list of workers and orchestrators."""

from __future__ import annotations

import os
import socket
from functools import cache
from importlib.metadata import version


def process_facts() -> dict[str, str | int]:
    """Return the host, the process id and the version of this process."""
    return {"host": socket.gethostname()[:64], "pid": os.getpid(), "version": _version()}


@cache
def _version() -> str:
    return version("cograil")
