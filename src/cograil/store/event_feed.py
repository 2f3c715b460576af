"""Following events as they are committed: of some jobs by their numbers, of all jobs by snapshots."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from cograil.store.array_params import uuids
from cograil.store.database import Transaction
from cograil.store.job_queries import View, event_view
from cograil.store.statements import statement

FEED_NOW = statement("feed_now")
FEED_EVENTS = statement("feed_events")
SEQS_OF_JOBS = statement("seqs_of_jobs")

FIRST_JOB = "00000000-0000-0000-0000-000000000000"
IS_PLACE = re.compile(r"(\d{1,19}):(\d{1,19}):[\d,]*").fullmatch


@dataclass(frozen=True, slots=True)
class Place:
    """How far one has followed: all that `since` sees, and of what `until` sees beyond that, the events up to
    this one."""

    since: str
    until: str = ""
    job_id: str = FIRST_JOB
    seq: int = 0

    def __str__(self) -> str:
        return f"{self.since} {self.until} {self.job_id} {self.seq}" if self.until else self.since

    @property
    def low(self) -> int:
        """Before this transaction nothing is new."""
        return _bounds(self.since)[0]

    def within(self, until: str) -> Place:
        """The same, on the way to what this snapshot sees, if it was on no way yet."""
        return self if self.until else replace(self, until=until)

    def at(self, event: View) -> Place:
        """After this event of the same stretch."""
        return replace(self, job_id=event["job_id"], seq=event["seq"])

    def is_before(self, snapshot: str) -> bool:
        """Whether this snapshot was taken later than the one up to which all was followed.

        Both bounds of a snapshot only grow; between equal ones what was in progress only ends.
        """
        return _age(self.since) < _age(snapshot)

    @property
    def earlier(self) -> Place:
        """A shorter name of a place before this one: some events come again from there, none is missed."""
        return Place(f"{self.low}:{self.low}:")


def read_place(text: str) -> Place | None:
    """The place that was written so, or None."""
    since, *rest = text.split(" ")
    if not IS_PLACE(since) or len(rest) not in (0, 3):
        return None
    if not rest:
        return Place(since)
    return Place(since, rest[0], rest[1], int(rest[2])) if IS_PLACE(rest[0]) else None


def _bounds(snapshot: str) -> tuple[int, int]:
    """All transactions below the first are visible, none from the second on."""
    low, high, _ = snapshot.split(":")
    return int(low), int(high)


def _age(snapshot: str) -> tuple[int, int, int]:
    low, high = _bounds(snapshot)
    return high, low, -snapshot.count(",") - (not snapshot.endswith(":"))


async def feed_now(tx: Transaction) -> str:
    """The snapshot of this moment."""
    snapshot: str = (await tx.fetch(FEED_NOW))[0][0]
    return snapshot


async def feed_events(tx: Transaction, tenant: str, place: Place, limit: int) -> list[View]:
    """The next events of all jobs after a place on its way to a snapshot; those of each job in order."""
    since_low, since_high = _bounds(place.since)
    until_low, until_high = _bounds(place.until)
    rows = await tx.fetch(
        FEED_EVENTS,
        tenant=tenant,
        since=place.since,
        since_low=since_low,
        since_high=since_high,
        until=place.until,
        until_low=until_low,
        until_high=until_high,
        job=place.job_id,
        seq=place.seq,
        limit=limit,
    )
    return [event_view(row[0], row[1:]) for row in rows]


async def seqs_of_jobs(tx: Transaction, tenant: str, ids: Collection[str]) -> dict[str, tuple[int, bool]]:
    """The number of the last event of each of these jobs, and whether it has ended."""
    rows = await tx.fetch(SEQS_OF_JOBS, tenant=tenant, ids=uuids(list(ids)))
    return {job_id: (seq, is_over) for job_id, seq, is_over in rows}
