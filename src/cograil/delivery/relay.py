"""A relay: spread what is in the outbox, send what is due, record what became of it.

Any number may run; none leads. What a relay had in hand when it died is claimed by another when the claim
ends, and sent with the same id and the same bytes. A delivery is marked only after its answer.
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
from cograil.delivery.http_delivery import GONE, DeliveryResponse, is_of_container_job, judge, post
from cograil.delivery.origin_limits import Lanes
from cograil.delivery.outbox_fan_out import BATCH, Spread, spread, spread_oldest
from cograil.egress import KeptConnections, OutboundGuard, PublicOnly
from cograil.errors import DatabaseUnavailable
from cograil.settings import Settings
from cograil.store import outbox_queries as store
from cograil.store.database import Database, Transaction
from cograil.store.listener import RECONNECTED, Listener
from cograil.store.outbox_queries import CALLBACK, OUTBOX_CHANNEL, Claimed, Tried

log = structlog.get_logger("relay")

POLL_SECONDS = 10.0  # who writes to the outbox calls; this is for calls that were not heard
DEAF_POLL_SECONDS = 1.0
BUSY_SECONDS = 1.0  # what is due waits for another delivery, or for a breaker
SOON_SECONDS = 0.05
RETRY_SECONDS = 0.5
PRUNE_SECONDS = 600.0
MARGIN_SECONDS = 15.0  # of a claim beyond the time that a request may take
HOLD_SECONDS = 30.0  # a failing delivery holds the later ones of its job for this long
GRACE_SECONDS = 5.0
DISABLED = "cograil.subscription.disabled"
SAID_GONE = "the receiver answered 410 Gone"
TRANSIENT = (DatabaseUnavailable, psycopg.OperationalError, psycopg.InterfaceError)  # no row's fault


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
        self._listener = Listener(db.direct, [OUTBOX_CHANNEL], self._hear)
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._sees_outbox = True  # there may be something to spread
        self._sees_due = True  # there may be something to send
        self._has_freed = False  # somebody has sent all it had in hand of a job
        self._sending: set[asyncio.Task[None]] = set()
        self._lanes = Lanes(self.settings.concurrency, self.settings.per_destination)
        self._done: list[Tried] = []  # tries that are not recorded yet
        self._gone: dict[str, Claimed] = {}  # of these, those whose receiver is gone
        self._prune_at = 0.0

    def stop(self) -> None:
        """Let what is under way end, for a moment, and return from `run`."""
        self._stop.set()
        self._wake.set()

    async def run(self) -> None:
        """Deliver until stopped. An error of one pass is logged; the next pass tries again."""
        self._prune_at = self._now() + PRUNE_SECONDS
        await self._listener.start()
        self.is_ready = True
        try:
            while not self._stop.is_set():
                await self._once()
        finally:
            self.is_ready = False
            await self._end()

    async def _once(self) -> None:
        try:
            await self._pass()
        except (DatabaseUnavailable, psycopg.Error) as error:
            log.warning("pass failed, trying again", error=str(error).strip(), relay=self.name)
            await self._try_again()
        except Exception:  # whatever it is, the other deliveries go on
            log.exception("pass failed, trying again", relay=self.name)
            await self._try_again()

    async def _try_again(self) -> None:
        self._sees_outbox = self._sees_due = True
        await asyncio.sleep(RETRY_SECONDS)

    async def _pass(self) -> None:
        self._wake.clear()
        await self._record()
        if self._sees_outbox:
            await self._spread()
        has_asked = bool(self._sees_due and self._lanes.hands())
        if has_asked:
            await self._claim()
        if self._now() >= self._prune_at:
            await self._prune()
        if not (self._wake.is_set() or self._sees_outbox or (self._sees_due and self._lanes.hands())):
            await self._rest(has_asked)

    # -- the outbox ----------------------------------------------------------------------------------

    async def _spread(self) -> None:
        self._sees_outbox = False
        try:
            async with self.db.transaction("spread") as tx:
                done = await spread(tx, self._lanes.hands())
        except TRANSIENT:
            raise
        except Exception as error:
            log.warning("spreading failed, now one by one", error=repr(error), relay=self.name)
            done = await self._spread_singly()
        self._sees_outbox = self._sees_outbox or done.is_full
        self._sees_due = self._sees_due or done.deliveries > 0

    async def _spread_singly(self) -> Spread:
        """Spread as many rows as the pass that failed had, each by itself: one of them is to be set aside."""
        deliveries = 0
        for _ in range(BATCH):
            async with self.db.transaction("spread") as tx:
                done = await spread_oldest(tx, self._lanes.hands())
            deliveries += done.deliveries
            if not done.is_full or self._stop.is_set():
                break
        return Spread(deliveries, done.is_full)

    # -- sending -------------------------------------------------------------------------------------

    async def _claim(self) -> None:
        room = self._lanes.room(self._breakers.troubled())
        until = self._now() + MARGIN_SECONDS  # then too little of the claim is left for a request
        lease = self.settings.timeout_seconds + 2 * MARGIN_SECONDS
        async with self.db.single("claim_deliveries") as tx:
            claimed = await store.claim_deliveries(tx, room, lease)
        lines = _lines(claimed)
        self._sees_due = len(lines) >= room.limit
        for line in lines:
            self._lanes.hold(line[0].tenant_id, line[0].origin)
            task = asyncio.create_task(self._deliver(line, until), name="delivery")
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _deliver(self, line: Sequence[Claimed], until: float) -> None:
        """Send these one by one; behind one that is not delivered the others are given back."""
        try:
            for number, claimed in enumerate(line, start=1):
                if not await self._send(claimed, until):
                    for one in line[number:]:
                        self._give_back(one)
                    return
        finally:
            self._lanes.let_go(line[0].tenant_id, line[0].origin)
            self._has_freed = True
            self._wake.set()

    async def _send(self, claimed: Claimed, until: float) -> bool:
        """Send it when its turn comes, leave what became of it to be recorded; whether it was delivered."""
        try:
            async with self._lanes.turn(claimed.origin) as has_turn:
                if not has_turn or self._now() > until or self._breakers.is_open(claimed.origin):
                    self._give_back(claimed)
                    return False
                began = self._now()
                answer = await post(claimed, self._guard, self._connections, self.settings.timeout_seconds)
                fault_injection.point("relay.sent")
                self._note(claimed, answer, self._now() - began)
                self._wake.set()
                return answer.is_delivered
        except asyncio.CancelledError:  # we are stopping
            self._give_back(claimed)
        except Exception as error:
            facts = {"delivery_id": claimed.delivery_id, "relay": self.name} | _of_job(claimed)
            log.exception("delivery failed", **facts)
            self._note(claimed, DeliveryResponse(error=f"{type(error).__name__} in the relay"))
        return False

    def _give_back(self, claimed: Claimed) -> None:
        """Unsent: it is due at once, and this was no try."""
        _count(claimed, "pending")
        self._done.append(Tried(claimed.delivery_id, claimed.fence, "pending", counts=False))

    def _note(self, claimed: Claimed, answer: DeliveryResponse, seconds: float = 0.0) -> None:
        self._breakers.note(claimed.origin, answer.is_of_somebody_well)
        self._lanes.note(claimed.origin, answer.is_delivered)
        tried = judge(claimed, answer, self.settings)
        metrics.deliveries.labels("failed" if tried.state == "pending" else tried.state).inc()
        _count(claimed, tried.state, seconds)
        if not answer.is_delivered:
            facts = {"delivery_id": claimed.delivery_id, "status": answer.status, "tries": claimed.tries}
            facts |= _of_job(claimed)
            log.info("not delivered", state=tried.state, error=answer.error, **facts)
        if answer.status == GONE:
            self._gone[claimed.delivery_id] = claimed
        self._done.append(tried)

    # -- recording -----------------------------------------------------------------------------------

    async def _record(self) -> None:
        """Write what became of tries. What cannot be written now is written later, if it is still ours."""
        tried = list(self._done)
        if not tried:
            return
        has_freed, self._has_freed = self._has_freed, False
        hold = HOLD_SECONDS * self.settings.pace
        gone = [self._gone[one.delivery_id] for one in tried if one.delivery_id in self._gone]
        if gone:
            async with self.db.transaction("record_gone") as tx:
                await store.record_deliveries(tx, tried, hold)
                for one in sorted(gone, key=lambda one: one.job_id or ""):
                    await (_end_callback if one.destination == CALLBACK else _end_subscription)(tx, one)
        else:
            async with self.db.single("record_deliveries") as tx:
                await store.record_deliveries(tx, tried, hold)
        del self._done[: len(tried)]
        for one in gone:
            del self._gone[one.delivery_id]
        self._sees_due = self._sees_due or has_freed  # the next of a job may go now

    async def _prune(self) -> None:
        self._prune_at = self._now() + PRUNE_SECONDS
        async with self.db.single("prune_deliveries") as tx:
            pruned = await store.prune_deliveries(tx, self.settings.delivered_days, self.settings.dead_days)
        if pruned >= store.PRUNED_AT_A_TIME:
            self._prune_at = self._now()

    # -- resting -------------------------------------------------------------------------------------

    async def _rest(self, has_asked: bool) -> None:
        """Sleep until somebody calls, a request ends, or the next delivery is due.

        Who has just asked for deliveries and still sees some that are due is not to have them yet.
        """
        if self._sending:
            await self._sleep(BUSY_SECONDS)
            self._sees_due = True
            return
        async with self.db.single("next_delivery") as tx:
            outlook = await store.next_delivery(tx)
        if outlook.has_outbox:  # new, or somebody else is just spreading it
            await self._sleep(SOON_SECONDS)
            self._sees_outbox = True
            return
        if outlook.has_waiting and not has_asked:
            self._sees_due = True
            return
        pauses = [POLL_SECONDS if self._listener.can_hear else DEAF_POLL_SECONDS]
        pauses += [outlook.seconds] if outlook.seconds is not None else []
        pauses += [BUSY_SECONDS, self._breakers.next_look() or BUSY_SECONDS] if outlook.has_waiting else []
        await self._sleep(min(pauses))
        self._sees_due = self._sees_due or outlook.has_waiting or outlook.seconds is not None

    def _hear(self, channel: str, payload: str) -> None:
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
        """Wait a moment for what is under way, give the rest back, record it all."""
        if self._sending:
            _, left = await asyncio.wait(self._sending, timeout=GRACE_SECONDS)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        with contextlib.suppress(DatabaseUnavailable, psycopg.Error):
            await self._record()
        await self._connections.close()
        await self._listener.stop()


def _lines(claimed: Sequence[Claimed]) -> list[list[Claimed]]:
    """By job and destination: what follows another is sent behind it."""
    lines: dict[tuple[str, str], list[Claimed]] = {}
    for one in claimed:
        lines.setdefault((one.job_id or one.delivery_id, one.destination), []).append(one)
    return list(lines.values())


def _count(claimed: Claimed, state: str, seconds: float = 0.0) -> None:
    """Count it as the service did that container jobs come from, if it is an event of one."""
    if not is_of_container_job(claimed):
        return
    if state == "pending":
        metrics.callbacks_requeued.inc()
    elif state == "dead":
        metrics.callbacks_failed.inc()
    else:
        metrics.callbacks_delivered.inc()
        metrics.callback_duration.labels().observe(seconds)


def _of_job(claimed: Claimed) -> dict[str, Any]:
    """Whose event it is, for the log."""
    if claimed.job_id is None:
        return {}
    trace = tracing.trace_id(
        tracing.job_traceparent(claimed.job_id, orjson.loads(claimed.sending).get("trace_parent"))
    )
    return {"job_id": claimed.job_id} | ({} if trace is None else {"trace_id": trace})


async def _end_subscription(tx: Transaction, gone: Claimed) -> None:
    """Disable the subscription of a receiver that said it is gone, and tell the others of its tenant."""
    if await store.end_subscription(tx, gone.tenant_id, gone.destination, SAID_GONE):
        log.warning("subscription disabled", subscription_id=gone.destination, reason=SAID_GONE)
        data = orjson.dumps({"subscription_id": gone.destination, "reason": SAID_GONE})
        await store.insert_outbox(tx, gone.tenant_id, DISABLED, gone.destination, data)


async def _end_callback(tx: Transaction, gone: Claimed) -> None:
    """Disable the callback of a job whose receiver said it is gone, and tell the subscribers."""
    job_id = gone.job_id
    if job_id is not None and await store.end_callback(tx, gone.tenant_id, job_id, SAID_GONE):
        log.warning("callback disabled", job_id=job_id, reason=SAID_GONE)
        data = orjson.dumps({"job_id": job_id, "reason": SAID_GONE})
        await store.insert_outbox(tx, gone.tenant_id, CALLBACK_DISABLED, job_id, data, job_id)
