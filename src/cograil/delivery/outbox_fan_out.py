"""Spreading: each row of the outbox becomes a delivery for everybody who wants to hear it.

One at a time does this, whoever has the turn: so the events of a job become deliveries in their order.
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
class Spread:
    """What one pass did; `is_full` when there may be more."""

    deliveries: int = 0
    is_full: bool = False


class Wish(NamedTuple):
    """Somebody who wants to hear of it."""

    destination: str
    url: str
    style: str
    secret: str | None
    headers: dict[str, str]


async def spread(tx: Transaction, own_hands: int, limit: int = BATCH) -> Spread:
    """Spread a batch; nothing when somebody else is at it. Other relays are called if it is much."""
    if not await try_turn(tx, TURN):
        return Spread()
    told = await store.take_outbox(tx, limit, MAX_RESULT_BYTES)
    if not told:
        return Spread()
    subscriptions = await store.load_subscriptions(tx, {one.tenant_id for one in told})
    made = [delivery for one in told for delivery in _deliveries(one, subscriptions)]
    if made:
        await store.insert_deliveries(tx, made, calls_others=len(made) > own_hands)
    return Spread(len(made), len(told) >= limit)


async def spread_oldest(tx: Transaction, own_hands: int) -> Spread:
    """Spread one row. What cannot be spread, whatever the reason, becomes a dead letter."""
    if not await try_turn(tx, TURN):
        return Spread()
    row_id = await store.oldest_in_outbox(tx)
    if row_id is None:
        return Spread()
    try:
        async with tx.connection.transaction():  # a savepoint: the turn stays ours
            return await spread(tx, own_hands, limit=1)
    except psycopg.OperationalError:  # the database's fault, not the row's
        raise
    except Exception as error:
        log.warning("row of the outbox set aside", row=row_id, error=_reason(error))
        await store.set_aside(tx, row_id, new_id(), _reason(error))
        return Spread(0, is_full=True)


def _deliveries(told: OutboxEvent, subscriptions: Iterable[WebhookSubscription]) -> Iterator[NewDelivery]:
    """For everybody who wants to hear it. What cannot be told to one is a dead letter of theirs alone."""
    yield from _to(told, CALLBACK, _callback_wish, told)
    for one in subscriptions:
        yield from _to(told, one.subscription_id, _subscription_wish, told, one)


def _to(
    told: OutboxEvent, destination: str, find: Callable[..., Wish | None], *given: object
) -> list[NewDelivery]:
    try:
        wish = find(*given)
        return [] if wish is None else [_delivery(told, wish)]
    except Exception as error:
        log.warning("event set aside", job_id=told.job_id, destination=destination, error=_reason(error))
        facts = (told.tenant_id, told.job_id, told.seq or 0, told.type, destination, NOWHERE, "")
        return [NewDelivery(new_id(), *facts, UNSENT, b"null", _reason(error))]


def _reason(error: Exception) -> str:
    """In one line: a trace would show the secrets at hand."""
    kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
    return f"cannot be told: {kind}{error}"[:SHOWN_CHARACTERS]


def _callback_wish(told: OutboxEvent) -> Wish | None:
    callback = None if told.callback is None else orjson.loads(told.callback)
    if callback is None:
        return None
    if not isinstance(callback, dict) or not isinstance(callback.get("url"), str):
        raise ValueError("a callback is an object with a url")
    types, headers = callback.get("events") or [], callback.get("headers") or {}
    if not isinstance(types, list) or not isinstance(headers, dict):
        raise ValueError("events of a callback are a list, headers an object")
    if not _wants(types, told.type):
        return None
    style = callback.get("style") or CLOUDEVENTS
    return Wish(CALLBACK, callback["url"], style, callback.get("secret") or None, headers)


def _subscription_wish(told: OutboxEvent, one: WebhookSubscription) -> Wish | None:
    fits = one.workflow_id is None or one.workflow_id == told.workflow_id
    if one.tenant_id != told.tenant_id or not fits or not _wants(one.types, told.type):
        return None
    return Wish(one.subscription_id, one.url, one.style, one.secret, orjson.loads(one.headers))


def _wants(types: list[str], kind: str) -> bool:
    return not types or kind in {full_type(name) for name in types}


def _delivery(told: OutboxEvent, wish: Wish) -> NewDelivery:
    delivery_id = new_id()
    hop = hops_of(None if told.labels is None else orjson.loads(told.labels)) + 1
    headers = {**wish.headers, HOP: str(hop)}
    sending = {"style": wish.style, "secret": wish.secret, "headers": headers, "type": told.type}
    sending |= {} if told.trace_parent is None else {"trace_parent": told.trace_parent}
    return NewDelivery(
        delivery_id,
        told.tenant_id,
        told.job_id,
        told.seq or 0,
        told.type,
        wish.destination,
        _origin(wish.url),
        wish.url,
        orjson.dumps(sending),
        render(told, delivery_id, wish.style),
    )


def _origin(url: str) -> str:
    try:
        return read_url(url).origin
    except ForbiddenDestination:  # the relay will say so
        return NOWHERE
