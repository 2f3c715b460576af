"""Fan-out: each outbox row becomes a delivery for every interested receiver.

One relay at a time does this, under an advisory lock: so the events of a job become deliveries in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import orjson
import psycopg
import structlog

from cograil.delivery.cloudevents import render
from cograil.egress import ForbiddenDestination, read_url
from cograil.model.hop_count import HOP, hops_of
from cograil.model.ids import new_id
from cograil.store import outbox_queries as store
from cograil.store.database import Transaction
from cograil.store.outbox_queries import CALLBACK, NewDelivery, OutboxEvent, WebhookSubscription
from cograil.store.retention_queries import try_turn
from cograil.verbs.callback_targets import CLOUDEVENTS, full_type

log = structlog.get_logger("relay")

TURN = "cograil spread"
BATCH = 500
MAX_RESULT_BYTES = 256 * 1024
NOWHERE = "nowhere"
UNSENT = b'{"style": "cloudevents", "secret": null, "headers": {}}'
SHOWN_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class FanOutResult:
    """The result of one pass; `is_full` when the outbox may contain more."""

    deliveries: int = 0
    is_full: bool = False


class DeliveryTarget(NamedTuple):
    """A receiver of an event."""

    destination: str
    url: str
    style: str
    secret: str | None
    headers: dict[str, str]


async def fan_out(tx: Transaction, own_capacity: int, limit: int = BATCH) -> FanOutResult:
    """Fan out a batch; nothing while another relay does. Wakes other relays if it exceeds `own_capacity`."""
    if not await try_turn(tx, TURN):
        return FanOutResult()
    events = await store.take_outbox(tx, limit, MAX_RESULT_BYTES)
    if not events:
        return FanOutResult()
    subscriptions = await store.load_subscriptions(tx, {event.tenant_id for event in events})
    deliveries = [delivery for event in events for delivery in _deliveries(event, subscriptions)]
    if deliveries:
        await store.insert_deliveries(tx, deliveries, calls_others=len(deliveries) > own_capacity)
    return FanOutResult(len(deliveries), len(events) >= limit)


async def fan_out_oldest(tx: Transaction, own_capacity: int) -> FanOutResult:
    """Fan out the oldest row. A row that fails becomes a dead letter."""
    if not await try_turn(tx, TURN):
        return FanOutResult()
    row_id = await store.oldest_in_outbox(tx)
    if row_id is None:
        return FanOutResult()
    try:
        async with tx.connection.transaction():  # a savepoint: the advisory lock is kept
            return await fan_out(tx, own_capacity, limit=1)
    except psycopg.OperationalError:  # an error of the database, not of the row
        raise
    except Exception as error:
        log.warning("outbox row set aside", row=row_id, error=_reason(error))
        await store.set_aside(tx, row_id, new_id(), _reason(error))
        return FanOutResult(0, is_full=True)


def _deliveries(event: OutboxEvent, subscriptions: Iterable[WebhookSubscription]) -> Iterator[NewDelivery]:
    """Yield a delivery for each interested receiver. An error for one receiver is a dead letter for it alone."""
    yield from _delivery_or_dead_letter(event, CALLBACK, _callback_target, event)
    for subscription in subscriptions:
        yield from _delivery_or_dead_letter(
            event, subscription.subscription_id, _subscription_target, event, subscription
        )


def _delivery_or_dead_letter(
    event: OutboxEvent, destination: str, find: Callable[..., DeliveryTarget | None], *arguments: object
) -> list[NewDelivery]:
    try:
        target = find(*arguments)
        return [] if target is None else [_delivery(event, target)]
    except Exception as error:
        log.warning("event set aside", job_id=event.job_id, destination=destination, error=_reason(error))
        fields = (event.tenant_id, event.job_id, event.seq or 0, event.type, destination, NOWHERE, "")
        return [NewDelivery(new_id(), *fields, UNSENT, b"null", _reason(error))]


def _reason(error: Exception) -> str:
    """Return the error in one line: a traceback could show secrets."""
    kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
    return f"cannot be rendered: {kind}{error}"[:SHOWN_CHARACTERS]


def _callback_target(event: OutboxEvent) -> DeliveryTarget | None:
    callback = None if event.callback is None else orjson.loads(event.callback)
    if callback is None:
        return None
    if not isinstance(callback, dict) or not isinstance(callback.get("url"), str):
        raise ValueError("a callback must be an object with a url")
    types, headers = callback.get("events") or [], callback.get("headers") or {}
    if not isinstance(types, list) or not isinstance(headers, dict):
        raise ValueError("the events of a callback must be a list, its headers an object")
    if not _matches(types, event.type):
        return None
    style = callback.get("style") or CLOUDEVENTS
    return DeliveryTarget(CALLBACK, callback["url"], style, callback.get("secret") or None, headers)


def _subscription_target(event: OutboxEvent, subscription: WebhookSubscription) -> DeliveryTarget | None:
    is_of_workflow = subscription.workflow_id is None or subscription.workflow_id == event.workflow_id
    if (
        subscription.tenant_id != event.tenant_id
        or not is_of_workflow
        or not _matches(subscription.types, event.type)
    ):
        return None
    return DeliveryTarget(
        subscription.subscription_id,
        subscription.url,
        subscription.style,
        subscription.secret,
        orjson.loads(subscription.headers),
    )


def _matches(types: list[str], kind: str) -> bool:
    return not types or kind in {full_type(name) for name in types}


def _delivery(event: OutboxEvent, target: DeliveryTarget) -> NewDelivery:
    delivery_id = new_id()
    hop = hops_of(None if event.labels is None else orjson.loads(event.labels)) + 1
    headers = {**target.headers, HOP: str(hop)}
    options = {"style": target.style, "secret": target.secret, "headers": headers, "type": event.type}
    options |= {} if event.trace_parent is None else {"trace_parent": event.trace_parent}
    return NewDelivery(
        delivery_id,
        event.tenant_id,
        event.job_id,
        event.seq or 0,
        event.type,
        target.destination,
        _origin(target.url),
        target.url,
        orjson.dumps(options),
        render(event, delivery_id, target.style),
    )


def _origin(url: str) -> str:
    try:
        return read_url(url).origin
    except ForbiddenDestination:  # the relay reports it
        return NOWHERE
