"""Waiting for a job: a notice says when to look, looking says what is true."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import psycopg

from cograil.cli.display.output import warn
from cograil.cli.instance_client import Client
from cograil.errors import DatabaseUnavailable, WaitTimeout
from cograil.store.database import Transaction
from cograil.store.job_progress_queries import JobProgress, load_progress
from cograil.store.listener import Listener
from cograil.store.write_batch import DONE_CHANNEL
from cograil.verbs.explain import explain

STALLED_SECONDS = 3.0  # without a change: time to say what the job waits for
PATIENCE_SECONDS = 60.0  # with a database that does not answer
TROUBLE = frozenset({"no_worker", "no_orchestrator"})


class View(Protocol):
    """Something that shows a job while it runs."""

    pause: float

    async def update(self, tx: Transaction, seen: JobProgress) -> None: ...

    def trouble(self, messages: list[str]) -> None: ...


class Bell:
    """Rings when one of our jobs may have ended."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def hear(self, channel: str, payload: str) -> None:
        self._rung.set()

    async def wait(self, seconds: float) -> None:
        """Until it rings, or this long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._rung.wait(), seconds)
        self._rung.clear()


@asynccontextmanager
async def listening(client: Client) -> AsyncIterator[Bell]:
    """A bell; make it before the job, or its end may be missed and found a moment later."""
    bell = Bell()
    listener = Listener(client.db.direct, [DONE_CHANNEL], bell.hear)
    await listener.start()
    try:
        yield bell
    finally:
        await listener.stop()


async def wait_for_end(
    client: Client, bell: Bell, job_id: str, view: View, *, timeout: float | None = None
) -> JobProgress:
    """The job once it has ended, shown by `view` until then.

    Raises WaitTimeout after `timeout` seconds; the job goes on. A database that goes away is waited for.
    """
    clock = asyncio.get_running_loop().time
    began = moved = heard = clock()
    before: JobProgress | None = None
    while True:
        try:
            seen = await _look(client, job_id, view, is_stalled=clock() - moved > STALLED_SECONDS)
        except (psycopg.OperationalError, psycopg.InterfaceError, DatabaseUnavailable) as error:
            if clock() - heard > PATIENCE_SECONDS:
                raise DatabaseUnavailable(
                    f"the database went away: {error}; job {job_id} is in it"
                ) from error
            warn("the database does not answer; trying again")
        else:
            heard = clock()
            if seen.is_over:
                return seen
            if before is None or seen.nodes != before.nodes:
                before, moved = seen, clock()
        left = None if timeout is None else began + timeout - clock()
        if left is not None and left <= 0:
            raise WaitTimeout(f"it did not end within {timeout:g} s; {client.future_of(job_id)}")
        await bell.wait(view.pause if left is None else min(view.pause, left))


async def _look(client: Client, job_id: str, view: View, *, is_stalled: bool) -> JobProgress:
    async with client.db.transaction("watch") as tx:
        seen = await load_progress(tx, job_id, client.tenant)
        await view.update(tx, seen)
        if is_stalled and not seen.is_over:
            blockers = (await explain(tx, client.engine_context.definitions, job_id, client.tenant)).blockers
            view.trouble([blocker.message for blocker in blockers if blocker.kind in TROUBLE])
        else:
            view.trouble([])
    return seen
