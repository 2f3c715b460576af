"""The wiring: settings become running processes here, and nothing else is decided.

    up                  all parts: PostgreSQL, an orchestrator, the API, a worker child
    standalone          an orchestrator, worker or relay by itself, any number on one database
    api_server          the API by itself; gateway_server: the gateway for external callers
    ephemeral_instance  a complete instance for one job, inside a command
    instance_discovery  finds the instance and opens its database
    database_host       the database of an instance: an embedded PostgreSQL, or that of COGRAIL_DATABASE_URL
    worker_process      keeps a worker running as a child process; worker_main runs in that child
    lifecycle           event loops, signals, and the end of a process

The names of this package are loaded at first use, so that a worker does not load a web server.
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
