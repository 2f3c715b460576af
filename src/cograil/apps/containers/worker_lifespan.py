"""Containers beside a worker: what runs them, the handler, and the sweeper."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import structlog

from cograil.apps.containers.runtime.container_handler import make_container_tools, register_container
from cograil.apps.containers.runtime.container_runtime import Runtime
from cograil.apps.containers.runtime.runtime_selection import choose_runtime
from cograil.apps.containers.settings import ContainerSettings
from cograil.apps.containers.sweeper import PASSING, Sweeper, settle_ended
from cograil.egress import PublicOnly
from cograil.runners.handler_registry import Registry
from cograil.settings import Settings
from cograil.store.database import Database
from cograil.worker.background_tasks import background

log = structlog.get_logger("containers")
LOOK_SECONDS = 5.0  # for what is not there yet


@contextlib.asynccontextmanager
async def running_containers(registry: Registry, db: Database, settings: Settings) -> AsyncIterator[None]:
    """Run containers in this block, from when there is something that runs them."""
    found, why = await choose_runtime(settings)
    log.debug(why)  # `up` says it once, in its own line
    sweeper = None if found is None else _open(found, registry, db, settings)
    async with background("containers", _serve(found, sweeper, registry, db, settings)):
        yield


def _open(runtime: Runtime, registry: Registry, db: Database, settings: Settings) -> Sweeper:
    """Let the worker of this registry run containers there; what sweeps after them."""
    tools = make_container_tools(
        runtime, settings.section(ContainerSettings), settings.data_dir, PublicOnly(settings.outbound)
    )
    register_container(registry, tools, _most_taken(settings))
    return Sweeper(db, tools, settings.section(ContainerSettings))


def _most_taken(settings: Settings) -> int:
    """Tasks for containers that a worker takes: those that run, and as many whose files it fetches meanwhile.

    Or they would take all its slots only to wait there, and those of other workers would be empty. What ran
    when a worker died is taken up though there is no place for more.
    """
    at_a_time, slots = settings.section(ContainerSettings).concurrency, settings.worker.concurrency
    return max(at_a_time, slots // 4, min(2 * at_a_time, 3 * slots // 4))


async def _serve(
    runtime: Runtime | None,
    sweeper: Sweeper | None,
    registry: Registry,
    db: Database,
    settings: Settings,
) -> None:
    """Sweep until cancelled. Until there is something that runs containers, their tasks wait.

    Jobs end without it, too: they are cancelled, or deleted.
    """
    settles_at = 0.0
    while runtime is None:
        if time.monotonic() >= settles_at:
            await _settle(db, settings)
            settles_at = time.monotonic() + settings.section(ContainerSettings).sweep_seconds
        await asyncio.sleep(LOOK_SECONDS)
        runtime, why = await choose_runtime(settings)
        if runtime is not None:
            log.debug(why)  # `up` says it once, in its own line
    async with runtime:
        await (sweeper or _open(runtime, registry, db, settings)).run()


async def _settle(db: Database, settings: Settings) -> None:
    try:
        await settle_ended(db, settings.section(ContainerSettings))
    except PASSING as error:
        log.warning("not settled, trying again", error=str(error).strip())
