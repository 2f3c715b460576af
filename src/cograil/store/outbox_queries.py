"""What is told to the world: the outbox, subscriptions, and deliveries with their tries."""

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
from cograil.store.database import Row, Transaction
from cograil.store.related_jobs import Inside, find_insides
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
TELL_WORLD = statement("tell_world")
ADD_SUBSCRIPTION = statement("add_subscription")
LIST_SUBSCRIPTIONS = statement("list_subscriptions")
REMOVE_SUBSCRIPTION = statement("remove_subscription")
ENABLE_SUBSCRIPTION = statement("enable_subscription")
ROTATE_SECRET = statement("rotate_secret")
LIST_DELIVERIES = statement("list_deliveries")
RESEND_DELIVERY = statement("resend_delivery")
PRUNE_DELIVERIES = statement("prune_deliveries")

OUTBOX_CHANNEL = "cograil_outbox"
CALLBACK = "callback"  # the destination that a job brought itself
PRUNED_AT_A_TIME = 1000
MAX_OLD_SECRETS = 4

View = dict[str, Json]

MADE = partial(
    Columns,
    "made",
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
TRIED = partial(
    Columns,
    "tried",
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


class Told(NamedTuple):
    """A row of the outbox, and what there is to tell of its job; JSON as text."""

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
    has_outsiders: bool | None  # somebody is told who must not know how it was done
    trace_parent: str | None = None
    inside: Inside | None = None  # then this is what they must not know


class Subscription(NamedTuple):
    """Somebody who wants to hear what happens to a tenant; no types mean all, no workflow means any."""

    tenant_id: str
    subscription_id: str
    url: str
    types: list[str]
    workflow_id: str | None
    secret: str
    style: str
    headers: bytes


class NewDelivery(NamedTuple):
    """One event on its way to one destination; with an error it cannot be sent and is a dead letter."""

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
    """How many more may be claimed of an origin; it is proven when it took what it was sent last."""

    origin: str
    free: int
    is_proven: bool


class TenantRoom(NamedTuple):
    """How many of a tenant are in hand, how many more may be, and how many of them for unproven origins."""

    tenant_id: str
    held: int
    room: int
    fresh: int


class Room(NamedTuple):
    """What may be claimed in one go; `usual` of an origin, `room` and `fresh` of a tenant not named.

    `following`: how many more events of the same job to the same destination come with one.
    """

    limit: int
    usual: int
    most_fresh: int  # of all origins together that are not proven
    room: int
    fresh: int
    lanes: Sequence[LaneRoom] = ()
    tenants: Sequence[TenantRoom] = ()
    following: int = 0

    def params(self) -> dict[str, object]:
        """As the statement takes them."""
        lanes, tenants = LANES(), TENANTS()
        lanes.rows += self.lanes
        tenants.rows += self.tenants
        usual = {
            name: getattr(self, name)
            for name in ("limit", "usual", "most_fresh", "room", "fresh", "following")
        }
        return usual | lanes.params() | tenants.params()


class Claimed(NamedTuple):
    """A delivery that is ours to try once; `tries` counts this one, `age` are seconds since the first."""

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
    """What became of a try. `wait` is until the next one; one that does not count was given back unsent."""

    delivery_id: str
    fence: int
    state: str
    wait: float = 0.0
    status: int | None = None
    error: str | None = None
    counts: bool = True


class Outlook(NamedTuple):
    """What waits: something to spread, something due that has to wait, and when the next one is due."""

    has_outbox: bool
    has_waiting: bool
    seconds: float | None


# -- the relay's ------------------------------------------------------------------------------------


async def take_outbox(tx: Transaction, limit: int, most_bytes: int) -> list[Told]:
    """Take what is to be told, oldest first; results of more bytes than this are left out."""
    told = [Told(*row) for row in await tx.fetch(TAKE_OUTBOX, limit=limit, most_bytes=most_bytes)]
    hidden = await find_insides(tx, {one.job_id for one in told if one.job_id and one.has_outsiders})
    return [one._replace(inside=hidden.get(one.job_id or "")) for one in told] if hidden else told


async def oldest_in_outbox(tx: Transaction) -> int | None:
    """Which row is the next one, whatever is in it."""
    rows = await tx.fetch(OLDEST_IN_OUTBOX)
    return rows[0][0] if rows else None


async def set_aside(tx: Transaction, row_id: int, delivery_id: str, reason: str) -> None:
    """Make a dead letter of this row of the outbox, of which nothing but its own columns can be read."""
    await tx.execute(SET_ASIDE, row=row_id, id=delivery_id, reason=reason)


async def load_subscriptions(tx: Transaction, tenants: Collection[str]) -> list[Subscription]:
    """Those of these tenants that are not disabled."""
    return [Subscription(*row) for row in await tx.fetch(LOAD_SUBSCRIPTIONS, tenants=list(tenants))]


async def insert_deliveries(
    tx: Transaction, deliveries: Sequence[NewDelivery], *, calls_others: bool
) -> None:
    """Write these; `calls_others` tells all relays."""
    made = MADE()
    made.rows += deliveries
    await tx.execute(INSERT_DELIVERIES, calls_others=calls_others, **made.params())


async def claim_deliveries(tx: Transaction, room: Room, lease_seconds: float) -> list[Claimed]:
    """Those that are due and that there is room for."""
    rows = await tx.fetch(CLAIM_DELIVERIES, lease=lease_seconds, **room.params())
    return [Claimed(*row) for row in rows]


async def record_deliveries(tx: Transaction, tried: Sequence[Tried], hold_seconds: float) -> int:
    """Write what became of these tries; how many of them were still ours."""
    columns = TRIED()
    columns.rows += tried
    return await tx.execute(RECORD_DELIVERIES, hold=hold_seconds, **columns.params())


async def next_delivery(tx: Transaction) -> Outlook:
    """What there will be to do."""
    asked_at = time.monotonic()
    *found, now = (await tx.fetch(NEXT_DELIVERY))[0]
    clock.synchronize(now, asked_at)
    return Outlook(*found)


async def prune_deliveries(tx: Transaction, delivered_days: float, dead_days: float) -> int:
    """Forget what ended longer ago than this, some of it; how many."""
    return await tx.execute(
        PRUNE_DELIVERIES, delivered_days=delivered_days, dead_days=dead_days, limit=PRUNED_AT_A_TIME
    )


# -- events of apps ---------------------------------------------------------------------------------


async def tell_world(
    tx: Transaction,
    tenant: str,
    kind: str,
    subject: str,
    data: bytes,
    job_id: str | None = None,
    seq: int | None = None,
) -> bool:
    """Put this event into the outbox; whether anybody wants to hear it."""
    given = {"tenant": tenant, "type": kind, "subject": subject, "data": data.decode()}
    return bool(await tx.execute(TELL_WORLD, **given, job=job_id, seq=seq))


# -- subscriptions ----------------------------------------------------------------------------------


async def add_subscription(tx: Transaction, one: Subscription, by: str) -> None:
    """Write this subscription."""
    await tx.execute(
        ADD_SUBSCRIPTION,
        id=one.subscription_id,
        tenant=one.tenant_id,
        url=one.url,
        types=one.types,
        workflow=one.workflow_id,
        secret=one.secret,
        style=one.style,
        headers=one.headers.decode(),
        by=by,
    )


async def list_subscriptions(
    tx: Transaction, tenant: str, subscription_id: str | None = None, limit: int = 1000
) -> list[View]:
    """The subscriptions of a tenant, without their secrets; or this one, if it is there."""
    rows = await tx.fetch(LIST_SUBSCRIPTIONS, tenant=tenant, id=subscription_id, limit=limit)
    return [_subscription_view(row) for row in rows]


def _subscription_view(row: Row) -> View:
    names = ("subscription_id", "url", "types", "workflow_id", "style", "created_by", "created_at")
    return dict(zip((*names, "disabled_at", "disabled_reason"), row, strict=True))


async def end_subscription(tx: Transaction, tenant: str, subscription_id: str, reason: str) -> bool:
    """Disable it, and give up what was on its way; False when it was not active."""
    await tx.fetch(LOCK_SUBSCRIPTION, tenant=tenant, id=subscription_id)
    rows = await tx.fetch(END_SUBSCRIPTION, tenant=tenant, id=subscription_id, reason=reason)
    return bool(rows[0][0])


async def end_callback(tx: Transaction, tenant: str, job_id: str, reason: str) -> bool:
    """Tell the callback of this job nothing more, and give up what was on its way; False when that was so."""
    return bool((await tx.fetch(END_CALLBACK, tenant=tenant, job=job_id, reason=reason))[0][0])


async def remove_subscription(tx: Transaction, tenant: str, subscription_id: str) -> bool:
    """Whether there was one."""
    await tx.fetch(LOCK_SUBSCRIPTION, tenant=tenant, id=subscription_id)
    return bool((await tx.fetch(REMOVE_SUBSCRIPTION, tenant=tenant, id=subscription_id))[0][0])


async def enable_subscription(tx: Transaction, tenant: str, subscription_id: str) -> bool:
    """Whether there is one."""
    return bool(await tx.execute(ENABLE_SUBSCRIPTION, tenant=tenant, id=subscription_id))


async def rotate_secret(
    tx: Transaction, tenant: str, subscription_id: str, secret: str, overlap_seconds: float
) -> bool:
    """Sign with this secret too, and after so many seconds with it alone; whether there is a subscription."""
    given = {"secret": secret, "overlap": overlap_seconds, "most": MAX_OLD_SECRETS}
    return bool(await tx.execute(ROTATE_SECRET, tenant=tenant, id=subscription_id, **given))


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
    """The deliveries of a tenant, newest first; `before` is the last one of the page before."""
    given = {"state": state, "job": job_id, "id": delivery_id, "before": before}
    if any(id is not None and not is_id(id) for id in (job_id, delivery_id, before)):
        return []
    rows = await tx.fetch(LIST_DELIVERIES, tenant=tenant, limit=limit, **given)
    return [_delivery_view(row) for row in rows]


def _delivery_view(row: Row) -> View:
    state = row[6]
    return {
        "delivery_id": row[0],
        "job_id": row[1],
        "sequence": row[2],
        "type": row[3],
        "destination": row[4],
        "url": row[5],
        "state": state,
        "tries": row[7],
        "next_try_at": row[8] if state == "pending" else None,
        "last_status": row[9],
        "last_error": row[10],
        "created_at": row[11],
        "delivered_at": row[12],
    }


async def resend_delivery(tx: Transaction, tenant: str, delivery_id: str) -> bool:
    """Let the relay begin anew with it; False when there is none, or it is on its way."""
    return bool(await tx.execute(RESEND_DELIVERY, tenant=tenant, id=delivery_id))
