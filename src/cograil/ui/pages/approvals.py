"""The inbox: approvals that wait for somebody's answer."""

from __future__ import annotations

from starlette.responses import Response

from cograil.store.board import waiting_nodes
from cograil.ui.rendering import page
from cograil.ui.visits import HTML, Visit, pages

approvals = pages("approvals")
MOST = 200


@approvals.get("/approvals", "viewer", media_type=HTML)
async def list_approvals(visit: Visit) -> Response:
    """Questions, the oldest first."""
    async with visit.transaction("show") as tx:
        waiting = await waiting_nodes(tx, visit.caller.tenant, MOST)
    return page(visit, "approvals.html", waiting=waiting, most=MOST)
