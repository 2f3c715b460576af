"""An orchestrator: advance what has news, sleep until somebody says so or the next thing is due."""

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
from cograil.orchestrator.retention_sweep import Retention
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

# A worker ends its own attempts, and gives a handler some seconds to obey; this is for those that cannot.
DEADLINE_GRACE_SECONDS = 10.0
RETRY_SECONDS = 0.5
BUSY_SECONDS = 0.05  # what is due is in another orchestrator's hands
DEAF_POLL_SECONDS = 1.0
ASIDE_SECONDS = 30.0
EXTRA_HANDS = 2
FIRST_BATCH = 300  # small enough that workers get something soon; while passes come back full they grow


# The database's fault or the network's, never a job's: tried again, and nobody is suspected.
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
        remembers: bool = True,
    ) -> None:
        self.db = db
        self.settings = settings
        self.engine_context = engine_context
        self.engine_context.job_cache = JobCache() if remembers else None  # without: for bench.memory
        self.name = name
        self.process_id: int | None = None
        self.is_ready = False
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._listener = Listener(db.direct, [NEWS_CHANNEL, PING], self._hear)
        self._tick_at = 0.0
        self._wake_at: float | None = None  # by the loop's clock
        self._heard_ping = True
        self._is_deaf = False
        self._hands: set[asyncio.Task[None]] = set()
        self._retention = Retention(db, settings.retention)
        self._batch = min(FIRST_BATCH, settings.orchestrator.batch)
        self._sees_limits = False  # whether to look what limits hold back
        self._sees_limits_at = math.inf  # when a rate allows the next one
        self._steady_at = 0.0  # from when on silence is a worker's own
        self._epoch = 0
        self._aside: dict[str, float] = {}  # jobs that could not be advanced, and until when they rest

    def stop(self) -> None:
        """Finish the pass at hand and return from `run`."""
        self._stop.set()
        self._wake.set()

    async def run(self) -> None:
        """Advance jobs until stopped. An error of one pass is logged; the next pass tries again."""
        await self._register_when_possible()
        await self._listener.start()
        await self._rehearse()
        self.is_ready = True
        try:
            while not self._stop.is_set():
                await self._once()
        finally:
            self.is_ready = False
            await asyncio.gather(*self._hands)
            await self._retention.stop()
            await self._listener.stop()
            with contextlib.suppress(Exception):
                await self._leave()

    async def _rehearse(self) -> None:
        """On as many connections as there may be hands. What goes wrong will be seen by the first pass."""
        hands = [self._rehearse_alone() for _ in range(1 + EXTRA_HANDS)]
        for error in await asyncio.gather(*hands, return_exceptions=True):
            if error is not None:
                log.info("rehearsal failed", error=str(error).strip(), orchestrator=self.name)

    async def _rehearse_alone(self) -> None:
        async with self.db.transaction("rehearse") as tx:
            await rehearse(tx)

    async def _once(self) -> None:
        try:
            await self._pass()
        except TRANSIENT as error:
            log.warning("pass failed, trying again", error=str(error).strip(), orchestrator=self.name)
            if is_out_of_reach(error):
                self._forget_before_outage()
            await self._sleep(RETRY_SECONDS)
        except Exception:
            log.exception("pass failed", orchestrator=self.name)
            await self._sleep(RETRY_SECONDS)
            await self._find_the_culprit()

    def _forget_before_outage(self) -> None:
        """Whoever is silent now may just not reach the database; and it may come back as it was before."""
        self._steady_at = self._now() + self.settings.lease.seconds
        if self.engine_context.job_cache is not None:
            self.engine_context.job_cache.clear()

    async def _find_the_culprit(self) -> None:
        """Advance the jobs of the failed pass one by one; those that fail are set aside for a while.

        They are found by their ids: a job that cannot even be read is set aside like any other.
        """
        try:
            async with self.db.transaction("isolate") as tx:
                due = await due_jobs(tx, self.settings.orchestrator.batch, self._set_aside())
        except (DatabaseUnavailable, psycopg.Error) as error:
            log.warning("cannot look for the culprit", error=str(error).strip(), orchestrator=self.name)
            return
        for job_id in due:
            try:
                async with self.db.transaction("advance") as tx:
                    await advance_one(tx, self.engine_context, job_id)
            except TRANSIENT:
                return  # not this job's fault; the next pass tries again
            except Exception:
                self._aside[job_id] = self._now() + ASIDE_SECONDS
                log.exception("job set aside", job_id=job_id, orchestrator=self.name)

    def _set_aside(self) -> list[str]:
        now = self._now()
        self._aside = {job_id: until for job_id, until in self._aside.items() if until > now}
        return list(self._aside)

    async def _pass(self) -> None:
        """Look after the clock when it is time, advance what there is, sleep when nothing is left."""
        was_called = self._wake.is_set()
        self._wake.clear()
        if self._sees_limits or self._now() >= self._sees_limits_at:
            await self._admit()
        if self._now() >= self._tick_at:
            has_work = await self._tick()
            if not (has_work or was_called):
                await self._sleep(self._pause(Pass(0)))
                return
        done = await self._advance()
        if self._sees_limits:
            await self._admit()
        if done.is_full:
            self._lend_a_hand()
        elif not self._wake.is_set():
            await self._sleep(self._pause(done))

    async def _advance(self) -> Pass:
        async with self.db.transaction("advance") as tx:
            batch = self._batch
            done = await advance_due(tx, self.engine_context, batch, self._set_aside())
        done.on_commit()
        self._sees_limits = self._sees_limits or done.has_limits
        metrics.passes.inc()
        metrics.jobs_advanced.inc(done.advanced)
        limit = self.settings.orchestrator.batch
        self._batch = min(2 * batch if done.advanced >= batch else FIRST_BATCH, limit)
        if done.wake_at is not None:
            self._note_wake(done.wake_at, tx.now)
        return done

    async def _admit(self) -> None:
        """Let go what limits held back and now allow."""
        self._sees_limits, self._sees_limits_at = False, math.inf
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
            self._sees_limits_at = min(self._sees_limits_at, self._now() + admission.wait_seconds)
            self._note_pause(admission.wait_seconds)
        return admission.may_be_more

    def _lend_a_hand(self) -> None:
        """While there is much to do, others decide as one pass waits for the database."""
        self._hands = {hand for hand in self._hands if not hand.done()}
        if len(self._hands) < EXTRA_HANDS:
            self._hands.add(asyncio.create_task(self._advance_while_full(), name="another hand"))

    async def _advance_while_full(self) -> None:
        try:
            while not self._stop.is_set() and (await self._advance()).is_full:
                pass
        except Exception:
            log.exception("pass failed", orchestrator=self.name)
        self._wake.set()  # for news that came for jobs in this hand, and were passed over by the other

    async def _tick(self) -> bool:
        """Heartbeat, rescue, and learn when the next job wants to wake; whether there is work now."""
        can_hear = self._listener.can_hear
        self._is_deaf, self._heard_ping = not (self._heard_ping and can_hear), False
        if self._is_deaf and can_hear:
            log.warning("notifications do not arrive, polling instead", orchestrator=self.name)
        lease = self.settings.lease
        assert self.process_id is not None
        async with self.db.single("tick") as tx:
            is_steady = self._now() >= self._steady_at
            tick = await tasks.tick_orchestrator(
                tx,
                self.process_id,
                lease.seconds,
                DEADLINE_GRACE_SECONDS,
                self._set_aside(),
                is_steady=is_steady,
            )
        if tick.epoch != self._epoch and self.engine_context.job_cache is not None:
            self.engine_context.job_cache.clear()
        self._epoch = tick.epoch
        metrics.leases_expired.inc(tick.dead)
        if tick.rescued:
            metrics.tasks_rescued.inc(tick.rescued)
            log.warning("rescued tasks", tasks=tick.rescued, orchestrator=self.name)
        self._retention.remind()
        self._tick_at = self._now() + lease.scan_seconds
        self._wake_at = None
        if tick.wake_at is not None:
            self._note_wake(tick.wake_at, tick.now)
        self._sees_limits = self._sees_limits or tick.has_held
        return tick.has_work or tick.has_held

    def _note_wake(self, wake_at: datetime, now: datetime) -> None:
        self._note_pause((wake_at - now).total_seconds())

    def _note_pause(self, seconds: float) -> None:
        at = self._now() + max(0.0, seconds)
        self._wake_at = at if self._wake_at is None else min(self._wake_at, at)

    def _pause(self, done: Pass) -> float:
        """How long nothing can be due, if nobody calls."""
        now = self._now()
        until = self._tick_at
        if self._wake_at is not None:
            if self._wake_at <= now:  # only the earliest is noted: the tick tells which comes next
                self._wake_at = None
                self._tick_at = now
                return 0.0 if done.advanced else BUSY_SECONDS
            until = min(until, self._wake_at)
        pause = min(max(0.0, until - now), self.engine_context.inbox_cursor.seconds_to_reset())
        return min(pause, DEAF_POLL_SECONDS) if self._is_deaf else pause

    def _hear(self, channel: str, payload: str) -> None:
        if channel != PING:
            if payload == HELD_NEWS:
                self._sees_limits = True
            elif payload:
                self._note_pause(float(payload))
            self._wake.set()
        elif payload == str(self.process_id):
            self._heard_ping = True

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

    async def _register_when_possible(self) -> None:
        while not self._stop.is_set():
            try:
                await self._register()
                return
            except (DatabaseUnavailable, psycopg.Error) as error:
                log.warning("database unavailable", error=str(error), orchestrator=self.name)
                await self._sleep(RETRY_SECONDS)
