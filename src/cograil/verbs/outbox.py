"""Events for receivers: events of apps, subscriptions, and deliveries.

The statement that writes a change of a job also writes its event. An app publishes its own events with
`tell`, in its own transaction; an event of a transaction that rolls back is not sent.
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
    """Publish an event to the subscribers of this tenant and to the callback of this job.

    Returns whether anything is subscribed to it. Raises InvalidInput: a type is a name with dots outside of
    cograil's own names.
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
    """Send the events of this tenant to this receiver from the commit on. Empty `types` mean all types, no
    workflow means any workflow.

    Returns the subscription with its secret, which is shown only this once. Raises InvalidInput.
    """
    check_receiver(receiver, policy)
    wanted = check_types(list(types))
    for word in (by, workflow_id or ""):
        if len(word) > MAX_WORD or "\0" in word:
            raise InvalidInput([Problem("invalid_value", f"must have at most {MAX_WORD} characters", "")])
    secret = receiver.secret or new_secret()
    headers = strict_json.write(dict(receiver.headers), max_bytes=MAX_DATA_BYTES)
    subscription = WebhookSubscription(
        tenant, new_id(), receiver.url, wanted, workflow_id, secret, receiver.style, headers
    )
    await store.add_subscription(tx, subscription, by)
    return await show_subscription(tx, tenant, subscription.subscription_id) | {"secret": secret}


def new_secret() -> str:
    """Return a new secret in the format of Standard Webhooks."""
    return SECRET_PREFIX + base64.b64encode(os.urandom(KEY_BYTES)).decode()


async def list_subscriptions(tx: Transaction, tenant: str) -> list[View]:
    """Return the subscriptions of a tenant, without their secrets, oldest first."""
    return await store.list_subscriptions(tx, tenant)


async def show_subscription(tx: Transaction, tenant: str, subscription_id: str) -> View:
    """Return a subscription. Raises SubscriptionNotFound."""
    subscriptions = (
        await store.list_subscriptions(tx, tenant, subscription_id) if is_id(subscription_id) else []
    )
    if not subscriptions:
        raise SubscriptionNotFound(subscription_id)
    return subscriptions[0]


async def unsubscribe(tx: Transaction, tenant: str, subscription_id: str) -> None:
    """Remove a subscription and its open deliveries. Raises SubscriptionNotFound."""
    if not is_id(subscription_id) or not await store.remove_subscription(tx, tenant, subscription_id):
        raise SubscriptionNotFound(subscription_id)


async def enable_subscription(tx: Transaction, tenant: str, subscription_id: str) -> View:
    """Enable a subscription again. Raises SubscriptionNotFound."""
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
    """Replace its secret, with a new one when none is given; the old one signs too for `overlap_hours`.

    Returns the subscription with its secret, which is shown only this once. Open deliveries are signed in
    the same way. Raises SubscriptionNotFound, or InvalidInput.
    """
    subscription = await show_subscription(tx, tenant, subscription_id)
    if not 0 <= overlap_hours <= MAX_OVERLAP_HOURS:
        message = f"must be between 0 and {MAX_OVERLAP_HOURS:g} hours"
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
    """Return deliveries, newest first; `before` is the last id of the previous page."""
    if state is not None and state not in DELIVERY_STATES:
        message = f"a state must be one of {', '.join(DELIVERY_STATES)}"
        raise InvalidInput([Problem("invalid_value", message, "/state")])
    return await store.list_deliveries(tx, tenant, state=state, job_id=job_id, before=before, limit=limit)


async def show_delivery(tx: Transaction, tenant: str, delivery_id: str) -> View:
    """Return a delivery. Raises DeliveryNotFound."""
    deliveries = await store.list_deliveries(tx, tenant, delivery_id=delivery_id)
    if not deliveries:
        raise DeliveryNotFound(delivery_id)
    return deliveries[0]


async def resend(tx: Transaction, tenant: str, delivery_id: str) -> View:
    """Send a delivery again, with the same id and the same bytes; its earlier tries stay recorded.

    Raises DeliveryNotFound, or Conflict when the delivery has not ended.
    """
    delivery = await show_delivery(tx, tenant, delivery_id)
    if not await store.resend_delivery(tx, tenant, delivery_id):
        raise Conflict(f"delivery {delivery_id} is still in progress, after {delivery['tries']} tries")
    return await show_delivery(tx, tenant, delivery_id)
