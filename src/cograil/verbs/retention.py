"""Retention: finished jobs are kept for a while and then deleted, in small batches, oldest first.

What is active is never touched, nor is what a retry or a parent ties to something active.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cograil.store import retention as store
from cograil.store.database import Transaction
from cograil.store.retention import FIRST_ID, prune_processes

__all__ = ["FIRST_ID", "Deleted", "delete_expired", "prune_processes"]

BATCH_JOBS = 1000
BATCH_EVENTS = 20_000  # jobs.seq counts the events of a job, and its nodes go with these
TURN = "cograil retention"


@dataclass(frozen=True, slots=True)
class Deleted:
    """What one batch did. `last` is where the next one begins; None when there is no next one."""

    jobs: int
    last: str | None


async def delete_expired(
    tx: Transaction, before: datetime, after: str = FIRST_ID, *, limit: int = BATCH_JOBS
) -> Deleted | None:
    """Delete a batch of jobs that finished before this moment; None when somebody else is at it.

    The jobs are locked before their families are looked at: a retry that comes in between waits, and then
    finds nothing; one that came before is seen.
    """
    if not await store.try_turn(tx, TURN):
        return None
    ids = await store.lock_expired_jobs(tx, before, after, limit=limit, events=BATCH_EVENTS)
    if not ids:
        return Deleted(0, None)
    deletable = await store.find_deletable(tx, ids)
    jobs = await store.delete_jobs(tx, deletable) if deletable else 0
    return Deleted(jobs, ids[-1])
