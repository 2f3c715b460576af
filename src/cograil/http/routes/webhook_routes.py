"""Who is told of events: subscriptions, and deliveries: on their way, made, or given up."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from starlette.responses import Response

from cograil.api_schemas import monitoring_schemas
from cograil.http.routes.job_action_routes import actor
from cograil.http.server.dispatcher import Call, reply
from cograil.http.server.request_parsing import Body, Query
from cograil.http.server.routing import Router
from cograil.verbs import outbox
from cograil.verbs.callback_targets import Receiver

webhooks = Router("deliveries")


class NewSubscription(Body):
    """Whom to tell what; no types mean all, no workflow means any."""

    url: Annotated[str, Field(min_length=1, max_length=2048)]
    types: Annotated[list[str], Field(max_length=100)] = Field(default_factory=list)
    workflow_id: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    secret: Annotated[str, Field(max_length=256)] | None = None
    style: str = "cloudevents"
    headers: dict[str, str] = Field(default_factory=dict)


class Rotation(Body):
    """Another secret; one is made if none is given. For so many hours the old one signs beside it."""

    secret: Annotated[str, Field(max_length=256)] | None = None
    overlap_hours: Annotated[float, Field(strict=False, ge=0, le=outbox.MAX_OVERLAP_HOURS)] = (
        outbox.OVERLAP_HOURS
    )


class DeliveryList(Query):
    """Which deliveries."""

    state: Literal["pending", "delivered", "dead"] | None = None
    job_id: str | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    cursor: str | None = None


@webhooks.post(
    "/subscriptions",
    "operator",
    body=NewSubscription,
    responses={201: "the subscription with its secret, which is shown this once"},
    response_model=monitoring_schemas.SubscriptionWithSecret,
)
async def subscribe(call: Call) -> Response:
    """Tell this receiver what happens from now on."""
    given: NewSubscription = call.body
    receiver = Receiver(given.url, given.secret, given.style, given.headers)
    async with call.transaction("subscribe") as tx:
        made = await outbox.subscribe(
            tx,
            call.caller.tenant,
            receiver,
            call.context.settings.outbound,
            types=given.types,
            workflow_id=given.workflow_id,
            by=actor(call),
        )
        await call.audit(tx, "subscribe", made["subscription_id"], url=given.url)
    return reply(made, 201)


@webhooks.get(
    "/subscriptions",
    "viewer",
    responses={200: "without their secrets"},
    response_model=monitoring_schemas.SubscriptionList,
)
async def list_subscriptions(call: Call) -> Response:
    """List who is told."""
    async with call.transaction("show") as tx:
        return reply({"subscriptions": await outbox.list_subscriptions(tx, call.caller.tenant)})


@webhooks.get("/subscriptions/{subscription_id}", "viewer", response_model=monitoring_schemas.Subscription)
async def show_subscription(call: Call) -> Response:
    """Show one subscription."""
    async with call.transaction("show") as tx:
        name = call.path["subscription_id"]
        return reply(await outbox.show_subscription(tx, call.caller.tenant, name))


@webhooks.delete(
    "/subscriptions/{subscription_id}",
    "operator",
    responses={200: "it is told nothing more"},
    response_model=monitoring_schemas.Removed,
)
async def unsubscribe(call: Call) -> Response:
    """Tell this receiver nothing more."""
    name = call.path["subscription_id"]
    async with call.transaction("unsubscribe") as tx:
        await outbox.unsubscribe(tx, call.caller.tenant, name)
        await call.audit(tx, "unsubscribe", name)
    return reply({"subscription_id": name, "is_removed": True})


@webhooks.post(
    "/subscriptions/{subscription_id}/enable",
    "operator",
    body=Body,
    is_body_optional=True,
    response_model=monitoring_schemas.Subscription,
)
async def enable_subscription(call: Call) -> Response:
    """Tell a receiver again that had asked to be told no more."""
    name = call.path["subscription_id"]
    async with call.transaction("subscribe") as tx:
        shown = await outbox.enable_subscription(tx, call.caller.tenant, name)
        await call.audit(tx, "enable subscription", name)
    return reply(shown)


@webhooks.post(
    "/subscriptions/{subscription_id}/rotate",
    "operator",
    body=Rotation,
    is_body_optional=True,
    responses={200: "the subscription with its new secret, which is shown this once"},
    response_model=monitoring_schemas.SubscriptionWithSecret,
)
async def rotate_subscription(call: Call) -> Response:
    """Replace the secret of a subscription; for a day the old one signs beside it."""
    name, given = call.path["subscription_id"], call.body
    async with call.transaction("subscribe") as tx:
        shown = await outbox.rotate_subscription(
            tx, call.caller.tenant, name, given.secret, given.overlap_hours
        )
        await call.audit(tx, "rotate subscription", name, overlap_hours=given.overlap_hours)
    return reply(shown)


@webhooks.get(
    "/deliveries",
    "viewer",
    query=DeliveryList,
    responses={200: "a page of them, newest first"},
    response_model=monitoring_schemas.DeliveryPage,
)
async def list_deliveries(call: Call) -> Response:
    """List what was told, what is on its way, and what could not be told."""
    asked: DeliveryList = call.query
    bound = (call.caller.tenant, "deliveries", asked.state, asked.job_id)
    before = None if asked.cursor is None else call.context.cursors.read(asked.cursor, *bound)
    async with call.transaction("show") as tx:
        found = await outbox.list_deliveries(
            tx,
            call.caller.tenant,
            state=asked.state,
            job_id=asked.job_id,
            before=before,
            limit=asked.limit,
        )
    is_last = len(found) < asked.limit
    cursor = None if is_last else call.context.cursors.make(found[-1]["delivery_id"], *bound)
    return reply({"deliveries": found, "next_cursor": cursor})


@webhooks.get("/deliveries/{delivery_id}", "viewer", response_model=monitoring_schemas.Delivery)
async def show_delivery(call: Call) -> Response:
    """Show one delivery with its tries."""
    async with call.transaction("show") as tx:
        return reply(await outbox.show_delivery(tx, call.caller.tenant, call.path["delivery_id"]))


@webhooks.post(
    "/deliveries/{delivery_id}/resend",
    "operator",
    body=Body,
    is_body_optional=True,
    responses={200: "it is on its way again", 409: "it is still on its way"},
    response_model=monitoring_schemas.Delivery,
)
async def resend(call: Call) -> Response:
    """Send again what was told or could not be told: the same event, under the same id."""
    name = call.path["delivery_id"]
    async with call.transaction("resend") as tx:
        shown = await outbox.resend(tx, call.caller.tenant, name)
        await call.audit(tx, "resend", name)
    return reply(shown)
