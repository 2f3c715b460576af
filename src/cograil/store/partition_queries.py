"""The partitions of nodes and events: each holds the jobs that were created in one period."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cograil.store.database import Transaction
from cograil.store.statements import statement

LIST_PARTITIONS = statement("list_partitions")
MAKE_PARTITION = statement("make_partition")
DROP_PARTITION = statement("drop_partition")
HAS_STAYING_JOBS = statement("has_staying_jobs")
DELETE_LEFTOVERS = statement("delete_leftovers")

PARENTS = ("nodes", "events")


@dataclass(frozen=True, slots=True)
class Partition:
    """One table for the ids from `first` up to, and without, `until`."""

    parent: str
    name: str
    first: str
    until: str


async def list_partitions(tx: Transaction) -> list[Partition]:
    """Return the partitions of periods in the order of time, without the default ones."""
    return [Partition(*row) for row in await tx.fetch(LIST_PARTITIONS)]


async def make_partition(
    tx: Transaction, parent: str, first: str, until: str, suffix: str, *, most_bytes: int
) -> str:
    """Create a partition. Returns `made`; or `locked`, `rows` (the default partition has rows of this
    period), `large` (it would take too long).
    """
    params = {"parent": parent, "first": first, "until": until, "suffix": suffix, "most_bytes": most_bytes}
    return str(await tx.fetch_value(MAKE_PARTITION, **params))


async def drop_partition(tx: Transaction, name: str) -> str:
    """Drop a partition. Returns `dropped`; or `locked`, `jobs` (jobs of its period still exist), `gone`."""
    return str(await tx.fetch_value(DROP_PARTITION, name=name))


async def has_staying_jobs(tx: Transaction, first: str, until: str, before: datetime) -> bool:
    """Return whether a job of this period is active, or ended at this time or later."""
    return bool(await tx.fetch_value(HAS_STAYING_JOBS, first=first, until=until, before=before))


async def delete_leftovers(tx: Transaction, first: str, until: str, *, limit: int) -> int:
    """Delete the rows of up to `limit` deleted jobs of this period; return the number of events."""
    return await tx.execute(DELETE_LEFTOVERS, first=first, until=until, limit=limit)
