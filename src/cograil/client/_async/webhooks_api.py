"""Webhooks: subscriptions and their deliveries."""

from __future__ import annotations

from typing import Literal

from typing_extensions import Unpack

from cograil.client._async.transport import Transport
from cograil.client.models import (
    Delivery,
    DeliveryPage,
    Removed,
    Subscription,
    SubscriptionFacts,
    SubscriptionWithSecret,
    step,
)


class WebhooksApi(Transport):
    """The methods for subscriptions and deliveries."""

    async def subscribe(self, url: str, **facts: Unpack[SubscriptionFacts]) -> SubscriptionWithSecret:
        """Subscribe a receiver to events from now on; its secret is returned only once."""
        subscription: SubscriptionWithSecret = await self._ask(
            "POST", "/subscriptions", {"url": url, **facts}
        )
        return subscription

    async def subscriptions(self) -> list[Subscription]:
        """Return the subscriptions."""
        subscriptions: list[Subscription] = (await self._ask("GET", "/subscriptions"))["subscriptions"]
        return subscriptions

    async def subscription(self, subscription_id: str) -> Subscription:
        """Return one subscription."""
        subscription: Subscription = await self._ask("GET", f"/subscriptions/{step(subscription_id)}")
        return subscription

    async def unsubscribe(self, subscription_id: str) -> Removed:
        """Remove a subscription."""
        removed: Removed = await self._ask("DELETE", f"/subscriptions/{step(subscription_id)}")
        return removed

    async def enable_subscription(self, subscription_id: str) -> Subscription:
        """Enable a subscription that its receiver disabled with 410."""
        subscription: Subscription = await self._ask("POST", f"/subscriptions/{step(subscription_id)}/enable")
        return subscription

    async def rotate_subscription(
        self, subscription_id: str, secret: str | None = None, *, overlap_hours: float = 24.0
    ) -> SubscriptionWithSecret:
        """Replace the secret, by default with a generated one; for `overlap_hours` the old one signs too."""
        body = {"secret": secret, "overlap_hours": overlap_hours}
        path = f"/subscriptions/{step(subscription_id)}/rotate"
        subscription: SubscriptionWithSecret = await self._ask("POST", path, body)
        return subscription

    async def deliveries(
        self,
        *,
        state: Literal["pending", "delivered", "dead"] | None = None,
        job_id: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> DeliveryPage:
        """Return a page of deliveries (pending, delivered, dead), newest first."""
        params = {"state": state, "job_id": job_id, "limit": limit, "cursor": cursor}
        page: DeliveryPage = await self._ask("GET", "/deliveries", params=params)
        return page

    async def delivery(self, delivery_id: str) -> Delivery:
        """Return one delivery with its attempts."""
        delivery: Delivery = await self._ask("GET", f"/deliveries/{step(delivery_id)}")
        return delivery

    async def resend(self, delivery_id: str) -> Delivery:
        """Send a delivery again: the same event, under the same id."""
        delivery: Delivery = await self._ask("POST", f"/deliveries/{step(delivery_id)}/resend")
        return delivery
