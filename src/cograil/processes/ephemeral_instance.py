"""A complete instance for one job, inside the command that needs it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from cograil import logs
from cograil.orchestrator.orchestrator_loop import Orchestrator
from cograil.processes.database_host import Host, prepare_database
from cograil.processes.instance_discovery import make_engine_context
from cograil.processes.lifecycle import kept_running, process_name
from cograil.processes.worker_main import WorkOrder
from cograil.processes.worker_process import WorkerChild
from cograil.settings import Settings
from cograil.store.database import Database

GRACE_SECONDS = 2.0  # short, because a user waits for the prompt


@asynccontextmanager
async def private_instance(
    settings: Settings, *, apps: Sequence[str] = (), report: Callable[[str], None] = lambda _: None
) -> AsyncIterator[Database]:
    """Yield the database of a new instance: PostgreSQL in `settings.data_dir`, an orchestrator in this
    loop, a worker in a child process.

    All of it is ready, and is stopped afterwards; the data stays. With COGRAIL_DATABASE_URL that database
    is used instead. Raises DirectoryInUse when an instance runs there already, UsageError when a module of
    `apps` cannot be imported. Must be entered in the main thread. `report` receives messages about the
    reason of a slow start.
    """
    settings = _hurried_and_quiet(settings)
    logs.configure(settings.log.level, settings.log.format)
    host = Host(settings, report)
    async with AsyncExitStack() as stack:
        host.start()
        stack.push_async_callback(asyncio.to_thread, host.stop)
        await prepare_database(host.conninfo, settings)
        host.announce("", 0)
        db = await stack.enter_async_context(Database(host.conninfo, settings.database))
        orchestrator = Orchestrator(db, settings, make_engine_context(settings), process_name())
        await stack.enter_async_context(kept_running(orchestrator.run(), orchestrator.stop))
        order = WorkOrder(host.conninfo, settings, tuple(apps), os.getcwd())
        worker = WorkerChild(order, db, is_output_on_stderr=True)
        await stack.enter_async_context(kept_running(worker.run(), worker.stop))
        await worker.ready()
        yield db


@asynccontextmanager
async def guest_worker(db: Database, settings: Settings, apps: Sequence[str]) -> AsyncIterator[list[str]]:
    """Run another worker on the database of an instance, for the handlers of `apps` only; yields their
    names.

    It stops with this block and releases what it still runs, without counting the attempt. Raises
    UsageError when a module cannot be imported.
    """
    order = WorkOrder(db.conninfo, _hurried_and_quiet(settings), tuple(apps), os.getcwd(), is_guest=True)
    worker = WorkerChild(order, db, is_output_on_stderr=True)
    async with kept_running(worker.run(), worker.stop):
        await worker.ready()
        yield worker.handlers


@asynccontextmanager
async def app_worker(db: Database, settings: Settings, app: str, queue: str) -> AsyncIterator[None]:
    """Run a worker of one app, for one queue, on the database of an instance until the block ends.

    It releases what it still runs, without counting the attempt.
    """
    only = {"apps": (app,), "queues": settings.queues.model_copy(update={"names": (queue,)})}
    order = WorkOrder(db.conninfo, _hurried_and_quiet(settings).model_copy(update=only), (), os.getcwd())
    worker = WorkerChild(order, db, is_output_on_stderr=True)
    async with kept_running(worker.run(), worker.stop):
        await worker.ready()
        yield


def _hurried_and_quiet(settings: Settings) -> Settings:
    grace = min(settings.worker.grace_seconds, GRACE_SECONDS)
    return settings.model_copy(
        update={
            "worker": settings.worker.model_copy(update={"grace_seconds": grace}),
            "log": settings.log.model_copy(update={"level": "error"}),
        }
    )
