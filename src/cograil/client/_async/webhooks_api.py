"""Who is told of events, and what became of it."""

from __future__ import annotations

from typing import Literal

from typing_extensions import Unpack

from cograil.client._async.transport import Calling
from cograil.client.models import (
    Delivery,
    DeliveryPage,
    Removed,
    Subscription,
    SubscriptionFacts,
    SubscriptionWithSecret,
    step,
)


class Telling(Calling):
    """Subscriptions and deliveries."""

    async def subscribe(self, url: str, **facts: Unpack[SubscriptionFacts]) -> SubscriptionWithSecret:
        """Tell this receiver what happens from now on; its secret is shown this once."""
        subscription: SubscriptionWithSecret = await self._ask(
            "POST", "/subscriptions", {"url": url, **facts}
        )
        return subscription

    async def subscriptions(self) -> list[Subscription]:
        """Who is told."""
        subscriptions: list[Subscription] = (await self._ask("GET", "/subscriptions"))["subscriptions"]
        return subscriptions

    async def subscription(self, subscription_id: str) -> Subscription:
        """One of them."""
        subscription: Subscription = await self._ask("GET", f"/subscriptions/{step(subscription_id)}")
        return subscription

    async def unsubscribe(self, subscription_id: str) -> Removed:
        """Tell this receiver nothing more."""
        removed: Removed = await self._ask("DELETE", f"/subscriptions/{step(subscription_id)}")
        return removed

    async def enable_subscription(self, subscription_id: str) -> Subscription:
        """Tell a receiver again that had asked to be told no more."""
        subscription: Subscription = await self._ask("POST", f"/subscriptions/{step(subscription_id)}/enable")
        return subscription

    async def rotate_subscription(
        self, subscription_id: str, secret: str | None = None, *, overlap_hours: float = 24.0
    ) -> SubscriptionWithSecret:
        """Replace its secret, by a new one if none is given; for so long the old one signs beside it."""
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
        """A page of what was told, what is on its way, and what could not be told; newest first."""
        params = {"state": state, "job_id": job_id, "limit": limit, "cursor": cursor}
        page: DeliveryPage = await self._ask("GET", "/deliveries", params=params)
        return page

    async def delivery(self, delivery_id: str) -> Delivery:
        """One delivery with its tries."""
        delivery: Delivery = await self._ask("GET", f"/deliveries/{step(delivery_id)}")
        return delivery

    async def resend(self, delivery_id: str) -> Delivery:
        """Send it again: the same event, under the same id."""
        delivery: Delivery = await self._ask("POST", f"/deliveries/{step(delivery_id)}/resend")
        return delivery
