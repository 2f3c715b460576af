"""Deletion of old rows: finished jobs with all their data, and processes that have ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from cograil.store.array_params import uuids
from cograil.store.database import Transaction
from cograil.store.statements import statement

LOCK_EXPIRED_JOBS = statement("lock_expired_jobs")
FIND_DELETABLE = statement("find_deletable")
DELETE_JOBS = statement("delete_jobs")
PRUNE_PROCESSES = statement("prune_processes")
TRY_TURN = statement("try_turn")

FIRST_ID = str(UUID(int=0))


async def try_turn(tx: Transaction, name: str) -> bool:
    """Try to take the lock of a task that one process does at a time; return whether this transaction has it."""
    ((is_ours,),) = await tx.fetch(TRY_TURN, name=name)
    return bool(is_ours)


async def lock_expired_jobs(
    tx: Transaction, before: datetime, after: str, bound: str, *, limit: int, events: int
) -> list[str]:
    """Lock and return the jobs between these two ids that finished before this time, oldest first."""
    rows = await tx.fetch(
        LOCK_EXPIRED_JOBS, before=before, after=after, bound=bound, limit=limit, events=events
    )
    return [job_id for (job_id,) in rows]


def first_id_at(moment: datetime) -> str:
    """Return the lowest id of a job created at this time or later."""
    return first_id(max(0, int(moment.timestamp() * 1000)))


def first_id(millis: int) -> str:
    """Return the lowest id of a job created at this Unix time in milliseconds."""
    return str(UUID(int=millis << 80))


def id_before(job_id: str) -> str:
    """Return the greatest id that is less than this one."""
    return str(UUID(int=UUID(job_id).int - 1))


def millis_of(job_id: str) -> int:
    """Return the creation time of this job as Unix time in milliseconds."""
    return UUID(job_id).int >> 80


async def find_deletable(tx: Transaction, ids: Sequence[str]) -> list[str]:
    """Return the jobs among these that no active job refers to by retry or parent."""
    return [job_id for (job_id,) in await tx.fetch(FIND_DELETABLE, ids=uuids(ids))]


async def delete_jobs(tx: Transaction, ids: Sequence[str], *, is_whole: bool = False) -> int:
    """Delete these jobs with their nodes, events, checkpoints, progress and logs; return the number of jobs.

    With `is_whole` the partitions of the period are dropped later, and with them the nodes and events.
    """
    return await tx.execute(DELETE_JOBS, ids=uuids(ids), by_rows=uuids([] if is_whole else ids))


async def prune_processes(tx: Transaction, days: float) -> int:
    """Delete processes that ended more than `days` days ago; return how many."""
    return await tx.execute(PRUNE_PROCESSES, days=days)
