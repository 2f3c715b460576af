"""Limits: what they hold back, who has a place, and letting the next ones go."""

from __future__ import annotations

from typing import NamedTuple

from cograil.model.job import JobState, TaskLimit
from cograil.store.database import Row, Transaction
from cograil.store.statements import statement

HELD_KEYS = statement("held_keys")
LIMIT_HOLDERS = statement("limit_holders")
LOCK_WAITING = statement("lock_waiting")
LET_GO_TASKS = statement("let_go_tasks")
ADMIT_JOBS = statement("admit_jobs")
HOLD_JOB = statement("hold_job")


class HeldKey(NamedTuple):
    """A limit that holds something back. `what` is task or job."""

    what: str
    key: str
    concurrency: int | None
    rate: float | None
    per_seconds: float | None
    waiting: int


async def held_keys(tx: Transaction) -> list[HeldKey]:
    """Every limit that holds something back, in the order in which they are to be locked."""
    return [HeldKey(*row) for row in await tx.fetch(HELD_KEYS)]


async def holders(tx: Transaction, what: str, key: str) -> list[Row]:
    """(job, node) of everyone who has a place under this limit."""
    return await tx.fetch(LIMIT_HOLDERS, what=what, key=key)


async def lock_waiting(tx: Transaction, what: str, key: str, places: int) -> int:
    """How many could go now, of so many at most; nobody takes these away before the transaction ends."""
    return int((await tx.fetch(LOCK_WAITING, what=what, key=key, places=places))[0][0])


async def let_go(tx: Transaction, what: str, key: str, places: int) -> int:
    """Let so many go; how many did."""
    chosen = LET_GO_TASKS if what == "task" else ADMIT_JOBS
    return int((await tx.fetch(chosen, key=key, places=places))[0][0])


async def hold_job(tx: Transaction, job: JobState, limit: TaskLimit) -> None:
    """This new job waits until it is admitted."""
    await tx.execute(
        HOLD_JOB,
        job=job.job_id,
        tenant=job.tenant_id,
        key=limit.key,
        concurrency=limit.concurrency,
        rate=limit.rate,
        per_seconds=limit.per_seconds,
        rank=-job.priority,
    )
