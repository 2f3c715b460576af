"""`cograil up`: everything in one place.

This process takes the data directory, keeps PostgreSQL, advances jobs and answers the probes. The
worker is a child: code of users runs there, and only there. On a signal: not ready any more, the
worker drains, the orchestrator stops, the port closes, PostgreSQL shuts down.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import signal
import socket
import sys
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path

import structlog

from cograil import logs
from cograil.errors import UsageError
from cograil.intake.http.probes import probe_app
from cograil.intake.http.server import bind, serving
from cograil.orchestrator.loop import Orchestrator
from cograil.processes.child import WorkerChild
from cograil.processes.connecting import decider_of, require_queues
from cograil.processes.greeting import goodbye, welcome
from cograil.processes.health import Health
from cograil.processes.hosting import Host, prepare_database
from cograil.processes.publishing import publish_files, workflow_files
from cograil.processes.running import first_of, kept_running, process_name, run_async, stop_on_signals
from cograil.processes.working import WorkOrder
from cograil.settings import Settings
from cograil.store.database import Database
from cograil.store.directory import hold_directory

log = structlog.get_logger("up")

LOOK_SECONDS = 0.5  # how soon a PostgreSQL that ended is noticed


def up(settings: Settings, apps: tuple[str, ...] = (), workflows: Path | None = None) -> None:
    """Run everything until a signal says stop; returns when all has stopped.

    Raises DirectoryInUse, Conflict (the port), UsageError, or what the database has to say.
    """
    require_queues(settings)
    files = workflow_files(workflows) if workflows else []
    logs.configure(settings.log.level, settings.log.format)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # while there is no loop to hear it
    with _take_port(settings) as listening, Host(settings, log.info) as host:
        run_async(Supervisor(settings, apps, files, host, listening).run())


class Supervisor:
    """What runs in the process of `up`, once there is a database and a port."""

    def __init__(
        self,
        settings: Settings,
        apps: tuple[str, ...],
        files: list[Path],
        host: Host,
        listening: socket.socket,
    ) -> None:
        self.settings = settings
        self.apps = apps
        self.files = files
        self.host = host
        self.listening = listening

    async def run(self) -> None:
        """Start all parts, wait for a signal or for a part that fails, stop all parts."""
        stop = stop_on_signals()
        conninfo, settings = self.host.conninfo, self.settings
        await prepare_database(conninfo, settings)
        async with AsyncExitStack() as stack:  # what is entered last is stopped first
            enter = stack.enter_async_context
            db = await enter(Database(conninfo, settings.database, application="cograil up"))
            orchestrator = Orchestrator(db, settings, decider_of(settings), process_name())
            worker = WorkerChild(WorkOrder(conninfo, settings, self.apps, os.getcwd()), db)
            health = Health(
                db, {"orchestrator": lambda: orchestrator.is_ready, "worker": lambda: worker.is_ready}
            )
            await enter(serving(probe_app(health.checks, health.samples), self.listening))
            orchestrating = await enter(kept_running(orchestrator.run(), orchestrator.stop))
            working = await enter(kept_running(worker.run(), worker.stop))
            opening = asyncio.create_task(self._open(db, worker))
            keeping = asyncio.create_task(self._keep_database())
            stack.callback(opening.cancel)
            stack.callback(keeping.cancel)
            await first_of(stop, opening, keeping, orchestrating, working)
            await first_of(stop, keeping, orchestrating, working)
            health.is_draining = True
            goodbye(settings)
        log.info("stopped")

    async def _open(self, db: Database, worker: WorkerChild) -> None:
        """Wait for the worker, publish, and tell everybody that we are here."""
        await worker.ready()
        published = await publish_files(db, self.files, worker.handlers)
        address, port = self.listening.getsockname()[:2]
        self.host.announce(address, port)
        welcome(self.settings, self.host, f"http://{self.settings.host}:{port}", published)

    async def _keep_database(self) -> None:
        """A PostgreSQL of ours that ends is started again; whoever was connected connects anew."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self.host.revive():
                log.error("PostgreSQL had ended and was started again")


def _take_port(settings: Settings) -> socket.socket:
    """Whoever starts a second instance by mistake hears of the first one, not of its port."""
    if not _is_loopback(settings.host):
        raise UsageError(
            f"cannot listen on {settings.host}: there are no keys yet, and whoever reaches the port may do "
            "everything; use 127.0.0.1"
        )
    with nullcontext() if settings.database.url else hold_directory(settings.data_dir):
        return bind(settings.host, settings.port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
