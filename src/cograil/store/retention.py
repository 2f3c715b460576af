"""What is deleted when it is old: finished jobs with all that is theirs, and processes that ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from cograil.store.columns import uuids
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
    tx: Transaction, before: datetime, after: str, *, limit: int, events: int
) -> list[str]:
    """Jobs that finished before this moment, beginning after this id; locked, oldest first."""
    rows = await tx.fetch(
        LOCK_EXPIRED_JOBS, before=before, after=after, bound=first_id_at(before), limit=limit, events=events
    )
    return [row[0] for row in rows]


def first_id_at(moment: datetime) -> str:
    """The least id that a job made at this moment can have: nothing finishes before it is made."""
    return str(UUID(int=int(moment.timestamp() * 1000) << 80))


async def find_deletable(tx: Transaction, ids: Sequence[str]) -> list[str]:
    """Of these jobs those that are tied to no active one by retries or parents."""
    return [row[0] for row in await tx.fetch(FIND_DELETABLE, ids=uuids(ids))]


async def delete_jobs(tx: Transaction, ids: Sequence[str]) -> int:
    """Delete these jobs, their nodes, events, checkpoints, progress and logs; how many there were."""
    return await tx.execute(DELETE_JOBS, ids=uuids(ids))


async def prune_processes(tx: Transaction, days: float) -> int:
    """Forget processes that ended more than so many days ago; how many."""
    return await tx.execute(PRUNE_PROCESSES, days=days)
