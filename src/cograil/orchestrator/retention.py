"""The sweep: now and then an orchestrator deletes what is old enough."""

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
from cograil.verbs.idempotency import prune as prune_records
from cograil.verbs.retention import FIRST_ID, delete_expired, prune_processes

log = structlog.get_logger("retention")

EVERY_SECONDS = 60.0
SWEEP_SECONDS = 20.0  # then the next sweep goes on
PROCESS_DAYS = 1.0


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep deleted."""

    jobs: int = 0
    processes: int = 0
    records: int = 0


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
            self._due_at = now + EVERY_SECONDS
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
            swept = await sweep(self._db, self._settings.days)
        except (DatabaseUnavailable, psycopg.Error) as error:
            log.warning("sweep failed, trying again later", error=str(error).strip())
        else:
            if swept.jobs:
                log.info("deleted old jobs", jobs=swept.jobs, older_than_days=self._settings.days)


async def sweep(db: Database, days: float, *, seconds: float = SWEEP_SECONDS) -> Swept:
    """Delete what ended more than `days` ago, for at most about so many seconds; 0 days keeps all jobs.

    Processes that are long gone and idempotency records whose time is over go with it.
    """
    until = _now() + seconds
    async with db.transaction("retention") as tx:
        processes = await prune_processes(tx, PROCESS_DAYS)
        records = await prune_records(tx)
        before = tx.now - timedelta(days=days)
    return Swept(await _delete_jobs(db, before, until) if days else 0, processes, records)


async def _delete_jobs(db: Database, before: datetime, until: float) -> int:
    jobs, after = 0, FIRST_ID
    while _now() < until:
        async with db.transaction("retention") as tx:
            done = await delete_expired(tx, before, after)
        if done is None:
            break
        jobs += done.jobs
        if done.last is None:
            break
        after = done.last
    return jobs


def _now() -> float:
    return asyncio.get_running_loop().time()
