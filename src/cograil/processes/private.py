"""A whole instance for the time of one job, inside the command that wants it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from cograil.processes.child import WorkerChild, kept_worker
from cograil.processes.connecting import decider_of
from cograil.processes.hosting import hosted, prepare_database, tell_others
from cograil.processes.running import kept_running, process_name
from cograil.processes.working import WorkOrder
from cograil.settings import Settings
from cograil.store.database import Database


@asynccontextmanager
async def private_instance(
    settings: Settings, *, apps: Sequence[str] = (), report: Callable[[str], None] = lambda _: None
) -> AsyncIterator[Database]:
    """PostgreSQL in `settings.data_dir`, an orchestrator in this loop, a worker in a child; all ready.

    The database of it is yielded; everything is stopped afterwards, the data stays. With
    COGRAIL_DATABASE_URL that database is used and only the rest is ours. Raises DirectoryInUse when an
    instance runs there already, UsageError when a module of `apps` cannot be imported. Must be entered
    in the main thread. `report` hears, in words for people, what a slow start is waiting for.
    """
    from cograil.orchestrator.loop import Orchestrator  # noqa: PLC0415  most commands need none

    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(_hosted_in_loop(settings, report))
        await prepare_database(host.conninfo, settings)
        tell_others(host, "", 0)
        db = await stack.enter_async_context(
            Database(host.conninfo, settings.database, application="cograil run")
        )
        orchestrator = Orchestrator(db, settings, decider_of(settings), process_name())
        await stack.enter_async_context(kept_running(orchestrator.run(), orchestrator.stop))
        order = WorkOrder(host.conninfo, _quiet(settings), tuple(apps), os.getcwd())
        await stack.enter_async_context(kept_worker(WorkerChild(order, db)))
        yield db
