"""Durable jobs and workflows on nothing but PostgreSQL.

The public names are here. They are loaded at first use, so that `import cograil` is fast:

    from cograil import handler

    @handler("greet")
    async def greet(name: str = "World") -> dict:
        return {"message": f"Hello, {name}"}
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cograil.errors import CograilError as CograilError
    from cograil.runners.context import AttemptLost as AttemptLost
    from cograil.runners.context import Cancelled as Cancelled
    from cograil.runners.context import Context as Context
    from cograil.runners.context import Fail as Fail
    from cograil.runners.context import Retry as Retry
    from cograil.runners.handler_registry import CheckpointableHandler as CheckpointableHandler
    from cograil.runners.handler_registry import handler as handler

_HOMES = {
    "AttemptLost": "cograil.runners.context",
    "Cancelled": "cograil.runners.context",
    "CheckpointableHandler": "cograil.runners.handler_registry",
    "CograilError": "cograil.errors",
    "Context": "cograil.runners.context",
    "Fail": "cograil.runners.context",
    "Retry": "cograil.runners.context",
    "handler": "cograil.runners.handler_registry",
}

__all__ = [
    "AttemptLost",
    "Cancelled",
    "CheckpointableHandler",
    "CograilError",
    "Context",
    "Fail",
    "Retry",
    "handler",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
