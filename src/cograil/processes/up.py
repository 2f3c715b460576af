"""`cograil up`: all parts of an instance in one command.

This process locks the data directory, runs PostgreSQL, advances jobs and serves the API and the probes. The
worker is a child process: users' code runs only there. On a signal it becomes not ready, the worker drains,
the orchestrator stops, the port closes, PostgreSQL shuts down.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psycopg
import structlog

from cograil import logs
from cograil.app_registry import PortContext, require_apps
from cograil.delivery.relay import Relay
from cograil.embedded.data_directory import hold_directory
from cograil.errors import DatabaseUnavailable, UsageError
from cograil.http.server.access_log import log_requests
from cograil.http.server.application import application
from cograil.http.server.dispatcher import ApiContext
from cograil.http.server.port import bind, serving
from cograil.http.server.probes import metrics_app, probe_routes
from cograil.model.readiness_check import OK
from cograil.orchestrator.orchestrator_loop import Orchestrator
from cograil.processes.api_server import open_api
from cograil.processes.app_plugins import (
    all_doors,
    app_checks,
    app_front,
    app_samples,
    app_sentences,
    serving_ports,
)
from cograil.processes.database_host import Host, prepare_database
from cograil.processes.handler_modules import summarize
from cograil.processes.instance_discovery import make_engine_context, require_queues
from cograil.processes.lifecycle import first_of, kept_running, process_name, run_async, stop_on_signals
from cograil.processes.process_readiness import ProcessHealth
from cograil.processes.publish_directory import FilePublication, publish_files, workflow_files
from cograil.processes.reloader import Reloader
from cograil.processes.startup_banner import goodbye, tell_worker_error, tell_worker_runs, welcome
from cograil.processes.worker_main import WorkOrder
from cograil.processes.worker_process import WorkerChild
from cograil.scheduler.schedule_loop import Scheduler
from cograil.settings import Settings
from cograil.store.database import BUSY, Database
from cograil.store.task_queries import note_worker_error

log = structlog.get_logger("up")

LOOK_SECONDS = 0.5  # interval of checks for a PostgreSQL that ended


RELOAD_GRACE_SECONDS = 2.0  # short, because a user waits for the edited handler


@dataclass(frozen=True, slots=True)
class Development:
    """The reaction to edits while it runs."""

    is_dev: bool = False  # files replace what was published under their version
    is_reloading: bool = False  # edited handlers restart the worker


def up(
    settings: Settings,
    apps: tuple[str, ...] = (),
    workflows: Path | None = None,
    gateway_port: int | None = None,
    front: tuple[str, int] | None = None,
    development: Development = Development(),  # noqa: B008  it never changes
) -> None:
    """Run everything until a signal arrives; return when all parts have stopped.

    `front` names an app that has a port of its own, and the port.

    Raises DirectoryInUse, Conflict (the port), UsageError, or an error of the database.
    """
    require_queues(settings)
    require_apps(settings)
    if development.is_dev and settings.database.url:
        raise UsageError(
            "--dev replaces published workflows, so it is for the embedded database only: "
            "unset COGRAIL_DATABASE_URL, or use --reload without --dev"
        )
    if development.is_reloading:
        grace = min(settings.worker.grace_seconds, RELOAD_GRACE_SECONDS)
        worker = settings.worker.model_copy(update={"grace_seconds": grace})
        settings = settings.model_copy(update={"worker": worker})
    if workflows is not None:
        workflow_files(workflows)
    logs.configure(settings.log.level, settings.log.format)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # before the loop that handles it runs
    with (
        _take_port(settings) as listening,
        nullcontext() if gateway_port is None else bind(settings.host, gateway_port) as gateway,
        nullcontext() if front is None else bind(settings.host, front[1]) as fronted,
        Host(settings, log.info) as host,
    ):
        own = None if front is None or fronted is None else (front[0], fronted)
        supervisor = Supervisor(settings, apps, workflows, host, listening, gateway, own, development)
        run_async(supervisor.run(), "up")


class Supervisor:
    """The parts that run in the process of `up`, once it has a database and a port."""

    def __init__(
        self,
        settings: Settings,
        apps: tuple[str, ...],
        workflows: Path | None,
        host: Host,
        listening: socket.socket,
        gateway: socket.socket | None = None,
        front: tuple[str, socket.socket] | None = None,
        development: Development = Development(),  # noqa: B008  it never changes
    ) -> None:
        self.settings = settings
        self.apps = apps
        self.workflows = workflows
        self.development = development
        self.host = host
        self.listening = listening
        self.gateway = gateway
        self.front = front
        self.is_published = False
        self.worker_error: str | None = None  # the reason why the worker could not start

    async def run(self) -> None:
        """Start all parts, wait for a signal or for a part that fails, stop all parts."""
        stop = stop_on_signals()
        conninfo, settings = self.host.conninfo, self.settings
        await prepare_database(conninfo, settings)
        async with AsyncExitStack() as stack:  # parts stop in the reverse order of their start
            enter = stack.enter_async_context
            db = await enter(Database(conninfo, settings.database, application="cograil up", kept=BUSY))
            orchestrator = Orchestrator(db, settings, make_engine_context(settings), process_name())
            worker = self._worker(db, orchestrator)
            relay = Relay(db, settings, orchestrator.name)
            parts = {"orchestrator": orchestrator, "worker": worker, "relay": relay}
            health = self._health(db, parts)
            await enter(self._open_doors(conninfo, health, worker))
            reloader = self._reloader(db, worker)  # edits count from here on
            started = (relay, orchestrator, Scheduler(db, make_engine_context(settings)), worker)
            running = [await enter(kept_running(part.run(), part.stop)) for part in started]
            if self.gateway is not None:
                running.append(await enter(self._open_gateway(conninfo, self.gateway)))
            opening = asyncio.create_task(self._open(db, worker))
            running.append(asyncio.create_task(self._keep_database()))
            stack.callback(opening.cancel)
            stack.callback(running[-1].cancel)
            await first_of(stop, opening, *running)
            if reloader is not None:
                running.append(asyncio.create_task(reloader.run(), name="reload"))
                stack.callback(running[-1].cancel)
            await first_of(stop, *running)
            health.is_draining = True
            goodbye(settings)
        log.info("stopped")

    async def _open(self, db: Database, worker: WorkerChild) -> None:
        """Wait for the worker, publish the workflows, and announce the instance."""
        await worker.ready()
        published = await self._publish(db, worker)
        self.is_published = True
        address, port = self.listening.getsockname()[:2]
        self.host.announce(address, port)
        welcome(
            self.settings,
            self.host,
            f"http://{self.settings.host}:{port}",
            published,
            await app_sentences(self.settings),
        )

    def _worker(self, db: Database, orchestrator: Orchestrator) -> WorkerChild:
        order = WorkOrder(self.host.conninfo, self.settings, self.apps, os.getcwd())
        note = partial(self._note_start, db, orchestrator)
        return WorkerChild(order, db, is_reloadable=self.development.is_reloading, on_start=note)

    async def _note_start(self, db: Database, orchestrator: Orchestrator, error: str | None) -> None:
        """Report a failed start of the worker on the terminal and to `explain`.

        An error of the first start ends `up`, which prints it.
        """
        if not self.is_published or error == self.worker_error:
            return
        self.worker_error = error
        if error is None:
            tell_worker_runs(self.settings)
        else:
            tell_worker_error(self.settings, error, is_reloading=self.development.is_reloading)
        if orchestrator.process_id is not None:
            with suppress(psycopg.Error, DatabaseUnavailable):
                async with db.single("note") as tx:
                    summary = None if error is None else summarize(error)
                    await note_worker_error(tx, orchestrator.process_id, summary)

    async def _publish(self, db: Database, worker: WorkerChild) -> list[FilePublication]:
        is_dev = self.development.is_dev
        engine_context = make_engine_context(self.settings)
        return await publish_files(db, engine_context, self._workflow_files(), worker.handlers, is_dev=is_dev)

    def _health(self, db: Database, parts: Mapping[str, object]) -> ProcessHealth:
        apps = app_checks(self.settings, has_worker=True)
        conditions = {"workflows": self._published}
        return ProcessHealth(db, _states(parts), apps, conditions, app_samples(self.settings))

    def _published(self) -> str:
        """Return the readiness of the workflows: once it is ready, the workflows of the directory can be
        submitted.
        """
        return OK if self.is_published else "not published yet"

    def _workflow_files(self) -> list[Path]:
        return workflow_files(self.workflows) if self.workflows is not None else []

    def _reloader(self, db: Database, worker: WorkerChild) -> Reloader | None:
        if not self.development.is_reloading:
            return None

        async def publish_again() -> None:
            for file in await self._publish(db, worker):
                if file.is_new:
                    log.info("workflow published again", workflow=file.name, file=str(file.path))

        publish = publish_again if self.development.is_dev else None
        here = Path.cwd()
        return Reloader(here, lambda: worker.loaded_files, worker.reload, self._workflow_files, publish)

    @asynccontextmanager
    async def _open_doors(
        self, conninfo: str, health: ProcessHealth, worker: WorkerChild
    ) -> AsyncIterator[None]:
        """Serve the API with the pages and the applications of apps, and the additional ports of apps."""
        async with open_api(conninfo, self.settings) as instance:
            probes = probe_routes(health.checks, health.samples, worker.counts)
            served = log_requests(application(instance, probes, apps=all_doors(instance)), self.settings)
            counted = metrics_app(health.samples, worker.counts)
            async with (
                serving(served, self.listening, instance.end),
                self._open_front(instance),
                serving_ports(self.settings, PortContext(instance, health.checks, counted)),
            ):
                yield

    def _open_front(self, instance: ApiContext) -> AbstractAsyncContextManager[None]:
        """Serve the port of the app that has one, if any."""
        if self.front is None:
            return nullcontext()
        name, listening = self.front
        log.info("the app has a port of its own", app=name, port=listening.getsockname()[1])
        return serving(app_front(instance, name), listening)

    def _open_gateway(
        self, conninfo: str, listening: socket.socket
    ) -> AbstractAsyncContextManager[asyncio.Task[None]]:
        """Serve the gateway beside the API, to which it forwards writes."""
        from cograil.gateway.gateway_readiness import UpstreamUrls  # noqa: PLC0415
        from cograil.processes.gateway_server import open_gateway, url_of  # noqa: PLC0415  most have none

        port = self.listening.getsockname()[1]
        return open_gateway(
            self.settings, listening, UpstreamUrls(conninfo, url_of(self.settings.host, port))
        )

    async def _keep_database(self) -> None:
        """Restart an embedded PostgreSQL that has ended; its clients reconnect."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self.host.revive():
                log.error("PostgreSQL had ended and was started again")


def _states(parts: Mapping[str, object]) -> dict[str, Callable[[], bool]]:
    """Return a readiness function for each of these."""
    return {name: partial(getattr, part, "is_ready") for name, part in parts.items()}


def _take_port(settings: Settings) -> socket.socket:
    """Bind the port. A second instance on the directory is reported as such, not as a port conflict."""
    with nullcontext() if settings.database.url else hold_directory(settings.data_dir):
        return bind(settings.host, settings.port)
