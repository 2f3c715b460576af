"""Telling the world: events of apps, subscriptions, and what became of deliveries.

What happens to a job is told by the engine itself, in the statement that writes it. An app tells what
happens to its own things with `tell`, in its own transaction: nobody hears of what was rolled back.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence

from cograil import strict_json
from cograil.errors import Conflict, DeliveryNotFound, InvalidInput, Problem, SubscriptionNotFound
from cograil.model.app_events import MAX_DATA_BYTES, checked_event
from cograil.model.ids import is_id, new_id
from cograil.model.workflow import Json
from cograil.setting_sections import OutboundSettings
from cograil.store import outbox_queries as store
from cograil.store.database import Transaction
from cograil.store.outbox_queries import View, WebhookSubscription
from cograil.verbs.callback_targets import SECRET_PREFIX, Receiver, check_receiver, check_secret, check_types

DELIVERY_STATES = ("pending", "delivered", "dead")
MAX_WORD = 64
KEY_BYTES = 32
OVERLAP_HOURS = 24.0
MAX_OVERLAP_HOURS = 7 * 24.0


async def tell(
    tx: Transaction,
    tenant: str,
    type: str,
    subject: str,
    data: Mapping[str, Json],
    *,
    job_id: str | None = None,
    sequence: int | None = None,
) -> bool:
    """Tell the subscribers of this tenant, and the callback of this job, that something happened.

    Whether anybody wants to hear it. Raises InvalidInput: a type is a name with dots, not of cograil's own.
    """
    text = checked_event(type, subject, data)
    return await store.insert_outbox(tx, tenant, type, subject, text, job_id, sequence)


async def subscribe(
    tx: Transaction,
    tenant: str,
    receiver: Receiver,
    policy: OutboundSettings,
    *,
    types: Sequence[str] = (),
    workflow_id: str | None = None,
    by: str = "",
) -> View:
    """From its commit on, tell this receiver what happens; no types mean all, no workflow means any.

    The subscription with its secret, which is shown this once. Raises InvalidInput.
    """
    check_receiver(receiver, policy)
    wanted = check_types(list(types))
    for word in (by, workflow_id or ""):
        if len(word) > MAX_WORD or "\0" in word:
            raise InvalidInput([Problem("invalid_value", f"more than {MAX_WORD} characters", "")])
    secret = receiver.secret or new_secret()
    headers = strict_json.write(dict(receiver.headers), max_bytes=MAX_DATA_BYTES)
    subscription = WebhookSubscription(
        tenant, new_id(), receiver.url, wanted, workflow_id, secret, receiver.style, headers
    )
    await store.add_subscription(tx, subscription, by)
    return await show_subscription(tx, tenant, subscription.subscription_id) | {"secret": secret}


def new_secret() -> str:
    """A secret as Standard Webhooks writes them."""
    return SECRET_PREFIX + base64.b64encode(os.urandom(KEY_BYTES)).decode()


async def list_subscriptions(tx: Transaction, tenant: str) -> list[View]:
    """Those of a tenant, without their secrets, oldest first."""
    return await store.list_subscriptions(tx, tenant)


async def show_subscription(tx: Transaction, tenant: str, subscription_id: str) -> View:
    """One of them. Raises SubscriptionNotFound."""
    subscriptions = (
        await store.list_subscriptions(tx, tenant, subscription_id) if is_id(subscription_id) else []
    )
    if not subscriptions:
        raise SubscriptionNotFound(subscription_id)
    return subscriptions[0]


async def unsubscribe(tx: Transaction, tenant: str, subscription_id: str) -> None:
    """Remove it, and what was on its way to it. Raises SubscriptionNotFound."""
    if not is_id(subscription_id) or not await store.remove_subscription(tx, tenant, subscription_id):
        raise SubscriptionNotFound(subscription_id)


async def enable_subscription(tx: Transaction, tenant: str, subscription_id: str) -> View:
    """Use it again from now on. Raises SubscriptionNotFound."""
    if not is_id(subscription_id) or not await store.enable_subscription(tx, tenant, subscription_id):
        raise SubscriptionNotFound(subscription_id)
    return await show_subscription(tx, tenant, subscription_id)


async def rotate_subscription(
    tx: Transaction,
    tenant: str,
    subscription_id: str,
    secret: str | None = None,
    overlap_hours: float = OVERLAP_HOURS,
) -> View:
    """Replace its secret, by a new one if none is given; for so long the old one signs beside it.

    The subscription with its secret, which is shown this once. What is already on its way is signed alike.
    Raises SubscriptionNotFound, or InvalidInput.
    """
    subscription = await show_subscription(tx, tenant, subscription_id)
    if not 0 <= overlap_hours <= MAX_OVERLAP_HOURS:
        message = f"between 0 and {MAX_OVERLAP_HOURS:g} hours"
        raise InvalidInput([Problem("out_of_range", message, "/overlap_hours")])
    secret = new_secret() if secret is None else secret
    check_secret(secret, subscription["style"])
    if not await store.rotate_secret(tx, tenant, subscription_id, secret, overlap_hours * 3600):
        raise SubscriptionNotFound(subscription_id)
    return subscription | {"secret": secret, "overlap_hours": overlap_hours}


async def list_deliveries(
    tx: Transaction,
    tenant: str,
    *,
    state: str | None = None,
    job_id: str | None = None,
    before: str | None = None,
    limit: int = 50,
) -> list[View]:
    """Newest first; `before` is the id of the last one of the page before."""
    if state is not None and state not in DELIVERY_STATES:
        message = f"a state is one of {', '.join(DELIVERY_STATES)}"
        raise InvalidInput([Problem("invalid_value", message, "/state")])
    return await store.list_deliveries(tx, tenant, state=state, job_id=job_id, before=before, limit=limit)


async def show_delivery(tx: Transaction, tenant: str, delivery_id: str) -> View:
    """One of them. Raises DeliveryNotFound."""
    deliveries = await store.list_deliveries(tx, tenant, delivery_id=delivery_id)
    if not deliveries:
        raise DeliveryNotFound(delivery_id)
    return deliveries[0]


async def resend(tx: Transaction, tenant: str, delivery_id: str) -> View:
    """Send it once more, with the same id and the same bytes, with all its tries before it.

    Raises DeliveryNotFound, or Conflict when it is still on its way.
    """
    delivery = await show_delivery(tx, tenant, delivery_id)
    if not await store.resend_delivery(tx, tenant, delivery_id):
        raise Conflict(f"delivery {delivery_id} is still on its way, after {delivery['tries']} tries")
    return await show_delivery(tx, tenant, delivery_id)
