"""Views of one job: nodes, events, logs, timeline, progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field
from starlette.responses import Response

from cograil.api_schemas import job_schemas
from cograil.errors import NodeNotFound
from cograil.http.routes.job_routes import find_job
from cograil.http.server.dispatcher import Call, reply
from cograil.http.server.request_parsing import Query
from cograil.http.server.routing import Router
from cograil.model.workflow import Json
from cograil.store import job_queries
from cograil.store.job_queries import View
from cograil.store.log_queries import START, LogFilter, LogPosition, job_logs

job_views = Router("jobs")
DONE = ("completed", "skipped")


class EventQuery(Query):
    """Events after a number, and the page size."""

    after: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class LogQuery(Query):
    """Filters of log lines, the cursor to start after, and the page size."""

    node_id: Annotated[str, Field(min_length=1, max_length=80)] | None = None
    level: Literal["debug", "info", "warning", "error", "critical"] | None = None
    search: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    after: Annotated[str, Field(pattern=r"^[0-9]{1,18}\.[0-9]{1,18}$")] | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class NodesOf(Query):
    """All nodes, or one."""

    node_id: Annotated[str, Field(min_length=1, max_length=80)] | None = None


@job_views.get(
    "/jobs/{job_id}/nodes",
    "viewer",
    query=NodesOf,
    responses={200: "the nodes, children of fan-outs included"},
    response_model=job_schemas.NodesOfJob,
)
async def list_nodes(call: Call) -> Response:
    """List the nodes of a job, or one of them.

    A list has at most 32 MiB of inputs and outputs: those of nodes with `payload_omitted` are left out, and
    `node_id` returns one node with all of it.
    """
    only = call.query.node_id
    async with call.transaction("show") as tx:
        job, workflow = await find_job(call, tx)
        nodes = await job_queries.list_nodes(
            tx, job["job_id"], workflow, tenant=call.caller.tenant, only=only
        )
    if only is not None and not nodes:
        raise NodeNotFound(job["job_id"], only)
    return reply({"job_id": job["job_id"], "nodes": nodes})


@job_views.get(
    "/jobs/{job_id}/events",
    "viewer",
    query=EventQuery,
    responses={200: "events in their order"},
    response_model=job_schemas.EventPage,
)
async def list_events(call: Call) -> Response:
    """List the events of a job, without gaps."""
    return await _events(call, None)


@job_views.get(
    "/jobs/{job_id}/logs",
    "viewer",
    query=LogQuery,
    responses={200: "log lines in storage order; a page may be short, see next_cursor"},
    response_model=job_schemas.LogLines,
)
async def list_logs(call: Call) -> Response:
    """List what the handlers of a job logged.

    `node_id` and `search` filter lines, `level` is the lowest level. `after` is the `cursor` of a line, or a
    `next_cursor`; to follow a job, poll after the last line. The order of lines that workers store at the
    same moment is undefined.
    """
    query: LogQuery = call.query
    log_filter = LogFilter(query.node_id, query.level, query.search)
    after = START if query.after is None else LogPosition.read(query.after)
    async with call.transaction("show") as tx:
        job, _ = await find_job(call, tx)
        page = await job_logs(
            tx, job["job_id"], call.caller.tenant, log_filter, after=after, limit=query.limit
        )
    cursor = None if page.next is None else str(page.next)
    return reply({"job_id": job["job_id"], "logs": page.lines, "next_cursor": cursor})


@job_views.get(
    "/jobs/{job_id}/nodes/{node_id}/events", "viewer", query=EventQuery, response_model=job_schemas.EventPage
)
async def list_node_events(call: Call) -> Response:
    """List the events of one node."""
    return await _events(call, call.path["node_id"])


async def _events(call: Call, node_id: str | None) -> Response:
    query: EventQuery = call.query
    async with call.transaction("show") as tx:
        job, workflow = await find_job(call, tx)
        job_id, tenant = job["job_id"], call.caller.tenant
        events = await job_queries.list_events(
            tx, job_id, after=query.after, limit=query.limit, tenant=tenant, node=node_id
        )
        if (
            node_id is not None and not events and node_id not in workflow.nodes
        ):  # children are not part of the workflow
            nodes = await job_queries.list_nodes(tx, job_id, workflow, tenant=tenant)
            if node_id not in {node["node_id"] for node in nodes}:
                raise NodeNotFound(job_id, node_id[:64])
    after = events[-1]["seq"] if len(events) == query.limit else None
    return reply({"job_id": job_id, "events": events, "next_after": after})


@job_views.get(
    "/jobs/{job_id}/timeline",
    "viewer",
    query=EventQuery,
    responses={200: "the bars and the events"},
    response_model=job_schemas.Timeline,
)
async def show_timeline(call: Call) -> Response:
    """Show when each node ran, and what happened."""
    query: EventQuery = call.query
    async with call.transaction("show") as tx:
        job, workflow = await find_job(call, tx)
        tenant = call.caller.tenant
        nodes = await job_queries.list_nodes(tx, job["job_id"], workflow, tenant=tenant)
        events = await job_queries.list_events(
            tx, job["job_id"], after=query.after, limit=query.limit, tenant=tenant
        )
    bars = [_bar(node) for node in nodes if node["started_at"] is not None]
    return reply({"job_id": job["job_id"], "status": job["status"], "bars": bars, "events": events})


def _bar(node: View) -> View:
    fields = ("node_id", "status", "attempt", "started_at", "completed_at", "parent_node_id")
    seconds = None
    if node["completed_at"] is not None:
        seconds = (node["completed_at"] - node["started_at"]).total_seconds()
    return {name: node[name] for name in fields} | {"duration_seconds": seconds}


@job_views.get(
    "/jobs/{job_id}/progress",
    "viewer",
    responses={200: "the progress"},
    response_model=job_schemas.JobProgress,
)
async def show_progress(call: Call) -> Response:
    """Show the progress of a job."""
    async with call.transaction("show") as tx:
        job, workflow = await find_job(call, tx)
        nodes = await job_queries.list_nodes(tx, job["job_id"], workflow, tenant=call.caller.tenant)
    return reply({"job_id": job["job_id"], "status": job["status"]} | progress_of(nodes))


@job_views.get(
    "/jobs/{job_id}/nodes/{node_id}/progress",
    "viewer",
    responses={200: "the progress"},
    response_model=job_schemas.ProgressOfNode,
)
async def show_node_progress(call: Call) -> Response:
    """Show the progress of one node."""
    node_id = call.path["node_id"]
    async with call.transaction("show") as tx:
        job, workflow = await find_job(call, tx)
        nodes = await job_queries.list_nodes(tx, job["job_id"], workflow, tenant=call.caller.tenant)
    node = next((node for node in nodes if node["node_id"] == node_id), None)
    if node is None:
        raise NodeNotFound(job["job_id"], node_id[:80])
    fields = ("node_id", "status", "attempt", "task_id", "children", "worker")
    return reply({"job_id": job["job_id"]} | {name: node[name] for name in fields} | _task_progress(node))


def progress_of(nodes: Sequence[View]) -> dict[str, Json]:
    """Return the share of completed nodes, and the progress that running nodes report."""
    counts = Counter(_counted_as(node["status"]) for node in nodes)
    done = counts["completed"] + counts["skipped"]
    states = ("completed", "running", "pending", "failed", "skipped", "waiting", "cancelled")
    return {
        "overall_percent": round(100 * done / len(nodes), 1) if nodes else 0.0,
        "nodes": {"total": len(nodes)} | {name: counts[name] for name in states},
        "current_tasks": [
            {"node_id": node["node_id"], "task_id": node["task_id"]} | _task_progress(node)
            for node in nodes
            if node["task_id"] is not None and _counted_as(node["status"]) == "running"
        ],
    }


def _counted_as(status: str) -> str:
    """Return the state for progress, which ignores queues: dispatched is running, ready is pending."""
    return {"dispatched": "running", "ready": "pending"}.get(status, status)


def _task_progress(node: View) -> dict[str, Json]:
    progress = node["progress"] or {}
    current, total = progress.get("current"), progress.get("total")
    percent = round(100 * current / total, 1) if current is not None and total else None
    if node["status"] in DONE:
        percent = 100.0
    return {
        "progress_current": current,
        "progress_total": total,
        "progress_percent": percent,
        "progress_message": progress.get("message"),
    }
