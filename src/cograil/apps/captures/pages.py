"""Captures: those of the caller's user, with their states and the jobs that seal them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from cograil.app_registry import AppPages, NavigationEntry
from cograil.apps.captures import queries
from cograil.apps.captures.states import ANCHORED, FAILED, SEALED, SEALING, UPLOADED
from cograil.http.server.request_parsing import Query
from cograil.ui.page_context import HTML, PageRequest, pages
from cograil.ui.pages.monitoring_pages import checked_choice, older_of
from cograil.ui.rendering import page

captures = pages("captures")
ENTRY = NavigationEntry(
    "captures", "/ui/captures", "Captures", "M4 8h3l2-3h6l2 3h3v11H4zM12 16a3 3 0 1 0 0-6 3 3 0 0 0 0 6z"
)
PAGE = 100
STATES = (UPLOADED, SEALING, SEALED, ANCHORED, FAILED)
COLOURS = {SEALED: "completed", ANCHORED: "completed", FAILED: "failed", SEALING: "running"}


class CaptureFilters(Query):
    """The filters of the list."""

    state: Annotated[str, Field(max_length=20)] = ""
    cursor: Annotated[str, Field(max_length=1024)] = ""


@captures.get("/captures", "viewer", query=CaptureFilters, media_type=HTML)
async def list_captures(request: PageRequest) -> Response:
    """The captures of the caller's user, newest first."""
    filters: CaptureFilters = request.query
    caller, state = request.caller, checked_choice(filters.state, STATES)
    bound = (caller.tenant, caller.user_id, "pages of captures", state)
    before = request.context.cursors.read(filters.cursor, *bound) if filters.cursor else None
    async with request.transaction("show_capture") as tx:
        await queries.act_for_user(tx, caller.user_id)
        listed = await queries.list_captures(tx, caller.tenant, state=state, before=before, limit=PAGE)
    last_id = listed[-1].id if len(listed) == PAGE else None
    return page(
        request,
        "captures.html",
        captures=listed,
        filters=filters,
        states=STATES,
        colours=COLOURS,
        older=older_of(request, last_id, filters.model_dump(), bound),
    )


def app_pages() -> AppPages:
    """The pages of this app."""
    return AppPages(ENTRY, captures)
