"""Another orchestrator, worker or relay on an existing database."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import structlog

from cograil import logs, tracing
from cograil.app_registry import require_apps
from cograil.processes.app_plugins import app_samples, prepare_app_schemas
from cograil.processes.instance_discovery import (
    check_schema,
    find_conninfo,
    make_engine_context,
    queue_checks,
    require_queues,
)
from cograil.processes.lifecycle import (
    first_of,
    kept_running,
    leave_nobody_behind,
    process_name,
    run_async,
    stop_on_signals,
)
from cograil.processes.process_readiness import ProcessHealth
from cograil.processes.worker_main import load_handlers, work_on
from cograil.runners import handler_output
from cograil.settings import Settings
from cograil.store.connect_retry import look, opened
from cograil.store.database import BUSY, Database
from cograil.store.migrate import check_server
from cograil.worker.worker_loop import Worker


def orchestrator(settings: Settings, health_port: int | None = None) -> None:
    """Advance jobs until a signal arrives."""
    logs.configure(settings.log.level, settings.log.format)
    run_async(_orchestrate(settings, health_port), "orchestrator")


def worker(settings: Settings, apps: tuple[str, ...] = (), health_port: int | None = None) -> None:
    """Run tasks until a signal arrives; then drain."""
    require_queues(settings)
    require_apps(settings)
    logs.configure(settings.log.level, settings.log.format)
    handler_output.capture(is_output_captured=settings.worker.capture_output)
    load_handlers(apps, os.getcwd())
    run_async(_work(settings, health_port), "worker")


def relay(settings: Settings, health_port: int | None = None) -> None:
    """Deliver events until a signal arrives."""
    logs.configure(settings.log.level, settings.log.format)
    run_async(_relay(settings, health_port), "relay")


async def _relay(settings: Settings, health_port: int | None) -> None:
    from cograil.delivery.relay import Relay  # noqa: PLC0415  a worker needs none of it

    log = structlog.get_logger("relay")
    async with _checked_database(settings, "cograil relay") as db:
        relay = Relay(db, settings, process_name())
        stop = stop_on_signals()
        async with (
            _probes(settings, health_port, db, "relay", lambda: relay.is_ready),
            kept_running(relay.run(), relay.stop) as running,
        ):
            log.info("ready", name=relay.name, pid=os.getpid())
            await first_of(stop, running)
    log.info("stopped", name=relay.name)


async def _orchestrate(settings: Settings, health_port: int | None) -> None:
    from cograil.orchestrator.orchestrator_loop import Orchestrator  # noqa: PLC0415
    from cograil.scheduler.schedule_loop import Scheduler  # noqa: PLC0415  a worker needs none of it

    log = structlog.get_logger("orchestrator")
    async with _checked_database(settings, "cograil orchestrator") as db:
        orchestrator = Orchestrator(db, settings, make_engine_context(settings), process_name())
        scheduler = Scheduler(db, make_engine_context(settings))
        stop = stop_on_signals()
        async with (
            _probes(settings, health_port, db, "orchestrator", lambda: orchestrator.is_ready),
            kept_running(orchestrator.run(), orchestrator.stop) as running,
            kept_running(scheduler.run(), scheduler.stop) as scheduling,
        ):
            log.info("ready", name=orchestrator.name, pid=os.getpid())
            await first_of(stop, running, scheduling)
    log.info("stopped", name=orchestrator.name)


async def _work(settings: Settings, health_port: int | None) -> None:
    log = structlog.get_logger("worker")
    workers: list[Worker] = []

    def tell(worker: Worker) -> None:
        workers.append(worker)
        queues = list(settings.queues.names) or "all"
        log.info("ready", name=worker.name, pid=os.getpid(), queues=queues, handlers=worker.registry.names())

    async with (
        _checked_database(settings, "cograil worker") as db,
        _probes(settings, health_port, db, "worker", lambda: bool(workers) and workers[0].is_ready),
    ):
        await look(partial(prepare_app_schemas, db, settings))
        await work_on(db, settings, tell)
    log.info("stopped")
    tracing.shutdown()  # what hangs here ends with the process
    await leave_nobody_behind(0)


@asynccontextmanager
async def _checked_database(settings: Settings, application: str) -> AsyncIterator[Database]:
    """Yield the database of the instance, checked for durability and for the schema of this program."""
    conninfo = await find_conninfo(settings)
    async with opened(Database(conninfo, settings.database, application=application, kept=BUSY)) as db:
        await look(partial(_check, db, settings))
        yield db


async def _check(db: Database, settings: Settings) -> None:
    async with db.single("check") as tx:
        await check_server(tx.connection, settings.database.allow_unsafe)
    await check_schema(db)


@asynccontextmanager
async def _probes(
    settings: Settings, port: int | None, db: Database, part: str, is_ready: Callable[[], bool]
) -> AsyncIterator[None]:
    """Serve /livez and /readyz for this part, if they have a port."""
    if port is None:
        yield
        return
    from cograil.http.server.port import bind, serving  # noqa: PLC0415
    from cograil.http.server.probes import probe_app  # noqa: PLC0415  a web server is 15 MB

    health = ProcessHealth(db, {part: is_ready}, queue_checks(settings), samples=app_samples(settings))
    async with serving(probe_app(health.checks, health.samples), bind(settings.host, port)):
        yield
