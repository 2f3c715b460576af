"""The wiring: settings become running processes here, and nothing else is decided.

    up            everything in one place: PostgreSQL, an orchestrator, the probes, a worker child
    parts         an orchestrator or a worker by itself, any number of them on one database
    api, gateway  the API by itself, and the gateway for callers outside
    private       all of it for the time of one job, inside a command
    connecting    for everybody else: find the instance and open its database
    hosting       the database of an instance: our own PostgreSQL, or the one of COGRAIL_DATABASE_URL
    child         keeps a worker alive as a child process; `working` is what runs in that child
    running       event loops, signals, and how a process ends

What commands use is loaded when first named: a worker does not carry a web server.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cograil.processes.ephemeral_instance import app_worker as app_worker
    from cograil.processes.ephemeral_instance import guest_worker as guest_worker
    from cograil.processes.ephemeral_instance import private_instance as private_instance
    from cograil.processes.instance_discovery import make_engine_context as make_engine_context
    from cograil.processes.instance_discovery import open_client as open_client
    from cograil.processes.instance_discovery import open_reader as open_reader
    from cograil.processes.lifecycle import run_async as run_async

_HOMES = {
    "make_engine_context": "cograil.processes.instance_discovery",
    "open_client": "cograil.processes.instance_discovery",
    "open_reader": "cograil.processes.instance_discovery",
    "app_worker": "cograil.processes.ephemeral_instance",
    "guest_worker": "cograil.processes.ephemeral_instance",
    "private_instance": "cograil.processes.ephemeral_instance",
    "run_async": "cograil.processes.lifecycle",
}

__all__ = [
    "app_worker",
    "guest_worker",
    "make_engine_context",
    "open_client",
    "open_reader",
    "private_instance",
    "run_async",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value
