"""The containers app beside a worker: runtime, handler and sweeper."""

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
LOOK_SECONDS = 5.0  # between two checks for a runtime


@contextlib.asynccontextmanager
async def containers_on_worker(registry: Registry, db: Database, settings: Settings) -> AsyncIterator[None]:
    """Run containers in this block, once a runtime is available."""
    runtime, why = await choose_runtime(settings)
    log.debug(why)  # `up` says it once, in its own line
    sweeper = None if runtime is None else _open(runtime, registry, db, settings)
    async with background("containers", _serve(runtime, sweeper, registry, db, settings)):
        yield


def _open(runtime: Runtime, registry: Registry, db: Database, settings: Settings) -> Sweeper:
    """Register the container handler with this worker; return the sweeper."""
    tools = make_container_tools(
        runtime, settings.section(ContainerSettings), settings.data_dir, PublicOnly(settings.outbound)
    )
    register_container(registry, tools, _max_tasks(settings))
    return Sweeper(db, tools, settings.section(ContainerSettings))


def _max_tasks(settings: Settings) -> int:
    """The maximum of container tasks of a worker: those that run, and as many whose files are being fetched.

    More would wait in its slots while other workers are idle. Containers of a lost worker are taken over even when all
    slots are used.
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
    """Sweep until cancelled. Tasks wait until a runtime is available.

    Without one, jobs still end by cancelling or deletion, and are settled.
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
