"""Waiting for a job: a notification says when to query its state; the query decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import psycopg

from cograil.cli.display.output import warn
from cograil.cli.instance_client import InstanceClient
from cograil.errors import DatabaseUnavailable, WaitTimeout
from cograil.store.database import Transaction
from cograil.store.job_progress_queries import JobProgressSnapshot, load_progress
from cograil.store.listener import Listener
from cograil.store.write_batch import DONE_CHANNEL
from cograil.verbs.explain import explain

STALLED_SECONDS = 3.0  # without a change; then the view shows why the job waits
MAX_OUTAGE_SECONDS = 60.0  # how long to wait for a database that does not answer
STALL_REASONS = frozenset({"no_worker", "no_orchestrator"})


class ProgressView(Protocol):
    """Shows a job while it runs."""

    pause: float

    async def update(self, tx: Transaction, job: JobProgressSnapshot) -> None: ...

    def show_stall(self, messages: list[str]) -> None: ...


class JobWaitListener:
    """Wakes up when a job may have ended."""

    def __init__(self) -> None:
        self._wakeup = asyncio.Event()

    def on_notify(self, channel: str, payload: str) -> None:
        self._wakeup.set()

    async def wait(self, seconds: float) -> None:
        """Return at the next notification, or after this many seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wakeup.wait(), seconds)
        self._wakeup.clear()


@asynccontextmanager
async def listen_for_job_ends(client: InstanceClient) -> AsyncIterator[JobWaitListener]:
    """Listen in this block. Enter it before the job is created: else its end may be noticed late."""
    ends = JobWaitListener()
    listener = Listener(client.db.direct, [DONE_CHANNEL], ends.on_notify)
    await listener.start()
    try:
        yield ends
    finally:
        await listener.stop()


async def wait_for_end(
    client: InstanceClient,
    listener: JobWaitListener,
    job_id: str,
    view: ProgressView,
    *,
    timeout: float | None = None,
) -> JobProgressSnapshot:
    """Return the job once it has ended; `view` shows it until then.

    Raises WaitTimeout after `timeout` seconds; the job continues. An outage of the database is waited out for
    a minute, then DatabaseUnavailable is raised.
    """
    clock = asyncio.get_running_loop().time
    began = changed_at = answered_at = clock()
    before: JobProgressSnapshot | None = None
    while True:
        try:
            job = await _query(client, job_id, view, is_stalled=clock() - changed_at > STALLED_SECONDS)
        except (psycopg.OperationalError, psycopg.InterfaceError, DatabaseUnavailable) as error:
            if clock() - answered_at > MAX_OUTAGE_SECONDS:
                raise DatabaseUnavailable(
                    f"the connection to the database was lost: {error}; job {job_id} is stored there"
                ) from error
            warn("the database does not answer; trying again")
        else:
            answered_at = clock()
            if job.is_over:
                return job
            if before is None or job.nodes != before.nodes:
                before, changed_at = job, clock()
        left = None if timeout is None else began + timeout - clock()
        if left is not None and left <= 0:
            raise WaitTimeout(f"job {job_id} did not end within {timeout:g} s; {client.next_steps(job_id)}")
        await listener.wait(view.pause if left is None else min(view.pause, left))


async def _query(
    client: InstanceClient, job_id: str, view: ProgressView, *, is_stalled: bool
) -> JobProgressSnapshot:
    async with client.db.transaction("watch") as tx:
        job = await load_progress(tx, job_id, client.tenant)
        await view.update(tx, job)
        if is_stalled and not job.is_over:
            blockers = (await explain(tx, client.engine_context.definitions, job_id, client.tenant)).blockers
            view.show_stall([blocker.message for blocker in blockers if blocker.kind in STALL_REASONS])
        else:
            view.show_stall([])
    return job
