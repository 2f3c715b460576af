"""Retention: finished jobs are deleted after a while, in small batches, oldest first.

Active jobs are never deleted, nor jobs that a retry or a parent connects to an active one. Nodes and events
are deleted with their jobs, or with the partition of a period (verbs/partitions.py).
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
    """The result of one batch. `kept` jobs are old enough but connected to active jobs.

    `last` is the id after which the next batch begins; None when this is the last batch.
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
    """Delete a batch of jobs that finished before this time; None when another process holds the turn.

    Only jobs between these two ids are deleted. With `is_whole` they are a period that will be dropped, and
    nodes and events are left to that. Jobs are locked before related jobs are read: a concurrent retry
    waits and then finds no job; an earlier retry is visible.
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
