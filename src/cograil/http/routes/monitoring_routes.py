"""Monitoring: nodes, tasks, queues, processes, job metrics, and the audit log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field
from starlette.responses import Response

from cograil import clock
from cograil.api_schemas import job_schemas, monitoring_schemas
from cograil.errors import InvalidInput, Problem, WorkflowNotFound
from cograil.http.routes.job_action_routes import ReasonBody, actor, cancel_job
from cograil.http.routes.job_routes import NewJobBody, NodeChoice, show_job, submit_job
from cograil.http.routes.job_view_routes import NodesOf, list_nodes
from cograil.http.server.dispatcher import Call, reply
from cograil.http.server.problem_details import Refusal
from cograil.http.server.request_parsing import Body, Query
from cograil.http.server.routing import Router
from cograil.store import job_queries
from cograil.store import monitoring_queries as store
from cograil.store.api_keys import list_audit, list_keys
from cograil.store.job_queries import View
from cograil.store.workflow_queries import find_workflow
from cograil.verbs import pause
from cograil.verbs.overview import load_overview

monitoring = Router("observing")
job_metrics = Router("metrics")
dag = Router("dag", prefix="/api/dag")

MAX_BUCKETS = 2000
Limit = Annotated[int, Field(ge=1, le=1000)]
Days = Annotated[int, Field(ge=1, le=365)]
Name = Annotated[str, Field(min_length=1, max_length=256)]
NodeStatus = Literal[
    "ready", "dispatched", "running", "waiting", "completed", "failed", "skipped", "cancelled"
]


class NodeList(Query):
    """Filters of the node list."""

    status: NodeStatus | None = None
    workflow_id: Name | None = None
    limit: Limit = 100
    cursor: str | None = None


class TaskList(Query):
    """Filters of the task list."""

    state: Literal["ready", "held", "running", "ended"] | None = None
    queue: Name | None = None
    handler: Name | None = None
    worker: Name | None = None
    limit: Limit = 100
    cursor: str | None = None


class Period(Query):
    """A workflow, and a number of days."""

    workflow_id: Name | None = None
    days: Days = 7


class DaysBack(Query):
    """A number of days."""

    days: Days = 7


class FailurePeriod(Period):
    """A workflow, a number of days, and the number of failure kinds."""

    limit: Annotated[int, Field(ge=1, le=200)] = 20


class Buckets(Query):
    """A number of hours, and the length of a bucket in minutes."""

    hours: Annotated[int, Field(ge=1, le=24 * 31)] = 24
    bucket_minutes: Annotated[int, Field(ge=1, le=24 * 60)] = 60
    workflow_id: Name | None = None


class AuditList(Query):
    """The page of the audit log."""

    limit: Limit = 100
    cursor: str | None = None


@monitoring.get(
    "/nodes",
    "viewer",
    query=NodeList,
    responses={200: "a page; it may be short, see next_cursor"},
    response_model=monitoring_schemas.NodePage,
)
async def list_all_nodes(call: Call) -> Response:
    """List nodes across jobs, newest jobs first.

    A page reads a bounded number of jobs. It may be short or empty although `next_cursor` is set.
    """
    query: NodeList = call.query
    bound = (call.caller.tenant, "nodes", query.status, query.workflow_id)
    position = None if query.cursor is None else call.context.cursors.read(query.cursor, *bound)
    after = None if position is None else (position.partition(" ")[0], position.partition(" ")[2])
    async with call.transaction("show") as tx:
        nodes, stopped_at = await store.nodes_across(
            tx,
            call.caller.tenant,
            workflow=query.workflow_id,
            status=query.status,
            after=after,
            limit=query.limit,
        )
    cursor = None if stopped_at is None else call.context.cursors.make(" ".join(stopped_at), *bound)
    return reply({"nodes": nodes, "next_cursor": cursor})


@monitoring.get(
    "/tasks",
    "viewer",
    query=TaskList,
    responses={200: "a page; it may be short, see next_cursor"},
    response_model=monitoring_schemas.TaskPage,
)
async def list_tasks(call: Call) -> Response:
    """List tasks: attempts that are queued or running, newest first, or with `state=ended` those that ended.

    Ended attempts are read from the events of a bounded number of jobs, newest jobs first, without cancelled
    attempts. They can be filtered by worker, not by queue and handler.
    """
    query: TaskList = call.query
    if query.state == "ended":
        return await _ended_tasks(call, query)
    bound = (call.caller.tenant, "tasks", query.state, query.queue, query.handler, query.worker)
    before = None if query.cursor is None else int(call.context.cursors.read(query.cursor, *bound))
    async with call.transaction("show") as tx:
        tasks, stopped_at = await store.live_tasks(
            tx,
            call.caller.tenant,
            state=query.state,
            queue=query.queue,
            handler=query.handler,
            worker=query.worker,
            before=before,
            limit=query.limit,
        )
    cursor = None if stopped_at is None else call.context.cursors.make(str(stopped_at), *bound)
    return reply({"tasks": tasks, "next_cursor": cursor})


async def _ended_tasks(call: Call, query: TaskList) -> Response:
    for name in ("queue", "handler"):
        if getattr(query, name) is not None:
            message = f"{name}: attempts that have ended can be filtered by worker only; leave it out"
            raise InvalidInput([Problem("invalid_value", message, f"/{name}")])
    bound = (call.caller.tenant, "ended tasks", query.worker)
    position = None if query.cursor is None else call.context.cursors.read(query.cursor, *bound)
    after = None if position is None else (position.partition(" ")[0], int(position.partition(" ")[2]))
    async with call.transaction("show") as tx:
        tasks, stopped_at = await store.ended_attempts(
            tx, call.caller.tenant, worker=query.worker, after=after, limit=query.limit
        )
    cursor = None
    if stopped_at is not None:
        cursor = call.context.cursors.make(f"{stopped_at[0]} {stopped_at[1]}", *bound)
    return reply({"tasks": tasks, "next_cursor": cursor})


# -- processes ------------------------------------------------------------------------------------------


async def _processes(call: Call, kind: str) -> list[View]:
    """Return the processes of this kind that have not signed off; they serve all tenants."""
    async with call.transaction("show") as tx:
        processes = await job_queries.list_processes(tx)
    return [
        _without(process, "kind") | {"id": str(process["id"])}
        for process in processes
        if process["kind"] == kind
    ]


def _without(view: View, name: str) -> View:
    return {key: value for key, value in view.items() if key != name}


@monitoring.get(
    "/workers",
    "operator",
    responses={200: "workers and their heartbeats"},
    response_model=monitoring_schemas.Workers,
)
async def list_workers(call: Call) -> Response:
    """List the workers that have not signed off."""
    return reply({"workers": await _processes(call, "worker")})


@monitoring.get(
    "/orchestrator/status",
    "operator",
    responses={200: "the orchestrators and the age of the oldest input"},
    response_model=monitoring_schemas.Orchestrators,
)
async def show_orchestrators(call: Call) -> Response:
    """Show the orchestrators, and how long the oldest input of a job waits."""
    orchestrators = await _processes(call, "orchestrator")
    async with call.transaction("show") as tx:
        seconds, _ = await store.health_work(tx, call.caller.tenant)
    is_active = any(orchestrator["is_live"] for orchestrator in orchestrators)
    return reply(
        {
            "status": "active" if is_active else "none",
            "orchestrators": orchestrators,
            "oldest_news_seconds": None if seconds is None else round(seconds, 3),
        }
    )


# -- queues ---------------------------------------------------------------------------------------------


@monitoring.get(
    "/queues/status",
    "viewer",
    responses={200: "depth, oldest age, and pause"},
    response_model=monitoring_schemas.Queues,
)
async def show_queues(call: Call) -> Response:
    """Show each queue: its queued and running tasks, the oldest age, its workers."""
    async with call.transaction("show") as tx:
        return reply({"queues": await store.queue_status(tx, call.caller.tenant)})


@monitoring.post(
    "/queues/{name}/pause",
    "operator",
    body=ReasonBody,
    is_body_optional=True,
    response_model=monitoring_schemas.PausedQueue,
    responses={200: "paused", 409: "it is already paused"},
)
async def pause_queue(call: Call) -> Response:
    """Pause a queue: workers get no tasks from it."""
    name, tenant = call.path["name"], call.caller.tenant
    async with call.transaction("pause") as tx:
        await pause.pause_queue(tx, name, by=actor(call), reason=call.body.reason, tenant=tenant)
        await call.audit(tx, "pause queue", name, reason=call.body.reason)
    return reply({"queue": name, "is_paused": True})


@monitoring.post(
    "/queues/{name}/resume",
    "operator",
    body=Body,
    is_body_optional=True,
    response_model=monitoring_schemas.PausedQueue,
    responses={200: "resumed", 409: "it is not paused"},
)
async def resume_queue(call: Call) -> Response:
    """Resume a paused queue."""
    name = call.path["name"]
    async with call.transaction("resume") as tx:
        await pause.resume_queue(tx, name, tenant=call.caller.tenant)
        await call.audit(tx, "resume queue", name)
    return reply({"queue": name, "is_paused": False})


# -- job metrics ----------------------------------------------------------------------------------------


def _since(days: int) -> datetime:
    return clock.now() - timedelta(days=days)


@job_metrics.get(
    "/metrics/workflows",
    "viewer",
    query=Period,
    responses={200: "numbers for each workflow"},
    response_model=monitoring_schemas.WorkflowMetrics,
)
async def measure_workflows(call: Call) -> Response:
    """Measure workflows: number of jobs, success rate, durations, failures."""
    query: Period = call.query
    async with call.transaction("show") as tx:
        workflows = await store.workflow_metrics(
            tx, call.caller.tenant, _since(query.days), query.workflow_id
        )
    return reply({"days": query.days, "workflows": workflows})


@job_metrics.get(
    "/metrics/workflows/{workflow_id}/nodes",
    "viewer",
    query=DaysBack,
    response_model=monitoring_schemas.NodeMetrics,
)
async def measure_nodes(call: Call) -> Response:
    """Measure the nodes of a workflow in its newest jobs."""
    workflow_id, tenant, days = call.path["workflow_id"], call.caller.tenant, call.query.days
    async with call.transaction("show") as tx:
        nodes = await store.node_metrics(tx, tenant, _since(days), workflow_id)
        if not nodes and await find_workflow(tx, tenant, workflow_id, None) is None:
            raise WorkflowNotFound(workflow_id[:64])
    return reply({"workflow_id": workflow_id, "days": days, "nodes": nodes})


@job_metrics.get(
    "/metrics/failures",
    "viewer",
    query=FailurePeriod,
    responses={200: "the failures; has_more and truncated tell whether they are all"},
    response_model=monitoring_schemas.FailureMetrics,
)
async def measure_failures(call: Call) -> Response:
    """Measure failures: the errors of nodes of failed jobs, the most common first."""
    query: FailurePeriod = call.query
    async with call.transaction("show") as tx:
        failures = await store.failure_metrics(
            tx, call.caller.tenant, _since(query.days), query.workflow_id, query.limit
        )
    return reply({"days": query.days} | failures)


@job_metrics.get(
    "/metrics/throughput",
    "viewer",
    query=Buckets,
    responses={200: "buckets without gaps"},
    response_model=monitoring_schemas.Throughput,
)
async def measure_throughput(call: Call) -> Response:
    """Measure throughput: jobs submitted and ended in each bucket of time, and their durations."""
    query: Buckets = call.query
    if query.hours * 60 > MAX_BUCKETS * query.bucket_minutes:
        detail = f"at most {MAX_BUCKETS:,} buckets: use fewer hours or longer buckets"
        raise Refusal(422, "out_of_range", detail)
    width = timedelta(minutes=query.bucket_minutes)
    first = _rounded_down(clock.now() - timedelta(hours=query.hours), width)
    async with call.transaction("show") as tx:
        buckets = await store.throughput_metrics(tx, call.caller.tenant, first, width, query.workflow_id)
    return reply({"hours": query.hours, "bucket_minutes": query.bucket_minutes, "buckets": buckets})


def _rounded_down(moment: datetime, width: timedelta) -> datetime:
    """Return the start of the bucket, so that repeated requests get the same buckets."""
    zero = datetime(2000, 1, 1, tzinfo=UTC)
    return zero + (moment - zero) // width * width


# -- audit ----------------------------------------------------------------------------------------------


@monitoring.get(
    "/audit",
    "admin",
    query=AuditList,
    responses={200: "a page, the newest first"},
    response_model=monitoring_schemas.AuditPage,
)
async def show_audit(call: Call) -> Response:
    """List the audit log, newest first."""
    query: AuditList = call.query
    bound = (call.caller.tenant, "audit")
    before = None if query.cursor is None else int(call.context.cursors.read(query.cursor, *bound))
    async with call.transaction("show") as tx:
        entries = await list_audit(tx, call.caller.tenant, before, query.limit)
    is_last = len(entries) < query.limit
    cursor = None if is_last else call.context.cursors.make(str(entries[-1]["id"]), *bound)
    return reply({"entries": entries, "next_cursor": cursor})


@monitoring.get(
    "/keys",
    "admin",
    responses={200: "without the keys themselves"},
    response_model=monitoring_schemas.KeyList,
)
async def show_keys(call: Call) -> Response:
    """List the API keys of this tenant, newest first."""
    async with call.transaction("show") as tx:
        return reply({"keys": await list_keys(tx, call.caller.tenant)})


@monitoring.get(
    "/overview",
    "operator",
    responses={200: "what `cograil top` shows"},
    response_model=monitoring_schemas.Overview,
)
async def show_overview(call: Call) -> Response:
    """Show jobs by status, throughput, queues, processes, the oldest waiting jobs with reasons, and failures."""
    async with call.transaction("show") as tx:
        definitions = call.context.engine_context.definitions
        return reply(await load_overview(tx, definitions, call.caller.tenant))


# -- aliases for the paths of the first design ----------------------------------------------------------

dag.post(
    "/submit",
    "submitter",
    body=NewJobBody,
    response_model=job_schemas.Job,
    headers=("Idempotency-Key", "Prefer"),
    responses={
        202: "the job",
        200: "the first response to the same request",
        404: "no such workflow",
        409: "another request used this key",
    },
)(submit_job)
dag.get(
    "/jobs/{job_id}",
    "viewer",
    query=NodeChoice,
    response_model=job_schemas.JobWithNodes,
    responses={200: "the job with its nodes"},
)(show_job)
dag.get(
    "/jobs/{job_id}/nodes",
    "viewer",
    query=NodesOf,
    response_model=job_schemas.NodesOfJob,
    responses={200: "the nodes"},
)(list_nodes)
dag.post(
    "/jobs/{job_id}/cancel",
    "submitter",
    body=ReasonBody,
    is_body_optional=True,
    response_model=job_schemas.Job,
    responses={200: "the job", 409: "the job had already ended"},
)(cancel_job)
