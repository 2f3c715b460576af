"""The inbox: approvals that wait for an answer."""

from __future__ import annotations

from starlette.responses import Response

from cograil.store.job_queries import find_jobs
from cograil.store.job_snapshot import waiting_nodes
from cograil.ui.page_context import HTML, PageRequest, pages
from cograil.ui.rendering import page

approvals = pages("approvals")
MOST = 200


@approvals.get("/approvals", "viewer", media_type=HTML)
async def list_approvals(request: PageRequest) -> Response:
    """Show waiting approvals, the oldest first, with the inputs of their jobs."""
    async with request.transaction("show") as tx:
        waiting = await waiting_nodes(tx, request.caller.tenant, MOST)
        jobs = await find_jobs(tx, [node["job_id"] for node in waiting], request.caller.tenant)
    waiting = [
        node | {"input_params": (jobs.get(node["job_id"]) or {}).get("input_params")} for node in waiting
    ]
    return page(request, "approvals.html", waiting=waiting, most=MOST)
