"""Workers that use HTTP: process rows whose leases hold the tasks of one claim."""

from __future__ import annotations

from typing import NamedTuple

from cograil.model.outcome import Completed, Failed, WorkItem
from cograil.store.database import Transaction
from cograil.store.statements import statement

JOIN_REMOTE_WORKER = statement("join_remote_worker")
READY_HANDLERS = statement("ready_handlers")
FIND_HELD_TASK = statement("find_held_task")
NOTE_LATE = statement("note_late")
FIND_REPEATED = statement("find_repeated")


class Life(NamedTuple):
    """The process row (life) that holds a claim of a worker; whether its other lives hold tasks, or an
    exclusive one.
    """

    worker: int
    is_busy: bool
    is_exclusive: bool


class HeldTask(NamedTuple):
    """An attempt that a remote worker holds."""

    worker: int
    worker_name: str
    item: WorkItem


async def join_remote_worker(
    tx: Transaction,
    tenant: str,
    name: str,
    lease_seconds: float,
    queues: list[str] | None,
    handlers: list[str] | None,
) -> Life:
    """Return a life of this worker that holds nothing, and extend its lease. Requires the lock of its name."""
    params = {"tenant": tenant, "name": name, "lease": lease_seconds, "queues": queues, "handlers": handlers}
    (row,) = await tx.fetch(JOIN_REMOTE_WORKER, **params)
    return Life(*row)


async def ready_handlers(tx: Transaction) -> list[str]:
    """Return the handlers with ready tasks."""
    return [handler for (handler,) in await tx.fetch(READY_HANDLERS)]


async def find_held_task(
    tx: Transaction, tenant: str, job_id: str, task_id: int, fence: int | None, lease_seconds: float
) -> HeldTask | None:
    """Return this attempt while it is held, and extend the lease of its worker."""
    params = {"tenant": tenant, "job": job_id, "task": task_id, "fence": fence, "lease": lease_seconds}
    rows = await tx.fetch(FIND_HELD_TASK, **params)
    if not rows:
        return None
    worker, name, attempt, job, node, handler, timeout, root, held_fence = rows[0]
    extra = {"tenant_id": tenant, "key_root": root}
    item = WorkItem(task_id, held_fence, job, node, attempt, handler, {}, timeout, **extra)
    return HeldTask(worker, name, item)


async def note_late(tx: Transaction, tenant: str, job_id: str, task_id: int, fence: int | None) -> bool:
    """Record a late result in the inbox of the job; return whether the task belonged to the job."""
    params = {"tenant": tenant, "job": job_id, "task": task_id, "fence": fence}
    return bool(await tx.fetch(NOTE_LATE, **params))


async def find_repeated(
    tx: Transaction,
    tenant: str,
    job_id: str,
    task_id: int,
    fence: int | None,
    outcome: Completed | Failed,
    worker: str | None = None,
) -> bool:
    """Return whether this outcome of the attempt is recorded; by this worker, if one is named."""
    result = (
        {"output": outcome.output.decode(), "code": None, "message": None}
        if isinstance(outcome, Completed)
        else {"output": None, "code": outcome.code, "message": outcome.message}
    )
    params = {"tenant": tenant, "job": job_id, "task": task_id, "fence": fence, "worker": worker}
    return bool(await tx.fetch(FIND_REPEATED, **params, **result))
