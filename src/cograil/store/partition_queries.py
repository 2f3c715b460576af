"""The partitions of nodes and events: each is for the jobs that were born in one period."""

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
    """Those for a period, in the order of time; the default ones are not among them."""
    return [Partition(*row) for row in await tx.fetch(LIST_PARTITIONS)]


async def make_partition(
    tx: Transaction, parent: str, first: str, until: str, suffix: str, *, most_bytes: int
) -> str:
    """`made`; or `locked`, `rows` (the default one has some of this period), `large` (it takes too long)."""
    params = {"parent": parent, "first": first, "until": until, "suffix": suffix, "most_bytes": most_bytes}
    return str(await tx.fetch_value(MAKE_PARTITION, **params))


async def drop_partition(tx: Transaction, name: str) -> str:
    """`dropped`; or `locked`, `jobs` (some of its period are still there), `gone`."""
    return str(await tx.fetch_value(DROP_PARTITION, name=name))


async def has_staying_jobs(tx: Transaction, first: str, until: str, before: datetime) -> bool:
    """Whether a job born in this period is active, or ended at this moment or later."""
    return bool(await tx.fetch_value(HAS_STAYING_JOBS, first=first, until=until, before=before))


async def delete_leftovers(tx: Transaction, first: str, until: str, *, limit: int) -> int:
    """Delete what is left of up to `limit` jobs of this period that are gone; how many events that were."""
    return await tx.execute(DELETE_LEFTOVERS, first=first, until=until, limit=limit)
