"""The retention sweep: an orchestrator deletes expired jobs and creates partitions ahead of time."""

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
from cograil.verbs.partitions import MissingPartition, Reach
from cograil.verbs.retention import FIRST_ID, delete_expired, id_before, prune_processes
from cograil.verbs.schedules import prune_firings

log = structlog.get_logger("retention")

EVERY_SECONDS = 300.0
FIRST_SECONDS = 150.0  # after the start
AGAIN_SECONDS = 60.0  # while there is something to delete
SWEEP_SECONDS = 20.0  # the next sweep continues after this time
PROCESS_DAYS = 1.0
BATCH_RECORDS = 1000
BATCH_BUCKETS = 10_000  # each batch scans all buckets


@dataclass(frozen=True, slots=True)
class Swept:
    """How much one sweep deleted and created."""

    jobs: int = 0
    processes: int = 0
    records: int = 0
    created: int = 0  # partitions
    dropped: int = 0  # partitions
    buckets: int = 0


class RetentionSweeper:
    """Runs sweeps beside the orchestrator loop, one at a time, with a pause after each."""

    def __init__(self, db: Database, settings: RetentionSettings) -> None:
        self._db = db
        self._settings = settings
        self._sweeping: asyncio.Task[None] | None = None
        self._due_at: float | None = None  # loop time

    def start_if_due(self) -> None:
        """Start a sweep in the background if one is due. The first is due a while after the first call."""
        now = _now()
        if self._due_at is None:
            self._due_at = now + FIRST_SECONDS
        elif now >= self._due_at and (self._sweeping is None or self._sweeping.done()):
            self._due_at = now + EVERY_SECONDS
            self._sweeping = asyncio.create_task(self._sweep(), name="retention")

    async def stop(self) -> None:
        """Cancel the running sweep. The next sweep repeats what was not committed."""
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
    """Delete jobs that ended more than `days` ago, for about `seconds` at most; 0 days keeps all jobs.

    It also deletes rows of stopped processes, expired idempotency records and full buckets, and creates the
    partitions of the next periods of `period_days` days; 0 creates none.
    """
    until = _now() + seconds
    async with db.transaction("retention") as tx:
        processes = await prune_processes(tx, PROCESS_DAYS)
        before = tx.now - timedelta(days=days)
    records, buckets = await _prune(db, _now() + seconds / 2)  # half of the time is left for the jobs
    if not days:
        return Swept(processes=processes, records=records, buckets=buckets)
    async with db.transaction("retention") as tx:
        await prune_firings(tx, before)
    created = await create_ahead(db, period_days) if period_days else 0
    jobs, dropped = await _Sweep(db, before, until).run(period_days)
    return Swept(jobs, processes, records, created, dropped, buckets)


async def _prune(db: Database, until: float) -> tuple[int, int]:
    """Delete expired records and full buckets in batches, at least one; return how many of each."""
    records = buckets = 0
    while True:
        async with db.transaction("retention") as tx:
            old_records = await prune_records(tx, BATCH_RECORDS)
            full_buckets = await prune_buckets(tx, BATCH_BUCKETS)
        records, buckets = records + old_records, buckets + full_buckets
        if (old_records < BATCH_RECORDS and full_buckets < BATCH_BUCKETS) or _now() >= until:
            return records, buckets


async def create_ahead(db: Database, period_days: int) -> int:
    """Create missing partitions, each in its own transaction; return how many.

    The next sweep retries one that cannot be created now; until then its rows go to the default partition.
    """
    async with db.transaction("retention") as tx:
        missing = await partitions.find_missing(tx, period_days)
    results = [await _create(db, partition) for partition in missing]
    return results.count("made")


async def _create(db: Database, missing: MissingPartition) -> str:
    async with db.transaction("retention") as tx:
        result = await partitions.make(tx, missing)
    if result == "large":
        log.warning("too many rows in the default partition to create others", table=missing.parent)
    return result


@dataclass(frozen=True, slots=True)
class _Scan:
    """The result of a scan over jobs; `is_done` when it reached the end."""

    jobs: int
    kept: int
    is_done: bool


@dataclass(frozen=True, slots=True)
class _Sweep:
    """One sweep over the jobs. It ends when its time is up, or when another process sweeps."""

    db: Database
    before: datetime
    until: float  # loop time

    async def run(self, period_days: int) -> tuple[int, int]:
        """Delete expired jobs and drop empty partitions; return how many of each."""
        async with self.db.transaction("retention") as tx:
            reach = await partitions.survey(tx, self.before, period_days)
        jobs = await self._delete_jobs(reach)
        results = [await self._drop(name) for name in reach.old]
        return jobs, results.count("dropped")

    async def _delete_jobs(self, reach: Reach) -> int:
        """Delete the periods that expire as a whole first, then the other expired jobs."""
        jobs = 0
        for first, until in reach.over:
            scan = await self._scan(id_before(first), until, is_whole=True)
            jobs += scan.jobs
            if not scan.is_done:  # deleting its jobs row by row now would be wasted
                return jobs
            if scan.kept:
                await self._delete_leftovers(first, until)
        return jobs + (await self._scan(FIRST_ID, reach.bound)).jobs

    async def _scan(self, after: str, bound: str, *, is_whole: bool = False) -> _Scan:
        jobs = kept = 0
        while _now() < self.until:
            async with self.db.transaction("retention") as tx:
                batch = await delete_expired(tx, self.before, after, bound, is_whole=is_whole)
            if batch is None:
                break
            jobs, kept = jobs + batch.jobs, kept + batch.kept
            if batch.last is None:
                return _Scan(jobs, kept, True)
            after = batch.last
        return _Scan(jobs, kept, False)

    async def _delete_leftovers(self, first: str, until: str) -> None:
        """Delete nodes and events of a period that cannot be dropped because it keeps some jobs."""
        events = 1
        while events and _now() < self.until:
            async with self.db.transaction("retention") as tx:
                events = await partitions.delete_leftovers(tx, first, until)

    async def _drop(self, name: str) -> str:
        async with self.db.transaction("retention") as tx:
            return await partitions.drop(tx, name)


def _now() -> float:
    return asyncio.get_running_loop().time()
