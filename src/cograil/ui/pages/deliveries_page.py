"""Deliveries: events sent to receivers, pending ones and dead letters; and the subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import orjson
from pydantic import Field
from starlette.responses import Response

from cograil.errors import InvalidInput, Problem
from cograil.http.routes import webhook_routes
from cograil.http.server.request_parsing import Query, as_model
from cograil.model.ids import is_id
from cograil.model.workflow import Json
from cograil.store.job_queries import View
from cograil.ui.page_context import HTML, PageRequest, as_call, pages, sent_form
from cograil.ui.pages.action_forms import Action, add_actions, empty_body
from cograil.ui.pages.monitoring_pages import checked_choice, older_of
from cograil.ui.rendering import page
from cograil.verbs import outbox

deliveries = pages("deliveries")
PAGE = 100
STATES = ("pending", "delivered", "dead")


class DeliveryFilters(Query):
    """The filter of the delivery list."""

    state: Annotated[str, Field(max_length=20)] = ""
    job_id: Annotated[str, Field(max_length=64)] = ""
    cursor: Annotated[str, Field(max_length=1024)] = ""


@deliveries.get("/deliveries", "viewer", query=DeliveryFilters, media_type=HTML)
async def list_deliveries(request: PageRequest) -> Response:
    """Show deliveries, newest first, and subscriptions."""
    return await _listed(request, request.query)


async def _listed(
    request: PageRequest,
    filters: DeliveryFilters,
    *,
    created: View | None = None,
    form: Mapping[str, str] | None = None,
    problems: tuple[Problem, ...] = (),
) -> Response:
    tenant, state = request.caller.tenant, checked_choice(filters.state, STATES)
    job_id = filters.job_id.strip() if is_id(filters.job_id.strip()) else None
    bound = (tenant, "pages of deliveries", state, job_id)
    before = request.context.cursors.read(filters.cursor, *bound) if filters.cursor else None
    async with request.transaction("show") as tx:
        deliveries = await outbox.list_deliveries(
            tx, tenant, state=state, job_id=job_id, before=before, limit=PAGE
        )
        subscriptions = await outbox.list_subscriptions(tx, tenant)
    place = deliveries[-1]["delivery_id"] if len(deliveries) == PAGE else None
    return page(
        request,
        "deliveries.html",
        status=422 if problems else 200,
        deliveries=deliveries,
        subscriptions=subscriptions,
        filters=filters,
        states=STATES,
        older=older_of(request, place, filters.model_dump(), bound),
        created=created,
        form=form or {},
        problems=problems,
    )


@deliveries.post("/subscriptions", "operator", media_type=HTML)
async def add_subscription(request: PageRequest) -> Response:
    """Subscribe the receiver of the form; its secret is shown only on this page."""
    form = await sent_form(request)
    call = as_call(request)
    types = [name.strip() for name in form.get("types", "").split(",") if name.strip()]
    body: dict[str, Json] = {"url": form.get("url", "").strip(), "types": types}
    if workflow_id := form.get("workflow_id", "").strip():
        body["workflow_id"] = workflow_id
    try:
        call.body = as_model(body, webhook_routes.NewSubscription)
        answer = await webhook_routes.subscribe(call)
    except InvalidInput as error:
        return await _listed(request, DeliveryFilters(), form=form, problems=error.problems)
    return await _listed(request, DeliveryFilters(), created=orjson.loads(bytes(answer.body)))


add_actions(
    deliveries,
    Action(
        "/subscriptions/{subscription_id}/remove",
        "operator",
        webhook_routes.unsubscribe,
        empty_body,
        "Remove this subscription?",
        "Subscription removed",
        is_destructive=True,
    ),
    Action(
        "/subscriptions/{subscription_id}/enable",
        "operator",
        webhook_routes.enable_subscription,
        empty_body,
        "Enable this subscription?",
        "Subscription enabled",
    ),
)
