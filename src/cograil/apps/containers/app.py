"""The app `containers`: jobs that run a container, and the handler `container` for any workflow."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from cograil.apps.containers.settings import ContainerSettings
from cograil.plugins import App, Command, PortContext, lazy

if TYPE_CHECKING:
    from cograil.plugins import ASGIApp, Check, Database, Finding, Settings

HANDLER = "container"
ENGINE_TIMEOUT_SECONDS = 5.0  # a busy engine answers slowly


def _readiness(settings: Settings, has_worker: bool) -> Mapping[str, Check]:
    """A check of the engine; where the worker is elsewhere, a check that some worker runs containers."""
    from cograil.apps.containers.runtime.runtime_selection import choose_runtime  # noqa: PLC0415
    from cograil.plugins import DEGRADED, OK, list_processes  # noqa: PLC0415

    prefix = "" if settings.section(ContainerSettings).required else f"{DEGRADED}: "

    async def engine_answers(db: Database) -> str:
        runtime = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENGINE_TIMEOUT_SECONDS):
                runtime, _ = await choose_runtime(settings)
        if runtime is None:
            return f"{prefix}no container engine answers"
        async with runtime:
            return OK

    async def some_worker_has_one(db: Database) -> str:
        async with db.single("probe") as tx:
            processes = await list_processes(tx)
        has_one = any(process["is_live"] and HANDLER in (process["handlers"] or ()) for process in processes)
        return OK if has_one else f"{prefix}no worker runs containers"

    return {"containers": engine_answers if has_worker else some_worker_has_one}


async def _start_message(settings: Settings) -> str:
    """Which runtime runs containers here; the worker opens its own."""
    from cograil.apps.containers.runtime.runtime_selection import choose_runtime  # noqa: PLC0415

    runtime, why = await choose_runtime(settings)
    if runtime is not None:
        async with runtime:
            return why
    return why


def _ports(settings: Settings) -> Mapping[int, Callable[[PortContext], ASGIApp]]:
    """The ports of the service that this app replaces, where they are set: /v1/jobs and /metrics."""
    own = settings.section(ContainerSettings)
    ports = {
        own.port: lazy("cograil.apps.containers.standalone_port:container_front"),
        own.metrics_port: lambda context: context.metrics,
    }
    return {port: application for port, application in ports.items() if port}


async def _doctor(settings: Settings) -> list[Finding]:
    """Which runtime runs containers on this machine; none is not an error."""
    from cograil.apps.containers.runtime.runtime_selection import choose_runtime  # noqa: PLC0415
    from cograil.plugins import Finding  # noqa: PLC0415

    choice = await choose_runtime(settings)
    if choice.runtime is None:
        return [Finding("green", "C1", "containers", choice.why)]
    async with choice.runtime as runtime:
        has_limits = bool(runtime.shortcomings)
    more = "; `cograil containers runtime` says what it does not keep apart" if has_limits else ""
    return [Finding("green", "C1", "containers", choice.why + more)]


app = App(
    name="containers",
    summary="Run containers: /v1/jobs, and the handler `container` for any workflow.",
    settings=ContainerSettings,
    migrations="cograil.apps.containers",
    commands={
        "containers": Command(
            "cograil.apps.containers.cli:containers", "What runs containers, and images of the sandbox."
        )
    },
    routes=lazy("cograil.apps.containers.routes:app_routes"),
    api=lazy("cograil.apps.containers.routes:described"),
    ports=_ports,
    readiness=_readiness,
    on_worker=lazy("cograil.apps.containers.worker_lifespan:containers_on_worker"),
    unavailable=lazy("cograil.apps.containers.cli:why_no_containers"),
    doctor=_doctor,
    start_message=_start_message,
    samples=lazy("cograil.apps.containers.queries:sample_container_metrics"),
    offers=frozenset({HANDLER}),
)
