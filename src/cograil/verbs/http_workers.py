"""Work over HTTP alone: claim, heartbeat, report. What a worker of ours does, for one in any language."""

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
    """Take due tasks of this tenant; of all handlers when none is named.

    They share a lease, which goes on with whatever is said of one of them, and not with another claim.
    """
    await lock_name(tx, "remote worker", tenant, worker)
    life = await http_worker_queries.join_remote_worker(tx, tenant, worker, lease_seconds, queues, handlers)
    if life.is_exclusive:  # beside it this worker does nothing else
        return []
    wanted = handlers if handlers is not None else await http_worker_queries.ready_handlers(tx)
    slots = Slots(wanted, [], most, 0, queues)
    taken = await task_queries.claim_tasks(tx, life.worker, slots)
    return taken if taken or life.is_busy else await task_queries.claim_exclusive(tx, life.worker, slots)


async def heartbeat(
    tx: Transaction, tenant: str, job_id: str, task_id: int, fence: int | None, lease_seconds: float
) -> bool:
    """Keep an attempt. False: its job was cancelled. Raises StaleAttempt when it is somebody else's now."""
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
    """The attempt that somebody speaks of. Raises JobNotFound, AlreadyTerminal or StaleAttempt."""
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
    """Record how an attempt ended. Raises StaleAttempt when it was lost a moment ago."""
    reports = [Report(held.item, outcome)]
    if not await task_queries.report_tasks(tx, held.worker, held.worker_name, reports):
        raise StaleAttempt(held.item.task_id)


async def note_late(tx: Transaction, tenant: str, job_id: str, task_id: int, fence: int | None) -> None:
    """Tell the job that somebody reported an attempt that was no longer theirs.

    Which node that was, and whose, is ours to know; of a task that there never was nothing is told.
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
    """Whether this was reported before, word for word: then our answer was lost, and not the attempt."""
    return await http_worker_queries.find_repeated(tx, tenant, job_id, task_id, fence, outcome, worker)
