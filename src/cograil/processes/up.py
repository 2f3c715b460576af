"""`cograil up`: everything in one place.

This process takes the data directory, keeps PostgreSQL, advances jobs and answers the probes. The
worker is a child: code of users runs there, and only there. On a signal: not ready any more, the
worker drains, the orchestrator stops, the port closes, PostgreSQL shuts down.
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
from cograil.apps.app import require_apps
from cograil.errors import DatabaseUnavailable, UsageError
from cograil.intake.http.access_log import log_requests
from cograil.intake.http.app import application
from cograil.intake.http.door import Instance
from cograil.intake.http.probes import metrics_app, probe_routes
from cograil.intake.http.server import bind, serving
from cograil.intake.triggers.clock import Clock
from cograil.model.checks import OK
from cograil.orchestrator.loop import Orchestrator
from cograil.outlets.relay import Relay
from cograil.processes.api import open_api, serving_containers, serving_metrics
from cograil.processes.app_parts import all_doors, app_checks, app_front, app_sentences
from cograil.processes.apps import summarize
from cograil.processes.child import WorkerChild
from cograil.processes.connecting import decider_of, require_queues
from cograil.processes.greeting import goodbye, tell_worker_error, tell_worker_runs, welcome
from cograil.processes.health import Health
from cograil.processes.hosting import Host, prepare_database
from cograil.processes.publishing import PublishedFile, publish_files, workflow_files
from cograil.processes.reloader import Reloader
from cograil.processes.running import first_of, kept_running, process_name, run_async, stop_on_signals
from cograil.processes.working import WorkOrder
from cograil.settings import Settings
from cograil.store.database import BUSY, Database
from cograil.store.directory import hold_directory
from cograil.store.tasks import note_worker_error

log = structlog.get_logger("up")

LOOK_SECONDS = 0.5  # how soon a PostgreSQL that ended is noticed


RELOAD_GRACE_SECONDS = 2.0  # somebody has edited a handler and wants to see it run


@dataclass(frozen=True, slots=True)
class Development:
    """What is done with edits while it runs."""

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
    """Run everything until a signal says stop; returns when all has stopped.

    `front` names an app that has a port of its own, and the port.

    Raises DirectoryInUse, Conflict (the port), UsageError, or what the database has to say.
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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # while there is no loop to hear it
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
    """What runs in the process of `up`, once there is a database and a port."""

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
        self.worker_error: str | None = None  # why there is no worker, if it could not start

    async def run(self) -> None:
        """Start all parts, wait for a signal or for a part that fails, stop all parts."""
        stop = stop_on_signals()
        conninfo, settings = self.host.conninfo, self.settings
        await prepare_database(conninfo, settings)
        async with AsyncExitStack() as stack:  # what is entered last is stopped first
            enter = stack.enter_async_context
            db = await enter(Database(conninfo, settings.database, application="cograil up", kept=BUSY))
            orchestrator = Orchestrator(db, settings, decider_of(settings), process_name())
            worker = self._worker(db, orchestrator)
            relay = Relay(db, settings, orchestrator.name)
            parts = {"orchestrator": orchestrator, "worker": worker, "relay": relay}
            health = self._health(db, parts)
            await enter(self._open_doors(conninfo, health, worker))
            reloader = self._reloader(db, worker)  # from here on it sees what is edited
            started = (relay, orchestrator, Clock(db, decider_of(settings)), worker)
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
        """Wait for the worker, publish, and tell everybody that we are here."""
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
        """Tell people at the terminal and, through `explain`, those who wait why there is no worker.

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

    async def _publish(self, db: Database, worker: WorkerChild) -> list[PublishedFile]:
        is_dev = self.development.is_dev
        decider = decider_of(self.settings)
        return await publish_files(db, decider, self._workflow_files(), worker.handlers, is_dev=is_dev)

    def _health(self, db: Database, parts: Mapping[str, object]) -> Health:
        apps = app_checks(self.settings, has_worker=True)
        return Health(db, _states(parts), apps, {"workflows": self._published})

    def _published(self) -> str:
        """For /readyz: who is told that we are ready may submit what is in the directory."""
        return OK if self.is_published else "not published yet"

    def _workflow_files(self) -> list[Path]:
        return workflow_files(self.workflows) if self.workflows is not None else []

    def _reloader(self, db: Database, worker: WorkerChild) -> Reloader | None:
        if not self.development.is_reloading:
            return None

        async def publish_again() -> None:
            for one in await self._publish(db, worker):
                if one.is_new:
                    log.info("workflow published again", workflow=one.name, file=str(one.path))

        publish = publish_again if self.development.is_dev else None
        here = Path.cwd()
        return Reloader(here, lambda: worker.loaded_files, worker.reload, self._workflow_files, publish)

    @asynccontextmanager
    async def _open_doors(self, conninfo: str, health: Health, worker: WorkerChild) -> AsyncIterator[None]:
        """The API with the pages and the doors of apps, and the ports that some have of their own."""
        async with open_api(conninfo, self.settings) as instance:
            probes = probe_routes(health.checks, health.samples, worker.counts)
            served = log_requests(application(instance, probes, apps=all_doors(instance)), self.settings)
            counted = metrics_app(health.samples, worker.counts)
            async with (
                serving(served, self.listening, instance.end),
                self._open_front(instance),
                serving_containers(self.settings, instance, health),
                serving_metrics(self.settings, counted),
            ):
                yield

    def _open_front(self, instance: Instance) -> AbstractAsyncContextManager[None]:
        """The port of the app that has one of its own, if one has."""
        if self.front is None:
            return nullcontext()
        name, listening = self.front
        log.info("the app has a port of its own", app=name, port=listening.getsockname()[1])
        return serving(app_front(instance, name), listening)

    def _open_gateway(
        self, conninfo: str, listening: socket.socket
    ) -> AbstractAsyncContextManager[asyncio.Task[None]]:
        """Beside the API, to which it sends what it does not do itself."""
        from cograil.intake.gateway.startup import Place  # noqa: PLC0415
        from cograil.processes.gateway import open_gateway, url_of  # noqa: PLC0415  most have none

        port = self.listening.getsockname()[1]
        return open_gateway(self.settings, listening, Place(conninfo, url_of(self.settings.host, port)))

    async def _keep_database(self) -> None:
        """A PostgreSQL of ours that ends is started again; whoever was connected connects anew."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self.host.revive():
                log.error("PostgreSQL had ended and was started again")


def _states(parts: Mapping[str, object]) -> dict[str, Callable[[], bool]]:
    """How to ask each of these whether it is ready."""
    return {name: partial(getattr, part, "is_ready") for name, part in parts.items()}


def _take_port(settings: Settings) -> socket.socket:
    """Whoever starts a second instance by mistake hears of the first one, not of its port."""
    with nullcontext() if settings.database.url else hold_directory(settings.data_dir):
        return bind(settings.host, settings.port)
