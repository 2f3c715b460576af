"""Tasks for workers that speak HTTP: claim, heartbeat and report, for any language."""

from __future__ import annotations

from cograil.errors import AlreadyTerminal, JobNotFound, StaleAttempt
from cograil.model.outcome import Completed, Failed, WorkItem
from cograil.model.states import JOB_TERMINAL
from cograil.store import http_worker_queries, task_queries
from cograil.store.advisory_locks import lock_name
from cograil.store.database import Transaction
from cograil.store.http_worker_queries import HeldTask
from cograil.store.job_queries import status_of_jobs
from cograil.store.task_queries import Report, Slots


async def claim(
    tx: Transaction,
    tenant: str,
    worker: str,
    *,
    most: int,
    lease_seconds: float,
    queues: list[str] | None = None,
    handlers: list[str] | None = None,
) -> list[WorkItem]:
    """Claim due tasks of this tenant, of all handlers when `handlers` is empty.

    The tasks share a lease. A heartbeat or report of one task extends it; another claim does not.
    """
    await lock_name(tx, "remote worker", tenant, worker)
    life = await http_worker_queries.join_remote_worker(tx, tenant, worker, lease_seconds, queues, handlers)
    if life.is_exclusive:  # this worker runs nothing else at the same time
        return []
    wanted = handlers if handlers is not None else await http_worker_queries.ready_handlers(tx)
    slots = Slots(wanted, [], most, 0, queues)
    taken = await task_queries.claim_tasks(tx, life.worker, slots)
    return taken if taken or life.is_busy else await task_queries.claim_exclusive(tx, life.worker, slots)


async def heartbeat(
    tx: Transaction, tenant: str, job_id: str, task_id: int, fence: int | None, lease_seconds: float
) -> bool:
    """Extend the lease of an attempt. Returns False when its job was cancelled. Raises StaleAttempt when
    the caller no longer owns the attempt.
    """
    if (
        await http_worker_queries.find_held_task(tx, tenant, job_id, task_id, fence, lease_seconds)
        is not None
    ):
        return True
    if (await status_of_jobs(tx, [job_id], tenant)).get(job_id) == "cancelled":
        return False
    raise StaleAttempt(task_id)


async def held_task(
    tx: Transaction, tenant: str, job_id: str, task_id: int, fence: int | None, lease_seconds: float
) -> HeldTask:
    """Return the attempt with this fence. Raises JobNotFound, AlreadyTerminal or StaleAttempt."""
    held = await http_worker_queries.find_held_task(tx, tenant, job_id, task_id, fence, lease_seconds)
    if held is not None:
        return held
    status = (await status_of_jobs(tx, [job_id], tenant)).get(job_id)
    if status is None:
        raise JobNotFound(job_id)
    if status in JOB_TERMINAL:
        raise AlreadyTerminal(job_id, status)
    raise StaleAttempt(task_id)


async def report(tx: Transaction, held: HeldTask, outcome: Completed | Failed) -> None:
    """Record the outcome of an attempt. Raises StaleAttempt when the attempt was lost before the report."""
    reports = [Report(held.item, outcome)]
    if not await task_queries.report_tasks(tx, held.worker, held.worker_name, reports):
        raise StaleAttempt(held.item.task_id)


async def note_late(tx: Transaction, tenant: str, job_id: str, task_id: int, fence: int | None) -> None:
    """Record in the history of the job that a worker reported an attempt it no longer owned.

    The node and the owner come from the database. An unknown task is not recorded.
    """
    await http_worker_queries.note_late(tx, tenant, job_id, task_id, fence)


async def is_repeated(
    tx: Transaction,
    tenant: str,
    job_id: str,
    task_id: int,
    fence: int | None,
    outcome: Completed | Failed,
    worker: str | None = None,
) -> bool:
    """Return whether the same report was recorded before. If so, the response was lost and not the attempt."""
    return await http_worker_queries.find_repeated(tx, tenant, job_id, task_id, fence, outcome, worker)
