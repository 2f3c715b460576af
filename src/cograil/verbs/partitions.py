"""Partitions of nodes and events: which to create ahead, and which to drop.

A period is a number of days, counted from 1970, and holds the jobs that were created in it. When it is
older than the retention and none of its jobs is kept, its jobs are deleted without their nodes and events,
which go with the partition. One kept job is enough to delete the period by rows instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cograil.store import partition_queries as store
from cograil.store.database import Transaction
from cograil.store.partition_queries import PARENTS, Partition
from cograil.store.retention_queries import first_id, first_id_at, millis_of, try_turn

TURN = "cograil retention"
DAY_MILLIS = 86_400_000
LEFTOVER_JOBS = 500
AHEAD = 2  # the current period and the next
# Rows read under the lock that creating a partition takes. A small table is read in a moment.
MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class MissingPartition:
    """A partition that does not exist yet."""

    parent: str
    first: str
    until: str

    @property
    def suffix(self) -> str:
        """Return its part of the name: the day on which it begins."""
        return f"{datetime.fromtimestamp(millis_of(self.first) / 1000, UTC):%Y%m%d}"


@dataclass(frozen=True, slots=True)
class Reach:
    """The range of a sweep.

    Jobs from `bound` on stay. `over` are the periods to delete completely, as (first, until). `old` are the
    partitions to drop when their jobs are deleted.
    """

    bound: str
    over: tuple[tuple[str, str], ...] = ()
    old: tuple[str, ...] = ()


async def find_missing(tx: Transaction, days: int) -> list[MissingPartition]:
    """Return the partitions to create now, for periods of this many days."""
    existing = await store.list_partitions(tx)
    now = int(tx.now.timestamp() * 1000)
    return [missing for parent in PARENTS for missing in _missing(parent, existing, now, days * DAY_MILLIS)]


def _missing(parent: str, existing: Sequence[Partition], now: int, length: int) -> Iterator[MissingPartition]:
    """Start where the last partition ends. After a change of the period length, one period may be shorter."""
    edge = max(
        (millis_of(partition.until) for partition in existing if partition.parent == parent), default=0
    )
    begun = now // length * length
    for number in range(AHEAD):
        first, until = begun + number * length, begun + (number + 1) * length
        if edge < until:
            yield MissingPartition(parent, first_id(max(first, edge)), first_id(until))


async def make(tx: Transaction, missing: MissingPartition) -> str:
    """Create a partition and return its outcome as the store does, or `busy` when another process holds the
    turn.
    """
    if not await try_turn(tx, TURN):
        return "busy"
    return await store.make_partition(
        tx, missing.parent, missing.first, missing.until, missing.suffix, most_bytes=MAX_BYTES
    )


async def survey(tx: Transaction, before: datetime, days: int) -> Reach:
    """Return what to delete of the jobs that finished before this time, with periods of this many days.

    A period that has not ended yet is not deleted by rows, so that it can be dropped later; unless it is
    longer than the configured length.
    """
    existing = await store.list_partitions(tx)
    bound = first_id_at(before)
    for partition in existing:
        is_wanted = millis_of(partition.until) - millis_of(partition.first) <= days * DAY_MILLIS
        if partition.first < bound < partition.until and is_wanted:
            bound = partition.first
    old = [partition for partition in existing if partition.until <= bound]
    over = [period for period in _whole(old) if not await store.has_staying_jobs(tx, *period, before)]
    return Reach(bound, tuple(over), tuple(partition.name for partition in old))


def _whole(partitions: Sequence[Partition]) -> Iterator[tuple[str, str]]:
    """Yield the periods with a partition of each table; without one of them, rows stay in the default
    partition.
    """
    first, *others = ({(p.first, p.until) for p in partitions if p.parent == parent} for parent in PARENTS)
    yield from sorted(first.intersection(*others))


async def drop(tx: Transaction, name: str) -> str:
    """Drop a partition and return its outcome as the store does, or `busy` when another process holds the
    turn.
    """
    return await store.drop_partition(tx, name) if await try_turn(tx, TURN) else "busy"


async def delete_leftovers(tx: Transaction, first: str, until: str, *, limit: int = LEFTOVER_JOBS) -> int:
    """Delete events that jobs of this period left behind, up to `limit`; return how many."""
    if not await try_turn(tx, TURN):
        return 0
    return await store.delete_leftovers(tx, first, until, limit=limit)
