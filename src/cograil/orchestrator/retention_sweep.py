"""The sweep: now and then an orchestrator deletes what is old enough, and makes partitions ahead."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import datetime, timedelta

import psycopg
import structlog

from cograil.errors import DatabaseUnavailable
from cograil.settings import RetentionSettings
from cograil.store.database import Database
from cograil.verbs import partitions
from cograil.verbs.buckets import prune as prune_buckets
from cograil.verbs.idempotency import prune as prune_records
from cograil.verbs.partitions import Missing, Reach
from cograil.verbs.retention import FIRST_ID, delete_expired, id_before, prune_processes
from cograil.verbs.schedules import prune_firings

log = structlog.get_logger("retention")

EVERY_SECONDS = 300.0
FIRST_SECONDS = 150.0  # after the start
AGAIN_SECONDS = 60.0  # while there is something to delete
SWEEP_SECONDS = 20.0  # then the next sweep goes on
PROCESS_DAYS = 1.0
BATCH_RECORDS = 1000
BATCH_BUCKETS = 10_000  # each batch reads all of them


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep deleted, and made ahead."""

    jobs: int = 0
    processes: int = 0
    records: int = 0
    made: int = 0  # partitions
    dropped: int = 0
    buckets: int = 0


class Retention:
    """Sweeps beside the orchestrator's own work, a while after the last sweep, one at a time."""

    def __init__(self, db: Database, settings: RetentionSettings) -> None:
        self._db = db
        self._settings = settings
        self._sweeping: asyncio.Task[None] | None = None
        self._due_at: float | None = None  # by the loop's clock

    def remind(self) -> None:
        """Begin a sweep if one is due; returns at once. The first is due a while after the first call."""
        now = _now()
        if self._due_at is None:
            self._due_at = now + FIRST_SECONDS
        elif now >= self._due_at and (self._sweeping is None or self._sweeping.done()):
            self._due_at = now + EVERY_SECONDS
            self._sweeping = asyncio.create_task(self._sweep(), name="retention")

    async def stop(self) -> None:
        """End the sweep at hand; what it has not committed is for the next one."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeping

    async def _sweep(self) -> None:
        try:
            swept = await sweep(self._db, self._settings.days, self._settings.period_days)
        except (DatabaseUnavailable, psycopg.Error) as error:
            log.warning("sweep failed, trying again later", error=str(error).strip())
        else:
            if swept.jobs or swept.dropped or swept.records:
                self._due_at = _now() + AGAIN_SECONDS
            if swept.jobs or swept.dropped:
                days = self._settings.days
                log.info("deleted old jobs", jobs=swept.jobs, partitions=swept.dropped, older_than_days=days)


async def sweep(db: Database, days: float, period_days: int = 0, *, seconds: float = SWEEP_SECONDS) -> Swept:
    """Delete what ended more than `days` ago, for at most about so many seconds; 0 days keeps all jobs.

    Processes that are long gone, idempotency records whose time is over and buckets that are full go with
    it. The partitions of the next periods of so many days are made; 0 makes none.
    """
    until = _now() + seconds
    async with db.transaction("retention") as tx:
        processes = await prune_processes(tx, PROCESS_DAYS)
        before = tx.now - timedelta(days=days)
    records, buckets = await _prune(db, _now() + seconds / 2)  # half of the time is for the jobs
    if not days:
        return Swept(processes=processes, records=records, buckets=buckets)
    async with db.transaction("retention") as tx:
        await prune_firings(tx, before)
    made = await make_ahead(db, period_days) if period_days else 0
    jobs, dropped = await _Sweep(db, before, until).run(period_days)
    return Swept(jobs, processes, records, made, dropped, buckets)


async def _prune(db: Database, until: float) -> tuple[int, int]:
    """How many idempotency records and buckets went; a batch of each in every transaction, one at least."""
    records = buckets = 0
    while True:
        async with db.transaction("retention") as tx:
            some, more = await prune_records(tx, BATCH_RECORDS), await prune_buckets(tx, BATCH_BUCKETS)
        records, buckets = records + some, buckets + more
        if (some < BATCH_RECORDS and more < BATCH_BUCKETS) or _now() >= until:
            return records, buckets


async def make_ahead(db: Database, period_days: int) -> int:
    """Make the partitions that are missing, each in a transaction of its own; how many.

    One that cannot be made now is tried again with the next sweep; until then, rows go to the default one.
    """
    async with db.transaction("retention") as tx:
        missing = await partitions.find_missing(tx, period_days)
    said = [await _make(db, one) for one in missing]
    return said.count("made")


async def _make(db: Database, missing: Missing) -> str:
    async with db.transaction("retention") as tx:
        said = await partitions.make(tx, missing)
    if said == "large":
        log.warning("too much is in the default partition to make others beside it", table=missing.parent)
    return said


@dataclass(frozen=True, slots=True)
class _Walk:
    """What a walk over jobs did; `is_done` when it came to its end."""

    jobs: int
    kept: int
    is_done: bool


@dataclass(frozen=True, slots=True)
class _Sweep:
    """One sweep over the jobs; it ends when its time does, or when somebody else has the turn."""

    db: Database
    before: datetime
    until: float  # by the loop's clock

    async def run(self, period_days: int) -> tuple[int, int]:
        """How many jobs were deleted and how many partitions dropped."""
        async with self.db.transaction("retention") as tx:
            reach = await partitions.survey(tx, self.before, period_days)
        jobs = await self._all_jobs(reach)
        said = [await self._drop(name) for name in reach.old]
        return jobs, said.count("dropped")

    async def _all_jobs(self, reach: Reach) -> int:
        """First the periods that go as a whole, then whatever else is old."""
        jobs = 0
        for first, until in reach.over:
            walk = await self._walk(id_before(first), until, is_whole=True)
            jobs += walk.jobs
            if not walk.is_done:  # its jobs would go by rows now, for nothing
                return jobs
            if walk.kept:
                await self._delete_leftovers(first, until)
        return jobs + (await self._walk(FIRST_ID, reach.bound)).jobs

    async def _walk(self, after: str, bound: str, *, is_whole: bool = False) -> _Walk:
        jobs = kept = 0
        while _now() < self.until:
            async with self.db.transaction("retention") as tx:
                done = await delete_expired(tx, self.before, after, bound, is_whole=is_whole)
            if done is None:
                break
            jobs, kept = jobs + done.jobs, kept + done.kept
            if done.last is None:
                return _Walk(jobs, kept, True)
            after = done.last
        return _Walk(jobs, kept, False)

    async def _delete_leftovers(self, first: str, until: str) -> None:
        """Of a period that cannot be dropped after all."""
        events = 1
        while events and _now() < self.until:
            async with self.db.transaction("retention") as tx:
                events = await partitions.delete_leftovers(tx, first, until)

    async def _drop(self, name: str) -> str:
        async with self.db.transaction("retention") as tx:
            return await partitions.drop(tx, name)


def _now() -> float:
    return asyncio.get_running_loop().time()
