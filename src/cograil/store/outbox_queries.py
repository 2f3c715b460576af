"""The outbox, subscriptions, and deliveries with their tries."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from cograil import clock
from cograil.model.ids import is_id
from cograil.model.workflow import Json
from cograil.store.array_params import Columns, bools, floats, ints, jsonbs, jsons, texts, uuids
from cograil.store.database import Transaction
from cograil.store.related_jobs import RelatedJobs, load_related_jobs
from cograil.store.statements import statement

TAKE_OUTBOX = statement("take_outbox")
LOAD_SUBSCRIPTIONS = statement("load_subscriptions")
INSERT_DELIVERIES = statement("insert_deliveries")
OLDEST_IN_OUTBOX = statement("oldest_in_outbox")
SET_ASIDE = statement("set_aside")
CLAIM_DELIVERIES = statement("claim_deliveries")
RECORD_DELIVERIES = statement("record_deliveries")
NEXT_DELIVERY = statement("next_delivery")
LOCK_SUBSCRIPTION = statement("lock_subscription")
END_SUBSCRIPTION = statement("end_subscription")
END_CALLBACK = statement("end_callback")
INSERT_OUTBOX = statement("insert_outbox")
ADD_SUBSCRIPTION = statement("add_subscription")
LIST_SUBSCRIPTIONS = statement("list_subscriptions")
REMOVE_SUBSCRIPTION = statement("remove_subscription")
ENABLE_SUBSCRIPTION = statement("enable_subscription")
ROTATE_SECRET = statement("rotate_secret")
LIST_DELIVERIES = statement("list_deliveries")
RESEND_DELIVERY = statement("resend_delivery")
PRUNE_DELIVERIES = statement("prune_deliveries")

OUTBOX_CHANNEL = "cograil_outbox"
CALLBACK = "callback"  # the destination that was submitted with the job
PRUNED_AT_A_TIME = 1000
MAX_OLD_SECRETS = 4

View = dict[str, Json]

NEW_DELIVERIES = partial(
    Columns,
    "delivery",
    id=uuids,
    tenant_id=texts,
    job_id=uuids,
    seq=ints,
    type=texts,
    destination=texts,
    origin=texts,
    url=texts,
    sending=jsonbs,
    body=jsons,
    error=texts,
)
TRIES = partial(
    Columns,
    "try",
    id=uuids,
    fence=ints,
    state=texts,
    wait=floats,
    status=ints,
    error=texts,
    counts=bools,
)
LANES = partial(Columns, "lane", origin=texts, free=ints, is_proven=bools)
TENANTS = partial(Columns, "tenant", id=texts, held=ints, room=ints, fresh=ints)


class OutboxEvent(NamedTuple):
    """A row of the outbox with the data of its job; JSON columns as text."""

    tenant_id: str
    job_id: str | None
    seq: int | None
    type: str
    subject: str | None
    data: bytes | None
    at: datetime
    node_id: str | None
    event_data: bytes | None
    workflow_id: str | None
    workflow_version: int | None
    callback: bytes | None
    labels: bytes | None
    correlation_id: str | None
    submitted_by: str | None
    priority: int | None
    retry_of: str | None
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    error: bytes | None
    result: bytes | None
    is_result_left_out: bool | None
    has_outsiders: bool | None  # a receiver must not see related jobs
    trace_parent: str | None = None
    inside: RelatedJobs | None = None  # set when `has_outsiders`


class WebhookSubscription(NamedTuple):
    """A receiver of the events of a tenant; no types mean all types, no workflow means any."""

    tenant_id: str
    subscription_id: str
    url: str
    types: list[str]
    workflow_id: str | None
    secret: str
    style: str
    headers: bytes


class NewDelivery(NamedTuple):
    """One event for one destination; with an error it cannot be sent and becomes a dead letter."""

    delivery_id: str
    tenant_id: str
    job_id: str | None
    seq: int
    type: str
    destination: str
    origin: str
    url: str
    sending: bytes
    body: bytes
    error: str | None = None


class LaneRoom(NamedTuple):
    """How many more deliveries to an origin may be claimed; it is proven when its last delivery succeeded."""

    origin: str
    free: int
    is_proven: bool


class TenantRoom(NamedTuple):
    """How many deliveries of a tenant are claimed, how many more may be, and how many to unproven origins."""

    tenant_id: str
    held: int
    room: int
    fresh: int


class Room(NamedTuple):
    """The limits of one claim: `usual` for an origin that is not listed, `room` and `fresh` for such a tenant.

    `following` is how many more events of the same job to the same destination may come with one.
    """

    limit: int
    usual: int
    most_fresh: int  # for all unproven origins together
    room: int
    fresh: int
    lanes: Sequence[LaneRoom] = ()
    tenants: Sequence[TenantRoom] = ()
    following: int = 0

    def params(self) -> dict[str, object]:
        """Return the parameters of the statement."""
        lanes, tenants = LANES(), TENANTS()
        lanes.rows += self.lanes
        tenants.rows += self.tenants
        usual = {
            name: getattr(self, name)
            for name in ("limit", "usual", "most_fresh", "room", "fresh", "following")
        }
        return usual | lanes.params() | tenants.params()


class Claimed(NamedTuple):
    """A delivery claimed for one try; `tries` includes this one, `age` is in seconds since the first."""

    delivery_id: str
    fence: int
    tries: int
    tenant_id: str
    destination: str
    origin: str
    url: str
    sending: bytes
    body: bytes
    age: float
    job_id: str | None = None


class Tried(NamedTuple):
    """The result of a try. `wait` is the delay of the next one; a try that does not count was not sent."""

    delivery_id: str
    fence: int
    state: str
    wait: float = 0.0
    status: int | None = None
    error: str | None = None
    counts: bool = True


class OutboxOutlook(NamedTuple):
    """Whether outbox rows and due deliveries wait, and in how many seconds the next delivery is due."""

    has_outbox: bool
    has_waiting: bool
    seconds: float | None


# -- the relay --------------------------------------------------------------------------------------


async def take_outbox(tx: Transaction, limit: int, max_bytes: int) -> list[OutboxEvent]:
    """Take outbox rows, oldest first; results of more than `max_bytes` are left out."""
    events = await tx.fetch_as(OutboxEvent, TAKE_OUTBOX, limit=limit, max_bytes=max_bytes)
    ids = {event.job_id for event in events if event.job_id and event.has_outsiders}
    hidden = await load_related_jobs(tx, ids)
    return [event._replace(inside=hidden.get(event.job_id or "")) for event in events] if hidden else events


async def oldest_in_outbox(tx: Transaction) -> int | None:
    """Return the id of the next outbox row, even if its content cannot be read; None when there is none."""
    rows: list[tuple[int]] = await tx.fetch(OLDEST_IN_OUTBOX)
    return next((row_id for (row_id,) in rows), None)


async def set_aside(tx: Transaction, row_id: int, delivery_id: str, reason: str) -> None:
    """Turn this outbox row into a dead letter, for a row whose job data cannot be read."""
    await tx.execute(SET_ASIDE, row=row_id, id=delivery_id, reason=reason)


async def load_subscriptions(tx: Transaction, tenants: Collection[str]) -> list[WebhookSubscription]:
    """Return the enabled subscriptions of these tenants."""
    return [WebhookSubscription(*row) for row in await tx.fetch(LOAD_SUBSCRIPTIONS, tenants=list(tenants))]


async def insert_deliveries(
    tx: Transaction, deliveries: Sequence[NewDelivery], *, calls_others: bool
) -> None:
    """Insert these deliveries; `calls_others` notifies all relays."""
    columns = NEW_DELIVERIES()
    columns.rows += deliveries
    await tx.execute(INSERT_DELIVERIES, calls_others=calls_others, **columns.params())


async def claim_deliveries(tx: Transaction, room: Room, lease_seconds: float) -> list[Claimed]:
    """Claim due deliveries within these limits."""
    rows = await tx.fetch(CLAIM_DELIVERIES, lease=lease_seconds, **room.params())
    return [Claimed(*row) for row in rows]


async def record_deliveries(tx: Transaction, tries: Sequence[Tried], hold_seconds: float) -> int:
    """Record the results of these tries; return how many of them this relay still held."""
    columns = TRIES()
    columns.rows += tries
    return await tx.execute(RECORD_DELIVERIES, hold=hold_seconds, **columns.params())


async def next_delivery(tx: Transaction) -> OutboxOutlook:
    """Return what waits for delivery."""
    sent_at = time.monotonic()
    ((has_outbox, has_waiting, seconds, now),) = await tx.fetch(NEXT_DELIVERY)
    clock.synchronize(now, sent_at)
    return OutboxOutlook(has_outbox, has_waiting, seconds)


async def prune_deliveries(tx: Transaction, delivered_days: float, dead_days: float) -> int:
    """Delete a batch of deliveries that ended longer ago than this; return how many."""
    return await tx.execute(
        PRUNE_DELIVERIES, delivered_days=delivered_days, dead_days=dead_days, limit=PRUNED_AT_A_TIME
    )


# -- events of apps ---------------------------------------------------------------------------------


async def insert_outbox(
    tx: Transaction,
    tenant: str,
    kind: str,
    subject: str,
    data: bytes,
    job_id: str | None = None,
    seq: int | None = None,
) -> bool:
    """Write this event to the outbox; return whether it has a receiver."""
    params = {"tenant": tenant, "type": kind, "subject": subject, "data": data.decode()}
    return bool(await tx.execute(INSERT_OUTBOX, **params, job=job_id, seq=seq))


# -- subscriptions ----------------------------------------------------------------------------------


async def add_subscription(tx: Transaction, subscription: WebhookSubscription, by: str) -> None:
    """Insert this subscription."""
    await tx.execute(
        ADD_SUBSCRIPTION,
        id=subscription.subscription_id,
        tenant=subscription.tenant_id,
        url=subscription.url,
        types=subscription.types,
        workflow=subscription.workflow_id,
        secret=subscription.secret,
        style=subscription.style,
        headers=subscription.headers.decode(),
        by=by,
    )


async def list_subscriptions(
    tx: Transaction, tenant: str, subscription_id: str | None = None, limit: int = 1000
) -> list[View]:
    """Return the subscriptions of a tenant, or one of them, without their secrets."""
    return await tx.fetch_dicts(LIST_SUBSCRIPTIONS, tenant=tenant, id=subscription_id, limit=limit)


async def end_subscription(tx: Transaction, tenant: str, subscription_id: str, reason: str) -> bool:
    """Disable the subscription and cancel its pending deliveries; return False when it was not active."""
    await tx.fetch(LOCK_SUBSCRIPTION, tenant=tenant, id=subscription_id)
    ((is_ended,),) = await tx.fetch(END_SUBSCRIPTION, tenant=tenant, id=subscription_id, reason=reason)
    return bool(is_ended)


async def end_callback(tx: Transaction, tenant: str, job_id: str, reason: str) -> bool:
    """Disable the callback of this job and cancel its pending deliveries; return False when it was disabled."""
    ((is_ended,),) = await tx.fetch(END_CALLBACK, tenant=tenant, job=job_id, reason=reason)
    return bool(is_ended)


async def remove_subscription(tx: Transaction, tenant: str, subscription_id: str) -> bool:
    """Delete the subscription; return whether it existed."""
    await tx.fetch(LOCK_SUBSCRIPTION, tenant=tenant, id=subscription_id)
    ((is_removed,),) = await tx.fetch(REMOVE_SUBSCRIPTION, tenant=tenant, id=subscription_id)
    return bool(is_removed)


async def enable_subscription(tx: Transaction, tenant: str, subscription_id: str) -> bool:
    """Enable the subscription; return whether it exists."""
    return bool(await tx.execute(ENABLE_SUBSCRIPTION, tenant=tenant, id=subscription_id))


async def rotate_secret(
    tx: Transaction, tenant: str, subscription_id: str, secret: str, overlap_seconds: float
) -> bool:
    """Add this secret; the old ones end after `overlap_seconds`. Return whether the subscription exists."""
    params = {"secret": secret, "overlap": overlap_seconds, "max_old": MAX_OLD_SECRETS}
    return bool(await tx.execute(ROTATE_SECRET, tenant=tenant, id=subscription_id, **params))


# -- deliveries -------------------------------------------------------------------------------------


async def list_deliveries(
    tx: Transaction,
    tenant: str,
    *,
    state: str | None = None,
    job_id: str | None = None,
    delivery_id: str | None = None,
    before: str | None = None,
    limit: int = 50,
) -> list[View]:
    """Return the deliveries of a tenant, newest first; `before` is the last id of the previous page."""
    params = {"state": state, "job": job_id, "id": delivery_id, "before": before}
    if any(id is not None and not is_id(id) for id in (job_id, delivery_id, before)):
        return []
    rows = await tx.fetch_dicts(LIST_DELIVERIES, tenant=tenant, limit=limit, **params)
    return [row if row["state"] == "pending" else row | {"next_try_at": None} for row in rows]


async def resend_delivery(tx: Transaction, tenant: str, delivery_id: str) -> bool:
    """Start the delivery again; return False when it does not exist or is in progress."""
    return bool(await tx.execute(RESEND_DELIVERY, tenant=tenant, id=delivery_id))
