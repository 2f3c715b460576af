"""What is deleted when it is old: finished jobs with all that is theirs, and processes that ended."""

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
    """Whether it is our turn at what is done by one at a time; then it is until the transaction ends."""
    return bool((await tx.fetch(TRY_TURN, name=name))[0][0])


async def lock_expired_jobs(
    tx: Transaction, before: datetime, after: str, bound: str, *, limit: int, events: int
) -> list[str]:
    """Jobs that finished before this moment, between these two ids; locked, oldest first."""
    rows = await tx.fetch(
        LOCK_EXPIRED_JOBS, before=before, after=after, bound=bound, limit=limit, events=events
    )
    return [row[0] for row in rows]


def first_id_at(moment: datetime) -> str:
    """The least id that a job made at this moment can have: nothing finishes before it is made."""
    return first_id(int(moment.timestamp() * 1000))


def first_id(millis: int) -> str:
    """The least id of a job made so many milliseconds after 1970 began."""
    return str(UUID(int=millis << 80))


def id_before(job_id: str) -> str:
    """The greatest id that is less than this one."""
    return str(UUID(int=UUID(job_id).int - 1))


def millis_of(job_id: str) -> int:
    """When this job was made, in milliseconds after 1970 began."""
    return UUID(job_id).int >> 80


async def find_deletable(tx: Transaction, ids: Sequence[str]) -> list[str]:
    """Of these jobs those that are tied to no active one by retries or parents."""
    return [row[0] for row in await tx.fetch(FIND_DELETABLE, ids=uuids(ids))]


async def delete_jobs(tx: Transaction, ids: Sequence[str], *, is_whole: bool = False) -> int:
    """Delete these jobs, their nodes, events, checkpoints, progress and logs; how many there were.

    `is_whole` when the whole period will be dropped: nodes and events are left to that.
    """
    return await tx.execute(DELETE_JOBS, ids=uuids(ids), by_rows=uuids([] if is_whole else ids))


async def prune_processes(tx: Transaction, days: float) -> int:
    """Forget processes that ended more than so many days ago; how many."""
    return await tx.execute(PRUNE_PROCESSES, days=days)
