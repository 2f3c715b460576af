"""Workflows: the published ones, their graphs and versions, and the difference of two versions."""

from __future__ import annotations

import asyncio
import difflib
from datetime import timedelta
from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from cograil import clock
from cograil.definitions import load_workflow
from cograil.errors import WorkflowNotFound
from cograil.http.server.request_parsing import Query
from cograil.store import job_queries, monitoring_queries
from cograil.store import workflow_queries as store
from cograil.store.database import Transaction
from cograil.store.job_queries import View
from cograil.store.job_snapshot import count_waiting_jobs
from cograil.store.pause_queries import list_pauses
from cograil.ui.graph_model import graph_of
from cograil.ui.page_context import HTML, PageRequest, pages
from cograil.ui.rendering import page

workflows = pages("workflows")
DAYS = 7
MAX_COMPARED_LINES = 10_000
MAX_COUNTED = 20_000
Number = Annotated[int, Field(ge=1, le=2**31 - 1)] | None


class Versions(Query):
    """The version to show, and the one to compare with."""

    version: Number = None
    against: Number = None


@workflows.get("/workflows", "viewer", media_type=HTML)
async def list_workflows(request: PageRequest) -> Response:
    """Show the newest version of each workflow, with its metrics."""
    tenant = request.caller.tenant
    async with request.transaction("show") as tx:
        versions = await store.list_workflows(tx, tenant)
        since = clock.now() - timedelta(days=DAYS)
        numbers = {
            metrics["workflow_id"]: metrics
            for metrics in await monitoring_queries.workflow_metrics(tx, tenant, since, None)
        }
        paused = {pause.name for pause in await list_pauses(tx, tenant) if pause.kind == "workflow"}
        waiting = await count_waiting_jobs(tx, tenant, MAX_COUNTED)
    newest: dict[str, View] = {}
    for version in versions:
        newest.setdefault(version["workflow_id"], version)
    counts = {}
    for name in newest:
        active = numbers[name]["active"] if name in numbers else 0
        counts[name] = {"waiting": waiting.get(name, 0), "active": max(0, active - waiting.get(name, 0))}
    return page(
        request,
        "workflows.html",
        workflows=list(newest.values()),
        numbers=numbers,
        counts=counts,
        paused=paused,
        days=DAYS,
    )


@workflows.get("/workflows/{workflow_id}", "viewer", query=Versions, media_type=HTML)
async def show_workflow(request: PageRequest) -> Response:
    """Show a version with its graph; with `against`, the changes since that version."""
    query: Versions = request.query
    name, tenant = request.path["workflow_id"], request.caller.tenant
    async with request.transaction("show") as tx:
        shown = await _find(tx, tenant, name, query.version)
        versions = await store.list_versions(tx, tenant, name)
        other = None if query.against is None else await _find(tx, tenant, name, query.against)
        since = clock.now() - timedelta(days=DAYS)
        numbers = await monitoring_queries.node_metrics(tx, tenant, since, name)
        jobs = await job_queries.list_jobs(tx, tenant=tenant, workflow=name, limit=8)
        paused = [
            pause for pause in await list_pauses(tx, tenant) if (pause.kind, pause.name) == ("workflow", name)
        ]
    workflow = await asyncio.to_thread(load_workflow, shown["definition"])
    changes = None
    if other is not None:
        changes = await asyncio.to_thread(changes_between, other["source"] or "", shown["source"] or "")
    return await asyncio.to_thread(
        page,
        request,
        "workflow.html",
        shown=shown,
        workflow=workflow,
        graph=await asyncio.to_thread(graph_of, workflow),
        versions=versions,
        other=other,
        changes=changes,
        numbers={node["node_id"]: node for node in numbers if not node["is_child"]},
        jobs=jobs,
        paused=paused[0] if paused else None,
        days=DAYS,
    )


async def _find(tx: Transaction, tenant: str, name: str, version: int | None) -> View:
    record = await store.show_workflow(tx, tenant, name, version)
    if record is None:
        raise WorkflowNotFound(name[:64], version)
    return record


def changes_between(old: str, new: str) -> list[tuple[str, str]]:
    """Return the lines of a diff with their kind: added, removed, same, or hunk."""
    if max(old.count("\n"), new.count("\n")) > MAX_COMPARED_LINES:
        return [("part", f"these versions have more than {MAX_COMPARED_LINES:,} lines: compare their files")]
    kinds = {"+": "added", "-": "removed", " ": "same", "@": "part"}
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=4)
    return [(kinds.get(line[:1], "same"), line) for line in list(lines)[2:]]
