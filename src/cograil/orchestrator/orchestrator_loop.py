"""The orchestrator loop: advance jobs with input, then sleep until a notification or the next due time."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Sequence
from datetime import datetime

import psycopg
import structlog

from cograil import metrics
from cograil.errors import DatabaseUnavailable
from cograil.model.process_facts import process_facts
from cograil.orchestrator.retention_sweep import RetentionSweeper
from cograil.settings import Settings
from cograil.store.database import Database
from cograil.store.limit_queries import HeldKey
from cograil.store.listener import PING, Listener
from cograil.store.outage_errors import is_out_of_reach
from cograil.store.write_batch import HELD_NEWS, NEWS_CHANNEL
from cograil.verbs import limits, tasks
from cograil.verbs.advance import EngineContext, Pass, advance_due, advance_one, due_jobs, rehearse
from cograil.verbs.job_cache import JobCache

log = structlog.get_logger("orchestrator")

# A worker ends its own overdue attempts and gives the handler some seconds to stop. After this grace period
# the orchestrator ends those of workers that cannot.
DEADLINE_GRACE_SECONDS = 10.0
RETRY_SECONDS = 0.5
BUSY_SECONDS = 0.05  # another orchestrator holds the due jobs
FALLBACK_POLL_SECONDS = 1.0
QUARANTINE_SECONDS = 30.0
EXTRA_PASSES = 2
FIRST_BATCH = 300  # small, so that workers get tasks soon; it grows while passes are full


# Errors of the database or the network. The pass is repeated; no job is suspected.
TRANSIENT = (
    DatabaseUnavailable,
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.IdleInTransactionSessionTimeout,
)


class Orchestrator:
    """One orchestrator process."""

    def __init__(
        self,
        db: Database,
        settings: Settings,
        engine_context: EngineContext,
        name: str,
        *,
        caches_jobs: bool = True,
    ) -> None:
        self.db = db
        self.settings = settings
        self.engine_context = engine_context
        self.engine_context.job_cache = JobCache() if caches_jobs else None  # None for bench.memory
        self.name = name
        self.process_id: int | None = None
        self.is_ready = False
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._listener = Listener(db.direct, [NEWS_CHANNEL, PING], self._on_notify)
        self._tick_at = 0.0
        self._wake_at: float | None = None  # loop time
        self._got_ping = True
        self._notify_broken = False
        self._extra_passes: set[asyncio.Task[None]] = set()
        self._retention = RetentionSweeper(db, settings.retention)
        self._batch = min(FIRST_BATCH, settings.orchestrator.batch)
        self._has_limit_work = False  # a limit may have a free slot
        self._limits_due_at = math.inf  # loop time at which a rate admits the next entry
        self._rescue_from = 0.0  # loop time from which a silent worker counts as dead
        self._epoch = 0
        self._quarantine: dict[
            str, float
        ] = {}  # jobs that cannot be advanced, and the end of their quarantine

    def stop(self) -> None:
        """Make `run` return after the current pass."""
        self._stop.set()
        self._wake.set()

    async def run(self) -> None:
        """Advance jobs until stopped. The error of a pass is logged, and the next pass tries again."""
        await self._register_with_retry()
        await self._listener.start()
        await self._rehearse()
        self.is_ready = True
        try:
            while not self._stop.is_set():
                await self._once()
        finally:
            self.is_ready = False
            await asyncio.gather(*self._extra_passes)
            await self._retention.stop()
            await self._listener.stop()
            with contextlib.suppress(Exception):
                await self._leave()

    async def _rehearse(self) -> None:
        """Prepare one connection for each concurrent pass. An error is only logged: the first pass meets it again."""
        rehearsals = [self._rehearse_connection() for _ in range(1 + EXTRA_PASSES)]
        for error in await asyncio.gather(*rehearsals, return_exceptions=True):
            if error is not None:
                log.info("rehearsal failed", error=str(error).strip(), orchestrator=self.name)

    async def _rehearse_connection(self) -> None:
        async with self.db.transaction("rehearse") as tx:
            await rehearse(tx)

    async def _once(self) -> None:
        try:
            await self._pass()
        except TRANSIENT as error:
            log.warning("pass failed, trying again", error=str(error).strip(), orchestrator=self.name)
            if is_out_of_reach(error):
                self._on_outage()
            await self._sleep(RETRY_SECONDS)
        except Exception:
            log.exception("pass failed", orchestrator=self.name)
            await self._sleep(RETRY_SECONDS)
            await self._isolate_bad_job()

    def _on_outage(self) -> None:
        """Postpone rescues, and clear the cache.

        Silent workers may only be cut off from the database, and the database may return an earlier state.
        """
        self._rescue_from = self._now() + self.settings.lease.seconds
        if self.engine_context.job_cache is not None:
            self.engine_context.job_cache.clear()

    async def _isolate_bad_job(self) -> None:
        """Advance the jobs of the failed pass one by one; quarantine those that fail.

        The jobs are listed by id only, so a job that cannot even be loaded is quarantined too.
        """
        try:
            async with self.db.transaction("isolate") as tx:
                due = await due_jobs(tx, self.settings.orchestrator.batch, self._quarantined())
        except (DatabaseUnavailable, psycopg.Error) as error:
            log.warning("cannot isolate the bad job", error=str(error).strip(), orchestrator=self.name)
            return
        for job_id in due:
            try:
                async with self.db.transaction("advance") as tx:
                    await advance_one(tx, self.engine_context, job_id)
            except TRANSIENT:
                return  # not an error of this job; the next pass tries again
            except Exception:
                self._quarantine[job_id] = self._now() + QUARANTINE_SECONDS
                log.exception("job quarantined", job_id=job_id, orchestrator=self.name)

    def _quarantined(self) -> list[str]:
        now = self._now()
        self._quarantine = {job_id: until for job_id, until in self._quarantine.items() if until > now}
        return list(self._quarantine)

    async def _pass(self) -> None:
        """Tick when it is due, advance due jobs, and sleep when nothing is left."""
        was_woken = self._wake.is_set()
        self._wake.clear()
        if self._has_limit_work or self._now() >= self._limits_due_at:
            await self._admit()
        if self._now() >= self._tick_at:
            has_work = await self._tick()
            if not (has_work or was_woken):
                await self._sleep(self._pause(Pass(0)))
                return
        done = await self._advance()
        if self._has_limit_work:
            await self._admit()
        if done.is_full:
            self._start_extra_pass()
        elif not self._wake.is_set():
            await self._sleep(self._pause(done))

    async def _advance(self) -> Pass:
        async with self.db.transaction("advance") as tx:
            batch = self._batch
            done = await advance_due(tx, self.engine_context, batch, self._quarantined())
        done.on_commit()
        self._has_limit_work = self._has_limit_work or done.has_limits
        metrics.passes.inc()
        metrics.jobs_advanced.inc(done.advanced)
        limit = self.settings.orchestrator.batch
        self._batch = min(2 * batch if done.advanced >= batch else FIRST_BATCH, limit)
        if done.wake_at is not None:
            self._wake_no_later_than(done.wake_at, tx.now)
        return done

    async def _admit(self) -> None:
        """Admit the held tasks and jobs that their limits allow now."""
        self._has_limit_work, self._limits_due_at = False, math.inf
        after: str | None = ""
        while after is not None:
            async with self.db.single("look") as tx:
                free = await limits.find_free(tx, after)
            if not (free.keys and await self._admit_keys(free.keys)):
                after = free.after

    async def _admit_keys(self, keys: Sequence[HeldKey]) -> bool:
        """Admit what these limits allow; return whether there may be more to admit."""
        async with self.db.transaction("admit") as tx:
            admission = await limits.admit(tx, keys)
        if admission.wait_seconds is not None:
            self._limits_due_at = min(self._limits_due_at, self._now() + admission.wait_seconds)
            self._wake_within(admission.wait_seconds)
        return admission.may_be_more

    def _start_extra_pass(self) -> None:
        """Start a concurrent pass under load: it decides while another waits for the database."""
        self._extra_passes = {task for task in self._extra_passes if not task.done()}
        if len(self._extra_passes) < EXTRA_PASSES:
            self._extra_passes.add(asyncio.create_task(self._advance_while_full(), name="extra pass"))

    async def _advance_while_full(self) -> None:
        try:
            while not self._stop.is_set() and (await self._advance()).is_full:
                pass
        except Exception:
            log.exception("pass failed", orchestrator=self.name)
        self._wake.set()  # the main pass skipped inputs of jobs that were locked here

    async def _tick(self) -> bool:
        """Heartbeat, rescue lost tasks and load the next wake-up time; return whether there is work now."""
        can_hear = self._listener.can_hear
        self._notify_broken, self._got_ping = not (self._got_ping and can_hear), False
        if self._notify_broken and can_hear:
            log.warning("notifications do not arrive, polling instead", orchestrator=self.name)
        lease = self.settings.lease
        assert self.process_id is not None
        async with self.db.single("tick") as tx:
            is_steady = self._now() >= self._rescue_from
            tick = await tasks.tick_orchestrator(
                tx,
                self.process_id,
                lease.seconds,
                DEADLINE_GRACE_SECONDS,
                self._quarantined(),
                is_steady=is_steady,
            )
        if tick.epoch != self._epoch and self.engine_context.job_cache is not None:
            self.engine_context.job_cache.clear()
        self._epoch = tick.epoch
        metrics.leases_expired.inc(tick.dead)
        if tick.rescued:
            metrics.tasks_rescued.inc(tick.rescued)
            log.warning("rescued tasks", tasks=tick.rescued, orchestrator=self.name)
        self._retention.start_if_due()
        self._tick_at = self._now() + lease.scan_seconds
        self._wake_at = None
        if tick.wake_at is not None:
            self._wake_no_later_than(tick.wake_at, tick.now)
        self._has_limit_work = self._has_limit_work or tick.has_held
        return tick.has_work or tick.has_held

    def _wake_no_later_than(self, wake_at: datetime, now: datetime) -> None:
        self._wake_within((wake_at - now).total_seconds())

    def _wake_within(self, seconds: float) -> None:
        at = self._now() + max(0.0, seconds)
        self._wake_at = at if self._wake_at is None else min(self._wake_at, at)

    def _pause(self, done: Pass) -> float:
        """Return how many seconds to sleep unless a notification arrives."""
        now = self._now()
        until = self._tick_at
        if self._wake_at is not None:
            if self._wake_at <= now:  # only the earliest is kept: the tick loads the next one
                self._wake_at = None
                self._tick_at = now
                return 0.0 if done.advanced else BUSY_SECONDS
            until = min(until, self._wake_at)
        pause = min(max(0.0, until - now), self.engine_context.inbox_cursor.seconds_to_reset())
        return min(pause, FALLBACK_POLL_SECONDS) if self._notify_broken else pause

    def _on_notify(self, channel: str, payload: str) -> None:
        if channel != PING:
            if payload == HELD_NEWS:
                self._has_limit_work = True
            elif payload:
                self._wake_within(float(payload))
            self._wake.set()
        elif payload == str(self.process_id):
            self._got_ping = True

    async def _sleep(self, seconds: float) -> None:
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), seconds)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _register(self) -> None:
        async with self.db.single("register") as tx:
            seconds = self.settings.lease.seconds
            self.process_id = await tasks.register_process(
                tx, "orchestrator", self.name, seconds, info=process_facts()
            )
        self.engine_context.owner = self.process_id

    async def _leave(self) -> None:
        if self.process_id is not None:
            async with self.db.single("leave") as tx:
                await tasks.leave_process(tx, self.process_id, "stopped")

    async def _register_with_retry(self) -> None:
        while not self._stop.is_set():
            try:
                await self._register()
                return
            except (DatabaseUnavailable, psycopg.Error) as error:
                log.warning("database unavailable", error=str(error), orchestrator=self.name)
                await self._sleep(RETRY_SECONDS)
