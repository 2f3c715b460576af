"""Periods: which partitions of nodes and events are to be made ahead, and which are over.

A period is a number of days, counted from 1970, and holds the jobs that were born in it. When it is older than
the retention and nothing of it stays, its jobs go without their nodes and events, and then these go at once,
with the partition. A job of it that stays is enough: then all of it goes by rows.
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
AHEAD = 2  # the period that runs, and the next
# What is read under the lock when one is made. All of a small table is read in a moment.
MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class MissingPartition:
    """A partition that should be there."""

    parent: str
    first: str
    until: str

    @property
    def suffix(self) -> str:
        """Its part of the name: the day it begins."""
        return f"{datetime.fromtimestamp(millis_of(self.first) / 1000, UTC):%Y%m%d}"


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a sweep goes.

    Jobs from `bound` on stay. `over` are periods of which all goes, as (first, until). `old` are the
    partitions that may be dropped as soon as their jobs are gone.
    """

    bound: str
    over: tuple[tuple[str, str], ...] = ()
    old: tuple[str, ...] = ()


async def find_missing(tx: Transaction, days: int) -> list[MissingPartition]:
    """What is to be made now, for periods of this many days."""
    existing = await store.list_partitions(tx)
    now = int(tx.now.timestamp() * 1000)
    return [missing for parent in PARENTS for missing in _missing(parent, existing, now, days * DAY_MILLIS)]


def _missing(parent: str, existing: Sequence[Partition], now: int, length: int) -> Iterator[MissingPartition]:
    """Begin where the last one ends: with other days than before, one period may be shorter."""
    edge = max(
        (millis_of(partition.until) for partition in existing if partition.parent == parent), default=0
    )
    begun = now // length * length
    for number in range(AHEAD):
        first, until = begun + number * length, begun + (number + 1) * length
        if edge < until:
            yield MissingPartition(parent, first_id(max(first, edge)), first_id(until))


async def make(tx: Transaction, missing: MissingPartition) -> str:
    """Make it, or say why not: as the store does, or `busy` when it is somebody else's turn."""
    if not await try_turn(tx, TURN):
        return "busy"
    return await store.make_partition(
        tx, missing.parent, missing.first, missing.until, missing.suffix, most_bytes=MAX_BYTES
    )


async def survey(tx: Transaction, before: datetime, days: int) -> Reach:
    """What may go of what finished before this moment, with periods of this many days.

    A period that is not over yet is waited for, or it would be gone by rows before it could be dropped; but
    not one that is longer than we want them now.
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
    """The periods that have a partition of each table; without one of them rows would stay in the default."""
    first, *others = ({(p.first, p.until) for p in partitions if p.parent == parent} for parent in PARENTS)
    yield from sorted(first.intersection(*others))


async def drop(tx: Transaction, name: str) -> str:
    """Drop it, or say why not: as the store does, or `busy` when it is somebody else's turn."""
    return await store.drop_partition(tx, name) if await try_turn(tx, TURN) else "busy"


async def delete_leftovers(tx: Transaction, first: str, until: str, *, limit: int = LEFTOVER_JOBS) -> int:
    """Delete what jobs of this period left when they went without their rows, of some; how many events."""
    if not await try_turn(tx, TURN):
        return 0
    return await store.delete_leftovers(tx, first, until, limit=limit)
