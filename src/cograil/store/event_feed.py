"""The event feed: events in commit order, of some jobs by their seq, of all jobs by snapshots."""

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
IS_SNAPSHOT = re.compile(r"(\d{1,19}):(\d{1,19}):[\d,]*").fullmatch


@dataclass(frozen=True, slots=True)
class FeedCursor:
    """A position in the feed: everything visible to snapshot `since`, and of what `until` adds to it, the events
    up to this one."""

    since: str
    until: str = ""
    job_id: str = FIRST_JOB
    seq: int = 0

    def __str__(self) -> str:
        return f"{self.since} {self.until} {self.job_id} {self.seq}" if self.until else self.since

    @property
    def low(self) -> int:
        """Return the transaction id before which every event was read."""
        return _bounds(self.since)[0]

    def within(self, until: str) -> FeedCursor:
        """Return this cursor with `until` as its target snapshot, unless it has one."""
        return self if self.until else replace(self, until=until)

    def at(self, event: View) -> FeedCursor:
        """Return the cursor after this event, with the same snapshots."""
        return replace(self, job_id=event["job_id"], seq=event["seq"])

    def is_before(self, snapshot: str) -> bool:
        """Return whether this snapshot is later than `since`.

        Both bounds of a snapshot only grow; with equal bounds the set of running transactions only shrinks.
        """
        return _age(self.since) < _age(snapshot)

    @property
    def earlier(self) -> FeedCursor:
        """Return a shorter cursor at or before this one: some events repeat from there, none is missed."""
        return FeedCursor(f"{self.low}:{self.low}:")


def parse_feed_cursor(text: str) -> FeedCursor | None:
    """Parse the text form of a cursor; None when it is not one."""
    since, *rest = text.split(" ")
    if not IS_SNAPSHOT(since) or len(rest) not in (0, 3):
        return None
    if not rest:
        return FeedCursor(since)
    return FeedCursor(since, rest[0], rest[1], int(rest[2])) if IS_SNAPSHOT(rest[0]) else None


def _bounds(snapshot: str) -> tuple[int, int]:
    """Return the bounds: transactions below the first are visible, those from the second on are not."""
    low, high, _ = snapshot.split(":")
    return int(low), int(high)


def _age(snapshot: str) -> tuple[int, int, int]:
    low, high = _bounds(snapshot)
    return high, low, -snapshot.count(",") - (not snapshot.endswith(":"))


async def feed_now(tx: Transaction) -> str:
    """Return the current snapshot."""
    ((snapshot,),) = await tx.fetch(FEED_NOW)
    return str(snapshot)


async def feed_events(tx: Transaction, tenant: str, cursor: FeedCursor, limit: int) -> list[View]:
    """Return the next events of all jobs between a cursor and its target snapshot; those of a job are in order."""
    since_low, since_high = _bounds(cursor.since)
    until_low, until_high = _bounds(cursor.until)
    rows = await tx.fetch(
        FEED_EVENTS,
        tenant=tenant,
        since=cursor.since,
        since_low=since_low,
        since_high=since_high,
        until=cursor.until,
        until_low=until_low,
        until_high=until_high,
        job=cursor.job_id,
        seq=cursor.seq,
        limit=limit,
    )
    return [event_view(job_id, event) for job_id, *event in rows]


async def seqs_of_jobs(tx: Transaction, tenant: str, ids: Collection[str]) -> dict[str, tuple[int, bool]]:
    """Return the seq of the last event of each of these jobs, and whether it has ended."""
    rows = await tx.fetch(SEQS_OF_JOBS, tenant=tenant, ids=uuids(list(ids)))
    return {job_id: (seq, is_over) for job_id, seq, is_over in rows}
