"""A job seen from close by: its nodes, its events, its timeline, its progress."""

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


class EventPage(Query):
    """Events after a number, at most so many."""

    after: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class LogQuery(Query):
    """Which log lines, after which one, at most so many."""

    node_id: Annotated[str, Field(min_length=1, max_length=80)] | None = None
    level: Literal["debug", "info", "warning", "error", "critical"] | None = None
    search: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    after: Annotated[str, Field(pattern=r"^[0-9]{1,18}\.[0-9]{1,18}$")] | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class NodesOf(Query):
    """All of them, or one."""

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

    Of inputs and outputs a list has 32 MiB: those of nodes where `payload_omitted` is true were too much for it,
    and `node_id` asks for one node alone.
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
    query=EventPage,
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
    responses={200: "log lines in the order in which they were stored; a page may be short, see next_cursor"},
    response_model=job_schemas.LogLines,
)
async def list_logs(call: Call) -> Response:
    """List what the handlers of a job logged.

    `node_id` and `search` choose lines, `level` those of this level and above. `after` is the `cursor` of a
    line, or a `next_cursor`; to follow a job, ask again after the last line. Workers that store lines at the
    same moment may do so in either order.
    """
    asked: LogQuery = call.query
    wanted = LogFilter(asked.node_id, asked.level, asked.search)
    after = START if asked.after is None else LogPosition.read(asked.after)
    async with call.transaction("show") as tx:
        job, _ = await find_job(call, tx)
        found = await job_logs(tx, job["job_id"], call.caller.tenant, wanted, after=after, limit=asked.limit)
    cursor = None if found.next is None else str(found.next)
    return reply({"job_id": job["job_id"], "logs": found.lines, "next_cursor": cursor})


@job_views.get(
    "/jobs/{job_id}/nodes/{node_id}/events", "viewer", query=EventPage, response_model=job_schemas.EventPage
)
async def list_node_events(call: Call) -> Response:
    """List the events of one node."""
    return await _events(call, call.path["node_id"])


async def _events(call: Call, node_id: str | None) -> Response:
    asked: EventPage = call.query
    async with call.transaction("show") as tx:
        job, workflow = await find_job(call, tx)
        job_id, tenant = job["job_id"], call.caller.tenant
        found = await job_queries.list_events(
            tx, job_id, after=asked.after, limit=asked.limit, tenant=tenant, node=node_id
        )
        if node_id is not None and not found and node_id not in workflow.nodes:  # children are no part of it
            nodes = await job_queries.list_nodes(tx, job_id, workflow, tenant=tenant)
            if node_id not in {node["node_id"] for node in nodes}:
                raise NodeNotFound(job_id, node_id[:64])
    after = found[-1]["seq"] if len(found) == asked.limit else None
    return reply({"job_id": job_id, "events": found, "next_after": after})


@job_views.get(
    "/jobs/{job_id}/timeline",
    "viewer",
    query=EventPage,
    responses={200: "what happened, and when"},
    response_model=job_schemas.Timeline,
)
async def show_timeline(call: Call) -> Response:
    """Show when each node ran, and what happened."""
    asked: EventPage = call.query
    async with call.transaction("show") as tx:
        job, workflow = await find_job(call, tx)
        tenant = call.caller.tenant
        nodes = await job_queries.list_nodes(tx, job["job_id"], workflow, tenant=tenant)
        found = await job_queries.list_events(
            tx, job["job_id"], after=asked.after, limit=asked.limit, tenant=tenant
        )
    bars = [_bar(node) for node in nodes if node["started_at"] is not None]
    return reply({"job_id": job["job_id"], "status": job["status"], "bars": bars, "events": found})


def _bar(node: View) -> View:
    kept = ("node_id", "status", "attempt", "started_at", "completed_at", "parent_node_id")
    seconds = None
    if node["completed_at"] is not None:
        seconds = (node["completed_at"] - node["started_at"]).total_seconds()
    return {name: node[name] for name in kept} | {"duration_seconds": seconds}


@job_views.get(
    "/jobs/{job_id}/progress",
    "viewer",
    responses={200: "how far it is"},
    response_model=job_schemas.JobProgress,
)
async def show_progress(call: Call) -> Response:
    """Show how far a job is."""
    async with call.transaction("show") as tx:
        job, workflow = await find_job(call, tx)
        nodes = await job_queries.list_nodes(tx, job["job_id"], workflow, tenant=call.caller.tenant)
    return reply({"job_id": job["job_id"], "status": job["status"]} | progress_of(nodes))


@job_views.get(
    "/jobs/{job_id}/nodes/{node_id}/progress",
    "viewer",
    responses={200: "how far it is"},
    response_model=job_schemas.ProgressOfNode,
)
async def show_node_progress(call: Call) -> Response:
    """Show how far one node is."""
    node_id = call.path["node_id"]
    async with call.transaction("show") as tx:
        job, workflow = await find_job(call, tx)
        nodes = await job_queries.list_nodes(tx, job["job_id"], workflow, tenant=call.caller.tenant)
    node = next((one for one in nodes if one["node_id"] == node_id), None)
    if node is None:
        raise NodeNotFound(job["job_id"], node_id[:80])
    facts = ("node_id", "status", "attempt", "task_id", "children", "worker")
    return reply({"job_id": job["job_id"]} | {name: node[name] for name in facts} | _task_progress(node))


def progress_of(nodes: Sequence[View]) -> dict[str, Json]:
    """What share of the nodes is done, and what those that run say of themselves."""
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
    """Dispatched counts as running, ready as pending: who asks for progress does not care for queues."""
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
