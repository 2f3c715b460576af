"""How all of it is doing: nodes and tasks across jobs, queues, processes, health, and who did what."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode

import orjson
from pydantic import Field
from starlette.responses import Response

from cograil.engine.states import NODE_STATES
from cograil.intake.http.health import show_health
from cograil.intake.http.problems import Refusal
from cograil.intake.http.reading import Query
from cograil.model.job import shown_node_status
from cograil.store import observing as store
from cograil.store import reading
from cograil.store.keys import list_audit
from cograil.ui.pages.node import histogram
from cograil.ui.rendering import page
from cograil.ui.visits import HTML, Visit, as_call, pages

watching = pages("watching")
PAGE = 100
NODES_SHOWN, JOBS_WITH_WORKERS = 50, 30
ENDED, SHOWN_ENDED = 500, 50  # attempts that are measured, and those of them that are listed
Word = Annotated[str, Field(max_length=256)]
Cursor = Annotated[str, Field(max_length=1024)]
TASK_STATES = ("ready", "held", "running")


class NodeFilters(Query):
    """Which nodes."""

    status: Word = ""
    workflow_id: Word = ""
    name: Word = ""
    children: Word = ""
    cursor: Cursor = ""


class TaskFilters(Query):
    """Which tasks."""

    state: Word = ""
    queue: Word = ""
    handler: Word = ""
    worker: Word = ""
    cursor: Cursor = ""


class AuditPage(Query):
    """Which page."""

    cursor: Cursor = ""


def chosen(given: str, known: tuple[str, ...]) -> str | None:
    """One of these, or none. Raises Refusal for anything else."""
    if given and given not in known:
        raise Refusal(422, "invalid_parameter", f"one of {', '.join(known)}")
    return given or None


def _node_status(text: str) -> str | None:
    """The state of nodes that a URL names, as programs or as people call it. Raises Refusal for another."""
    shown = {shown_node_status(name): name for name in NODE_STATES}
    return text if text in NODE_STATES else shown.get(text) or chosen(text, tuple(shown))


def older_of(visit: Visit, place: str | None, asked: dict[str, Any], bound: tuple[Any, ...]) -> str | None:
    """The parameters of the next page."""
    if place is None:
        return None
    kept = {name: value for name, value in asked.items() if value and name != "cursor"}
    return urlencode(kept | {"cursor": visit.instance.cursors.make(place, *bound)})


@watching.get("/nodes", "viewer", query=NodeFilters, media_type=HTML)
async def list_nodes(visit: Visit) -> Response:
    """Nodes across jobs, newest jobs first."""
    asked: NodeFilters = visit.query
    tenant, status = visit.caller.tenant, _node_status(asked.status)
    workflow = asked.workflow_id.strip() or None
    name, has_children = asked.name.strip() or None, asked.children == "yes"
    bound = (tenant, "pages of nodes", status, workflow, name, asked.children)
    place = visit.instance.cursors.read(asked.cursor, *bound) if asked.cursor else ""
    after = (place.partition(" ")[0], place.partition(" ")[2]) if place else None
    async with visit.transaction("show") as tx:
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
        ended = list(dict.fromkeys(one["job_id"] for one in nodes if not one["worker"]))
        workers = await store.last_workers(tx, tenant, ended[:JOBS_WITH_WORKERS])
    for one in nodes:
        one["worker"] = one["worker"] or workers.get((one["job_id"], one["node_id"]))
    older = older_of(visit, stopped_at and " ".join(stopped_at), asked.model_dump(), bound)
    return page(
        visit,
        "nodes.html",
        nodes=nodes,
        asked=asked,
        status_filter=status,
        states=NODE_STATES[1:],
        older=older,
    )


@watching.get("/tasks", "viewer", query=TaskFilters, media_type=HTML)
async def list_tasks(visit: Visit) -> Response:
    """Attempts that are due or running, what became of the last ones that ended, and how long they took."""
    asked: TaskFilters = visit.query
    tenant, state = visit.caller.tenant, chosen(asked.state, TASK_STATES)
    queue, handler, worker = (one.strip() or None for one in (asked.queue, asked.handler, asked.worker))
    bound = (tenant, "pages of tasks", state, queue, handler, worker)
    before = int(visit.instance.cursors.read(asked.cursor, *bound)) if asked.cursor else None
    async with visit.transaction("show") as tx:
        tasks, stopped_at = await store.live_tasks(
            tx, tenant, state=state, queue=queue, handler=handler, worker=worker, before=before, limit=PAGE
        )
        ended = await store.ended_tasks(tx, tenant, worker, ENDED)
    seconds = [(one["ended_at"] - one["started_at"]).total_seconds() for one in ended if one["started_at"]]
    return page(
        visit,
        "tasks.html",
        tasks=tasks,
        asked=asked,
        states=TASK_STATES,
        workers=sorted({one["worker"] for one in (*tasks, *ended) if one["worker"]}),
        ended=ended,
        shown=SHOWN_ENDED,
        bars=histogram(seconds),
        older=older_of(visit, None if stopped_at is None else str(stopped_at), asked.model_dump(), bound),
    )


@watching.get("/queues", "viewer", media_type=HTML)
async def show_queues(visit: Visit) -> Response:
    """Queues: what waits and since when."""
    async with visit.transaction("show") as tx:
        queues = await store.queue_status(tx, visit.caller.tenant)
    return page(visit, "queues.html", queues=queues)


@watching.get("/workers", "operator", media_type=HTML)
async def show_processes(visit: Visit) -> Response:
    """Workers and orchestrators, and when they were last heard of."""
    async with visit.transaction("show") as tx:
        found = await reading.list_processes(tx)
        seconds, handlers = await store.health_work(tx, visit.caller.tenant)
    return page(
        visit,
        "workers.html",
        workers=[one for one in found if one["kind"] == "worker"],
        orchestrators=[one for one in found if one["kind"] == "orchestrator"],
        oldest_news_seconds=seconds,
        missing=handlers,
    )


@watching.get("/health", "viewer", media_type=HTML, is_quick=True)
async def show_checks(visit: Visit) -> Response:
    """All that is looked at."""
    answer = await show_health(as_call(visit))
    return page(visit, "health.html", health=orjson.loads(bytes(answer.body)))


@watching.get("/audit", "admin", query=AuditPage, media_type=HTML)
async def show_audit(visit: Visit) -> Response:
    """Who changed what, newest first."""
    tenant, cursor = visit.caller.tenant, visit.query.cursor
    bound = (tenant, "pages of the audit")
    before = int(visit.instance.cursors.read(cursor, *bound)) if cursor else None
    async with visit.transaction("show") as tx:
        entries = await list_audit(tx, tenant, before, PAGE)
    place = str(entries[-1]["id"]) if len(entries) == PAGE else None
    return page(visit, "audit.html", entries=entries, older=older_of(visit, place, {}, bound))
