"""A relay: fans out the outbox, sends due deliveries, records their outcomes.

Any number may run, without a leader. When a relay dies, another one claims its deliveries after the lease ends,
and sends them with the same id and the same bytes. A delivery is recorded only after its response.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import orjson
import psycopg
import structlog

from cograil import fault_injection, metrics, tracing
from cograil.delivery.circuit_breaker import OPEN_SECONDS, Breakers
from cograil.delivery.cloudevents import CALLBACK_DISABLED
from cograil.delivery.http_delivery import GONE, AttemptResponse, is_of_container_job, judge, post
from cograil.delivery.origin_limits import OriginLimits
from cograil.delivery.outbox_fan_out import BATCH, FanOutResult, fan_out, fan_out_oldest
from cograil.egress import KeptConnections, OutboundGuard, PublicOnly
from cograil.errors import DatabaseUnavailable
from cograil.settings import Settings
from cograil.store import outbox_queries as store
from cograil.store.database import Database, Transaction
from cograil.store.listener import RECONNECTED, Listener
from cograil.store.outbox_queries import CALLBACK, OUTBOX_CHANNEL, Claimed, Tried

log = structlog.get_logger("relay")

POLL_SECONDS = 10.0  # writers to the outbox notify; this is for missed notifications
FALLBACK_POLL_SECONDS = 1.0  # while the relay cannot listen
BUSY_SECONDS = 1.0  # due deliveries wait for an earlier one, or for a breaker
SOON_SECONDS = 0.05
RETRY_SECONDS = 0.5
PRUNE_SECONDS = 600.0
MARGIN_SECONDS = 15.0  # of a lease, in addition to the timeout of a request
HOLD_SECONDS = 30.0  # a failing delivery holds the later ones of its job for this long
GRACE_SECONDS = 5.0
DISABLED = "cograil.subscription.disabled"
GONE_REASON = "the receiver answered 410 Gone"
TRANSIENT = (DatabaseUnavailable, psycopg.OperationalError, psycopg.InterfaceError)  # not caused by a row


class Relay:
    """One relay."""

    def __init__(
        self, db: Database, settings: Settings, name: str, guard: OutboundGuard | None = None
    ) -> None:
        self.db = db
        self.settings = settings.relay
        self.name = name
        self.is_ready = False
        self._guard = guard or PublicOnly(settings.outbound)
        self._connections = KeptConnections(self.settings.per_destination)
        self._breakers = Breakers(self._now, OPEN_SECONDS * self.settings.pace)
        self._listener = Listener(db.direct, [OUTBOX_CHANNEL], self._on_notify)
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._sees_outbox = True  # the outbox may contain rows
        self._sees_due = True  # there may be due deliveries
        self._has_freed = False  # all claimed deliveries of a job were sent
        self._sending: set[asyncio.Task[None]] = set()
        self._limits = OriginLimits(self.settings.concurrency, self.settings.per_destination)
        self._done: list[Tried] = []  # attempts that are not recorded yet
        self._gone: dict[str, Claimed] = {}  # of these, the ones whose receiver answered 410
        self._prune_at = 0.0

    def stop(self) -> None:
        """Return from `run` when the current requests have ended, at most GRACE_SECONDS later."""
        self._stop.set()
        self._wake.set()

    async def run(self) -> None:
        """Deliver until stopped. An error of one pass is logged; the next pass tries again."""
        self._prune_at = self._now() + PRUNE_SECONDS
        await self._listener.start()
        self.is_ready = True
        try:
            while not self._stop.is_set():
                await self._run_pass()
        finally:
            self.is_ready = False
            await self._end()

    async def _run_pass(self) -> None:
        try:
            await self._pass()
        except (DatabaseUnavailable, psycopg.Error) as error:
            log.warning("pass failed, trying again", error=str(error).strip(), relay=self.name)
            await self._try_again()
        except Exception:  # other deliveries must continue
            log.exception("pass failed, trying again", relay=self.name)
            await self._try_again()

    async def _try_again(self) -> None:
        self._sees_outbox = self._sees_due = True
        await asyncio.sleep(RETRY_SECONDS)

    async def _pass(self) -> None:
        self._wake.clear()
        await self._record()
        if self._sees_outbox:
            await self._fan_out()
        has_claimed = bool(self._sees_due and self._limits.capacity())
        if has_claimed:
            await self._claim()
        if self._now() >= self._prune_at:
            await self._prune()
        if not (self._wake.is_set() or self._sees_outbox or (self._sees_due and self._limits.capacity())):
            await self._sleep_until_work(has_claimed)

    # -- the outbox ----------------------------------------------------------------------------------

    async def _fan_out(self) -> None:
        self._sees_outbox = False
        try:
            async with self.db.transaction("spread") as tx:
                result = await fan_out(tx, self._limits.capacity())
        except TRANSIENT:
            raise
        except Exception as error:
            log.warning("fan-out failed, now row by row", error=repr(error), relay=self.name)
            result = await self._fan_out_singly()
        self._sees_outbox = self._sees_outbox or result.is_full
        self._sees_due = self._sees_due or result.deliveries > 0

    async def _fan_out_singly(self) -> FanOutResult:
        """Fan out as many rows as the failed pass had, one by one: the row that fails is set aside."""
        deliveries = 0
        for _ in range(BATCH):
            async with self.db.transaction("spread") as tx:
                result = await fan_out_oldest(tx, self._limits.capacity())
            deliveries += result.deliveries
            if not result.is_full or self._stop.is_set():
                break
        return FanOutResult(deliveries, result.is_full)

    # -- sending -------------------------------------------------------------------------------------

    async def _claim(self) -> None:
        room = self._limits.room(self._breakers.limits())
        until = self._now() + MARGIN_SECONDS  # later, the rest of the lease is too short for a request
        lease = self.settings.timeout_seconds + 2 * MARGIN_SECONDS
        async with self.db.single("claim_deliveries") as tx:
            claimed = await store.claim_deliveries(tx, room, lease)
        groups = _by_job_and_destination(claimed)
        self._sees_due = len(groups) >= room.limit
        for group in groups:
            self._limits.add(group[0].tenant_id, group[0].origin)
            task = asyncio.create_task(self._deliver(group, until), name="delivery")
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _deliver(self, group: Sequence[Claimed], until: float) -> None:
        """Send these in order; if one is not delivered, the others are released."""
        try:
            for number, claimed in enumerate(group, start=1):
                if not await self._send(claimed, until):
                    for unsent in group[number:]:
                        self._release(unsent)
                    return
        finally:
            self._limits.remove(group[0].tenant_id, group[0].origin)
            self._has_freed = True
            self._wake.set()

    async def _send(self, claimed: Claimed, until: float) -> bool:
        """Send a delivery when it gets a slot, and note the outcome. Returns whether it was delivered."""
        try:
            async with self._limits.slot(claimed.origin) as has_slot:
                if not has_slot or self._now() > until or self._breakers.is_open(claimed.origin):
                    self._release(claimed)
                    return False
                started_at = self._now()
                response = await post(claimed, self._guard, self._connections, self.settings.timeout_seconds)
                fault_injection.point("relay.sent")
                self._note(claimed, response, self._now() - started_at)
                self._wake.set()
                return response.is_delivered
        except asyncio.CancelledError:  # the relay stops
            self._release(claimed)
        except Exception as error:
            details = {"delivery_id": claimed.delivery_id, "relay": self.name} | _job_fields(claimed)
            log.exception("delivery failed", **details)
            self._note(claimed, AttemptResponse(error=f"{type(error).__name__} in the relay"))
        return False

    def _release(self, claimed: Claimed) -> None:
        """Release an unsent delivery: it is due at once, and this does not count as an attempt."""
        _count(claimed, "pending")
        self._done.append(Tried(claimed.delivery_id, claimed.fence, "pending", counts=False))

    def _note(self, claimed: Claimed, response: AttemptResponse, seconds: float = 0.0) -> None:
        self._breakers.note(claimed.origin, response.is_receiver_available)
        self._limits.note(claimed.origin, response.is_delivered)
        tried = judge(claimed, response, self.settings)
        metrics.deliveries.labels("failed" if tried.state == "pending" else tried.state).inc()
        _count(claimed, tried.state, seconds)
        if not response.is_delivered:
            details = {"delivery_id": claimed.delivery_id, "status": response.status, "tries": claimed.tries}
            details |= _job_fields(claimed)
            log.info("not delivered", state=tried.state, error=response.error, **details)
        if response.status == GONE:
            self._gone[claimed.delivery_id] = claimed
        self._done.append(tried)

    # -- recording -----------------------------------------------------------------------------------

    async def _record(self) -> None:
        """Record the outcomes of attempts. After an error they are recorded later, if the lease still holds."""
        tried = list(self._done)
        if not tried:
            return
        has_freed, self._has_freed = self._has_freed, False
        hold = HOLD_SECONDS * self.settings.pace
        gone = [self._gone[attempt.delivery_id] for attempt in tried if attempt.delivery_id in self._gone]
        if gone:
            async with self.db.transaction("record_gone") as tx:
                await store.record_deliveries(tx, tried, hold)
                for delivery in sorted(gone, key=lambda delivery: delivery.job_id or ""):
                    await (_end_callback if delivery.destination == CALLBACK else _end_subscription)(
                        tx, delivery
                    )
        else:
            async with self.db.single("record_deliveries") as tx:
                await store.record_deliveries(tx, tried, hold)
        del self._done[: len(tried)]
        for delivery in gone:
            del self._gone[delivery.delivery_id]
        self._sees_due = self._sees_due or has_freed  # the next delivery of a job may be sent now

    async def _prune(self) -> None:
        self._prune_at = self._now() + PRUNE_SECONDS
        async with self.db.single("prune_deliveries") as tx:
            pruned = await store.prune_deliveries(tx, self.settings.delivered_days, self.settings.dead_days)
        if pruned >= store.PRUNED_AT_A_TIME:
            self._prune_at = self._now()

    # -- sleeping ------------------------------------------------------------------------------------

    async def _sleep_until_work(self, has_claimed: bool) -> None:
        """Sleep until a notification arrives, a request ends, or the next delivery is due.

        Due deliveries that a claim did not return have to wait, so they do not end the sleep.
        """
        if self._sending:
            await self._sleep(BUSY_SECONDS)
            self._sees_due = True
            return
        async with self.db.single("next_delivery") as tx:
            outlook = await store.next_delivery(tx)
        if outlook.has_outbox:  # new, or another relay is fanning it out
            await self._sleep(SOON_SECONDS)
            self._sees_outbox = True
            return
        if outlook.has_waiting and not has_claimed:
            self._sees_due = True
            return
        pauses = [POLL_SECONDS if self._listener.can_hear else FALLBACK_POLL_SECONDS]
        pauses += [outlook.seconds] if outlook.seconds is not None else []
        pauses += (
            [BUSY_SECONDS, self._breakers.seconds_until_probe() or BUSY_SECONDS]
            if outlook.has_waiting
            else []
        )
        await self._sleep(min(pauses))
        self._sees_due = self._sees_due or outlook.has_waiting or outlook.seconds is not None

    def _on_notify(self, channel: str, payload: str) -> None:
        if channel == RECONNECTED or not payload:
            self._sees_outbox = True
        if channel == RECONNECTED or payload:
            self._sees_due = True
        self._wake.set()

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _end(self) -> None:
        """Wait for the current requests, cancel the rest after GRACE_SECONDS, and record all outcomes."""
        if self._sending:
            _, unfinished = await asyncio.wait(self._sending, timeout=GRACE_SECONDS)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)
        with contextlib.suppress(DatabaseUnavailable, psycopg.Error):
            await self._record()
        await self._connections.close()
        await self._listener.stop()


def _by_job_and_destination(claimed: Sequence[Claimed]) -> list[list[Claimed]]:
    """Group deliveries by job and destination: those of one group are sent in order."""
    groups: dict[tuple[str, str], list[Claimed]] = {}
    for delivery in claimed:
        groups.setdefault((delivery.job_id or delivery.delivery_id, delivery.destination), []).append(
            delivery
        )
    return list(groups.values())


def _count(claimed: Claimed, state: str, seconds: float = 0.0) -> None:
    """Count a delivery of a container job in the metrics of the legacy service."""
    if not is_of_container_job(claimed):
        return
    if state == "pending":
        metrics.callbacks_requeued.inc()
    elif state == "dead":
        metrics.callbacks_failed.inc()
    else:
        metrics.callbacks_delivered.inc()
        metrics.callback_duration.labels().observe(seconds)


def _job_fields(claimed: Claimed) -> dict[str, Any]:
    """Return the job and the trace of a delivery, for the log."""
    if claimed.job_id is None:
        return {}
    trace = tracing.trace_id(
        tracing.job_traceparent(claimed.job_id, orjson.loads(claimed.sending).get("trace_parent"))
    )
    return {"job_id": claimed.job_id} | ({} if trace is None else {"trace_id": trace})


async def _end_subscription(tx: Transaction, gone: Claimed) -> None:
    """Disable the subscription of a receiver that answered 410, and notify the other receivers of its tenant."""
    if await store.end_subscription(tx, gone.tenant_id, gone.destination, GONE_REASON):
        log.warning("subscription disabled", subscription_id=gone.destination, reason=GONE_REASON)
        data = orjson.dumps({"subscription_id": gone.destination, "reason": GONE_REASON})
        await store.insert_outbox(tx, gone.tenant_id, DISABLED, gone.destination, data)


async def _end_callback(tx: Transaction, gone: Claimed) -> None:
    """Disable the callback of a job whose receiver answered 410, and notify the subscribers."""
    job_id = gone.job_id
    if job_id is not None and await store.end_callback(tx, gone.tenant_id, job_id, GONE_REASON):
        log.warning("callback disabled", job_id=job_id, reason=GONE_REASON)
        data = orjson.dumps({"job_id": job_id, "reason": GONE_REASON})
        await store.insert_outbox(tx, gone.tenant_id, CALLBACK_DISABLED, job_id, data, job_id)
