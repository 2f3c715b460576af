"""Batches concurrent submits: those that arrive while a transaction runs share the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from cograil.errors import CograilError, DatabaseUnavailable
from cograil.store.api_keys import AuditRecord
from cograil.store.database import LOST, Database, Transaction
from cograil.store.job_queries import View, new_job_view
from cograil.store.write_batch import NewJobRow
from cograil.verbs.advance import EngineContext
from cograil.verbs.submit import Submission, submit_each

MAX_BATCH_SIZE = 200
MIN_TO_SPLIT = 8  # more submits than this are split between two batches
OUTCOME_UNKNOWN = (DatabaseUnavailable, *LOST)
MAX_BATCHES = 2  # while one batch waits for its commit, the other is prepared


class PendingSubmit(NamedTuple):
    """A submit that waits for a batch."""

    submission: Submission
    entry: AuditRecord
    job: asyncio.Future[View]


class SubmitBatcher:
    """The submits of one process."""

    def __init__(self, db: Database, engine_context: EngineContext) -> None:
        self._db = db
        self._engine_context = engine_context
        self._pending: dict[str, list[PendingSubmit]] = {}
        self._batches: set[asyncio.Task[None]] = set()
        self._in_database = 0  # batches that wait for the database

    async def submit(self, submission: Submission, entry: AuditRecord) -> View:
        """Create this job and return it. Raises what `verbs.submit` raises."""
        job: asyncio.Future[View] = asyncio.get_running_loop().create_future()
        self._pending.setdefault(entry.tenant, []).append(PendingSubmit(submission, entry, job))
        self._start_batch()
        return await job

    async def _run_batches(self) -> None:
        await asyncio.sleep(0)  # requests that are read in the same loop iteration share a batch
        while self._pending:
            tenant = next(iter(self._pending))
            pending = self._pending.pop(tenant)
            size = self._batch_size(len(pending))
            if len(pending) > size:
                self._pending[tenant] = pending[size:]
                self._start_batch()
            self._in_database += 1
            try:
                await self._submit_batch(tenant, pending[:size])
            finally:
                self._in_database -= 1

    def _batch_size(self, pending: int) -> int:
        """Return the size of the next batch: half of the submits while the other batch is idle."""
        is_split = not self._in_database and pending > MIN_TO_SPLIT
        return min((pending + 1) // 2 if is_split else pending, MAX_BATCH_SIZE)

    def _start_batch(self) -> None:
        if len(self._batches) < MAX_BATCHES:
            batch = asyncio.create_task(self._run_batches(), name="submit-batch")
            self._batches.add(batch)
            batch.add_done_callback(self._batches.discard)

    async def _submit_batch(self, tenant: str, batch: Sequence[PendingSubmit]) -> None:
        try:
            jobs = await submit_and_show(
                self._db,
                self._engine_context,
                tenant,
                [(pending.submission, pending.entry) for pending in batch],
            )
        except OUTCOME_UNKNOWN as error:  # the jobs may exist: only the client may decide to submit again
            for pending in batch:
                _settle(pending, error)
        except Exception as error:
            if len(batch) == 1:
                _settle(batch[0], error)
                return
            for pending in batch:  # one bad submit must not fail the others
                await self._submit_batch(tenant, [pending])
        else:
            for pending, outcome in zip(batch, jobs, strict=True):
                _settle(pending, outcome)


def _settle(pending: PendingSubmit, outcome: View | Exception) -> None:
    if pending.job.done():  # the request was cancelled
        return
    if isinstance(outcome, Exception):
        pending.job.set_exception(outcome)
    else:
        pending.job.set_result(outcome)


async def submit_and_show(
    db: Database,
    engine_context: EngineContext,
    tenant: str,
    requests: Sequence[tuple[Submission, AuditRecord]],
) -> list[View | CograilError]:
    """Create these jobs in one transaction. Return for each its view, or the error of its submission."""
    async with db.transaction("submit", tenant=tenant) as tx:
        return await submit_and_show_within(tx, engine_context, tenant, requests)


async def submit_and_show_within(
    tx: Transaction,
    engine_context: EngineContext,
    tenant: str,
    requests: Sequence[tuple[Submission, AuditRecord]],
) -> list[View | CograilError]:
    """Do the same in the transaction of the caller."""
    submissions, entries = [request[0] for request in requests], [request[1] for request in requests]
    outcomes = await submit_each(tx, engine_context, submissions, tenant, entries=entries)
    return [new_job_view(outcome) if isinstance(outcome, NewJobRow) else outcome for outcome in outcomes]
