"""Monitoring pages: nodes and tasks across jobs, queues, processes, health, the audit log."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode

import orjson
from pydantic import Field
from starlette.responses import Response

from cograil.http.routes.health_routes import show_health
from cograil.http.server.problem_details import Refusal
from cograil.http.server.request_parsing import Query
from cograil.model.job import shown_node_status
from cograil.model.states import NODE_STATES
from cograil.store import job_queries
from cograil.store import monitoring_queries as store
from cograil.store.api_keys import list_audit
from cograil.ui.page_context import HTML, PageRequest, as_call, pages
from cograil.ui.pages.node_page import histogram
from cograil.ui.rendering import page

watching = pages("watching")
PAGE = 100
NODES_SHOWN, JOBS_WITH_WORKERS = 50, 30
ENDED, SHOWN_ENDED = 500, 50  # ended attempts that are measured, and that are listed
Word = Annotated[str, Field(max_length=256)]
Cursor = Annotated[str, Field(max_length=1024)]
TASK_STATES = ("ready", "held", "running")


class NodeFilters(Query):
    """The filter of the node list."""

    status: Word = ""
    workflow_id: Word = ""
    name: Word = ""
    children: Word = ""
    cursor: Cursor = ""


class TaskFilters(Query):
    """The filter of the task list."""

    state: Word = ""
    queue: Word = ""
    handler: Word = ""
    worker: Word = ""
    cursor: Cursor = ""


class AuditQuery(Query):
    """The page of the audit log."""

    cursor: Cursor = ""


def checked_choice(value: str, known: tuple[str, ...]) -> str | None:
    """Return the value if it is known, or None if empty. Raises Refusal for anything else."""
    if value and value not in known:
        raise Refusal(422, "invalid_parameter", f"one of {', '.join(known)}")
    return value or None


def _node_status(text: str) -> str | None:
    """Return the node status, by its API or display name. Raises Refusal for an unknown one."""
    shown = {shown_node_status(name): name for name in NODE_STATES}
    return text if text in NODE_STATES else shown.get(text) or checked_choice(text, tuple(shown))


def older_of(
    request: PageRequest, position: str | None, filters: dict[str, Any], bound: tuple[Any, ...]
) -> str | None:
    """Return the query string of the next page."""
    if position is None:
        return None
    parameters = {name: value for name, value in filters.items() if value and name != "cursor"}
    return urlencode(parameters | {"cursor": request.context.cursors.make(position, *bound)})


@watching.get("/nodes", "viewer", query=NodeFilters, media_type=HTML)
async def list_nodes(request: PageRequest) -> Response:
    """Show nodes across jobs, newest jobs first."""
    query: NodeFilters = request.query
    tenant, status = request.caller.tenant, _node_status(query.status)
    workflow = query.workflow_id.strip() or None
    name, has_children = query.name.strip() or None, query.children == "yes"
    bound = (tenant, "pages of nodes", status, workflow, name, query.children)
    position = request.context.cursors.read(query.cursor, *bound) if query.cursor else ""
    after = (position.partition(" ")[0], position.partition(" ")[2]) if position else None
    async with request.transaction("show") as tx:
        nodes, stopped_at = await store.nodes_across(
            tx,
            tenant,
            workflow=workflow,
            status=status,
            after=after,
            limit=NODES_SHOWN,
            name=name,
            has_children=has_children,
        )
        ended = list(dict.fromkeys(node["job_id"] for node in nodes if not node["worker"]))
        workers = await store.last_workers(tx, tenant, ended[:JOBS_WITH_WORKERS])
    for node in nodes:
        node["worker"] = node["worker"] or workers.get((node["job_id"], node["node_id"]))
    older = older_of(request, stopped_at and " ".join(stopped_at), query.model_dump(), bound)
    return page(
        request,
        "nodes.html",
        nodes=nodes,
        filters=query,
        status_filter=status,
        states=NODE_STATES[1:],
        older=older,
    )


@watching.get("/tasks", "viewer", query=TaskFilters, media_type=HTML)
async def list_tasks(request: PageRequest) -> Response:
    """Show queued and running attempts, and the results and durations of recently ended ones."""
    query: TaskFilters = request.query
    tenant, state = request.caller.tenant, checked_choice(query.state, TASK_STATES)
    queue, handler, worker = (text.strip() or None for text in (query.queue, query.handler, query.worker))
    bound = (tenant, "pages of tasks", state, queue, handler, worker)
    before = int(request.context.cursors.read(query.cursor, *bound)) if query.cursor else None
    async with request.transaction("show") as tx:
        tasks, stopped_at = await store.live_tasks(
            tx, tenant, state=state, queue=queue, handler=handler, worker=worker, before=before, limit=PAGE
        )
        ended = await store.ended_tasks(tx, tenant, worker, ENDED)
    seconds = [
        (task["ended_at"] - task["started_at"]).total_seconds() for task in ended if task["started_at"]
    ]
    return page(
        request,
        "tasks.html",
        tasks=tasks,
        filters=query,
        states=TASK_STATES,
        workers=sorted({task["worker"] for task in (*tasks, *ended) if task["worker"]}),
        ended=ended,
        shown=SHOWN_ENDED,
        bars=histogram(seconds),
        older=older_of(request, None if stopped_at is None else str(stopped_at), query.model_dump(), bound),
    )


@watching.get("/queues", "viewer", media_type=HTML)
async def show_queues(request: PageRequest) -> Response:
    """Show the queues, with their depth and oldest age."""
    async with request.transaction("show") as tx:
        queues = await store.queue_status(tx, request.caller.tenant)
    return page(request, "queues.html", queues=queues)


@watching.get("/workers", "operator", media_type=HTML)
async def show_processes(request: PageRequest) -> Response:
    """Show workers and orchestrators, and their last heartbeats."""
    async with request.transaction("show") as tx:
        processes = await job_queries.list_processes(tx)
        seconds, handlers = await store.health_work(tx, request.caller.tenant)
    return page(
        request,
        "workers.html",
        workers=[process for process in processes if process["kind"] == "worker"],
        orchestrators=[process for process in processes if process["kind"] == "orchestrator"],
        oldest_news_seconds=seconds,
        missing=handlers,
    )


@watching.get("/health", "viewer", media_type=HTML, allows_stale_auth=True)
async def show_checks(request: PageRequest) -> Response:
    """Show all health checks."""
    answer = await show_health(as_call(request))
    return page(request, "health.html", health=orjson.loads(bytes(answer.body)))


@watching.get("/audit", "admin", query=AuditQuery, media_type=HTML)
async def show_audit(request: PageRequest) -> Response:
    """Show the audit log, newest first."""
    tenant, cursor = request.caller.tenant, request.query.cursor
    bound = (tenant, "pages of the audit")
    before = int(request.context.cursors.read(cursor, *bound)) if cursor else None
    async with request.transaction("show") as tx:
        entries = await list_audit(tx, tenant, before, PAGE)
    position = str(entries[-1]["id"]) if len(entries) == PAGE else None
    return page(request, "audit.html", entries=entries, older=older_of(request, position, {}, bound))
