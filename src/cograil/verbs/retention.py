"""Retention: finished jobs are kept for a while and then deleted, in small batches, oldest first.

What is active is never touched, nor is what a retry or a parent ties to something active. Nodes and events go
with their jobs, or with the partition of a period of which nothing stays: verbs/partitions.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cograil.store import retention_queries as store
from cograil.store.database import Transaction
from cograil.store.retention_queries import FIRST_ID, first_id_at, id_before, prune_processes
from cograil.verbs.partitions import TURN

__all__ = ["FIRST_ID", "Deleted", "delete_expired", "id_before", "prune_processes"]

BATCH_JOBS = 1000
BATCH_EVENTS = 20_000  # jobs.seq counts the events of a job, and its nodes go with these
ANY_EVENTS = 2**62


@dataclass(frozen=True, slots=True)
class Deleted:
    """What one batch did: `kept` are old enough but tied to what is active.

    `last` is where the next one begins; None when this is the last one.
    """

    jobs: int
    last: str | None
    kept: int = 0


async def delete_expired(
    tx: Transaction,
    before: datetime,
    after: str = FIRST_ID,
    bound: str | None = None,
    *,
    is_whole: bool = False,
    limit: int = BATCH_JOBS,
) -> Deleted | None:
    """Delete a batch of jobs that finished before this moment; None when somebody else is at it.

    Only those between these two ids; `is_whole` when they are a period that will be dropped, so that nodes
    and events are left to that. The jobs are locked before their families are looked at: a retry that comes
    in between waits, and then finds nothing; one that came before is seen.
    """
    if not await store.try_turn(tx, TURN):
        return None
    events = ANY_EVENTS if is_whole else BATCH_EVENTS
    bound = bound or first_id_at(before)
    ids = await store.lock_expired_jobs(tx, before, after, bound, limit=limit, events=events)
    if not ids:
        return Deleted(0, None)
    deletable = await store.find_deletable(tx, ids)
    jobs = await store.delete_jobs(tx, deletable, is_whole=is_whole) if deletable else 0
    return Deleted(jobs, ids[-1], len(ids) - len(deletable))
