"""The app `containers`, as the processes know it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cograil.apps.app import App, Check
from cograil.apps.containers.worker_lifespan import running_containers
from cograil.containers.runtime_selection import choose_runtime
from cograil.model.readiness_check import DEGRADED, OK
from cograil.model.workflow import CONTAINER
from cograil.settings import Settings
from cograil.store import job_queries
from cograil.store.database import Database

if TYPE_CHECKING:  # a worker needs neither
    from starlette.types import ASGIApp

    from cograil.http.server.dispatcher import Instance
    from cograil.http.server.openapi import Described

PATIENCE_SECONDS = 5.0  # a busy engine takes its time to say that it is there


def _doors(instance: Instance) -> Mapping[str, ASGIApp]:
    from cograil.apps.containers.routes import PREFIX, container_door  # noqa: PLC0415  a worker needs none

    return {PREFIX: container_door(instance)}


def _described() -> Described:
    from cograil.apps.containers.routes import DESCRIBED  # noqa: PLC0415

    return DESCRIBED


def _checks(settings: Settings, has_worker: bool) -> Mapping[str, Check]:
    """Where the worker is another's, those that it may be are asked for."""
    words = "" if settings.containers.required else f"{DEGRADED}: "

    async def engine_answers(db: Database) -> str:
        found = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                found, _ = await choose_runtime(settings)
        if found is None:
            return f"{words}no container engine answers"
        async with found:
            return OK

    async def some_worker_has_one(db: Database) -> str:
        async with db.single("probe") as tx:
            found = await job_queries.list_processes(tx)
        has_one = any(one["is_live"] and CONTAINER in (one["handlers"] or ()) for one in found)
        return OK if has_one else f"{words}no worker runs containers"

    return {"containers": engine_answers if has_worker else some_worker_has_one}


async def _sentence(settings: Settings) -> str:
    """What runs containers here; the worker has one of its own."""
    found, why = await choose_runtime(settings)
    if found is not None:
        async with found:
            return why
    return why


app = App(
    name="containers",
    is_enabled=lambda settings: settings.containers.enabled,
    doors=_doors,
    described=_described,
    checks=_checks,
    beside_worker=running_containers,
    sentence=_sentence,
    offers=frozenset({CONTAINER}),
)
