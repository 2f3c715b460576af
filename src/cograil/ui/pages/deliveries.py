"""Deliveries: what was told to whom, what is on its way, what could not be told."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from cograil.intake.http.reading import Query
from cograil.model.ids import is_id
from cograil.ui.pages.watching import chosen, older_of
from cograil.ui.rendering import page
from cograil.ui.visits import HTML, Visit, pages
from cograil.verbs import outbox

deliveries = pages("deliveries")
PAGE = 100
STATES = ("pending", "delivered", "dead")


class DeliveryFilters(Query):
    """Which deliveries."""

    state: Annotated[str, Field(max_length=20)] = ""
    job_id: Annotated[str, Field(max_length=64)] = ""
    cursor: Annotated[str, Field(max_length=1024)] = ""


@deliveries.get("/deliveries", "viewer", query=DeliveryFilters, media_type=HTML)
async def list_deliveries(visit: Visit) -> Response:
    """Deliveries, newest first, and who is told."""
    asked: DeliveryFilters = visit.query
    tenant, state = visit.caller.tenant, chosen(asked.state, STATES)
    job_id = asked.job_id.strip() if is_id(asked.job_id.strip()) else None
    bound = (tenant, "pages of deliveries", state, job_id)
    before = visit.instance.cursors.read(asked.cursor, *bound) if asked.cursor else None
    async with visit.transaction("show") as tx:
        found = await outbox.list_deliveries(
            tx, tenant, state=state, job_id=job_id, before=before, limit=PAGE
        )
        subscriptions = await outbox.list_subscriptions(tx, tenant)
    place = found[-1]["delivery_id"] if len(found) == PAGE else None
    return page(
        visit,
        "deliveries.html",
        deliveries=found,
        subscriptions=subscriptions,
        asked=asked,
        states=STATES,
        older=older_of(visit, place, asked.model_dump(), bound),
    )
