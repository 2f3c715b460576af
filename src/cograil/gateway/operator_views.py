"""Views of jobs for operators of the gateway; external callers have no access."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response

from cograil.gateway.gateway_context import GatewayCall
from cograil.http.routes.job_routes import Status
from cograil.http.server.dispatcher import reply
from cograil.http.server.problem_details import Refusal
from cograil.http.server.request_parsing import Query
from cograil.http.server.routing import Router
from cograil.model.states import JOB_STATES
from cograil.model.workflow import Workflow
from cograil.store import gateway_queries, job_queries
from cograil.store.database import Transaction
from cograil.store.job_queries import View

status = Router("status", "")

KEYED_BY = (
    "POST /api/v1/jobs",
    "POST /api/v1/jobs/batch",
    "POST /api/v1/submit",
    "POST /api/dag/submit",
)
UNKNOWN_JOB = Refusal(404, "not_found", "unknown job")

Word = Annotated[str, Field(min_length=1, max_length=128)]


class WithNodes(Query):
    """Whether to include the nodes."""

    include_nodes: bool = False


class JobListQuery(WithNodes):
    """Filters and offset of the job list."""

    status: Status | None = None
    workflow_id: Word | None = None
    limit: Annotated[int, Field(ge=1, le=500)] = 50
    offset: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0


class EventListQuery(Query):
    """The maximum number of events."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class Lookup(Query):
    """A correlation id or an idempotency key."""

    correlation_id: Word | None = None
    idempotency_key: Word | None = None


@status.get("/status/job/{job_id}", "operator", query=WithNodes, responses={200: "the job"})
async def show_job(call: GatewayCall) -> Response:
    """Show a job."""
    async with call.transaction("show") as tx:
        job, workflow = await _find(call, tx, call.path["job_id"])
        return reply(await _job_view(call, tx, job, workflow if call.query.include_nodes else None))


@status.get("/status/jobs", "operator", query=JobListQuery, responses={200: "jobs, newest first"})
async def list_jobs(call: GatewayCall) -> Response:
    """List jobs, newest first. Counts stop at 10,000 per state; then `is_total_cut` is true."""
    query: JobListQuery = call.query
    tenant = call.caller.tenant
    async with call.transaction("show") as tx:
        counts = await gateway_queries.count_jobs(tx, tenant, query.workflow_id)
        page = await gateway_queries.page_jobs(
            tx,
            tenant,
            statuses=None if query.status is None else [query.status],
            workflow=query.workflow_id,
            limit=query.limit,
            offset=query.offset,
        )
        jobs = []
        for job, definition_id in page:
            workflow = await call.context.catalog.get(tx, definition_id) if query.include_nodes else None
            jobs.append(await _job_view(call, tx, job, workflow))
    return reply(
        {
            "jobs": jobs,
            "count": len(jobs),
            "total": counts.total(query.status),
            "is_total_cut": counts.truncated,
            "limit": query.limit,
            "offset": query.offset,
        }
    )


@status.get("/status/job/{job_id}/nodes", "operator", responses={200: "the nodes"})
async def list_nodes(call: GatewayCall) -> Response:
    """List the nodes of a job."""
    async with call.transaction("show") as tx:
        job, workflow = await _find(call, tx, call.path["job_id"])
        nodes = await job_queries.list_nodes(tx, job["job_id"], workflow, tenant=call.caller.tenant)
    return reply({"job_id": job["job_id"], "nodes": nodes, "count": len(nodes)})


@status.get(
    "/status/job/{job_id}/events", "operator", query=EventListQuery, responses={200: "the events in order"}
)
async def list_events(call: GatewayCall) -> Response:
    """List the events of a job."""
    async with call.transaction("show") as tx:
        job, _ = await _find(call, tx, call.path["job_id"])
        events = await job_queries.list_events(
            tx, job["job_id"], limit=call.query.limit, tenant=call.caller.tenant
        )
    return reply({"job_id": job["job_id"], "events": events, "count": len(events)})


@status.get("/status/stats", "operator", responses={200: "the number of jobs in each state"})
async def show_stats(call: GatewayCall) -> Response:
    """Count jobs by state, up to 10,000 of each."""
    async with call.transaction("show") as tx:
        counts = await gateway_queries.count_jobs(tx, call.caller.tenant)
    stats = {name: counts.total(name) for name in JOB_STATES}
    return reply({"stats": stats, "total": counts.total(), "is_total_cut": counts.truncated, **stats})


@status.get("/status/lookup", "operator", query=Lookup, responses={200: "the job"})
async def look_up(call: GatewayCall) -> Response:
    """Find a job by its correlation id or its idempotency key."""
    query: Lookup = call.query
    if (query.correlation_id is None) == (query.idempotency_key is None):
        raise Refusal(400, "bad_lookup", "specify either correlation_id or idempotency_key")
    tenant = call.caller.tenant
    async with call.transaction("show") as tx:
        if query.correlation_id is not None:
            request = await gateway_queries.find_request(tx, tenant, query.correlation_id, is_any=True)
            if request is None:
                raise UNKNOWN_JOB
            return reply(await _job_view(call, tx, request.job))
        job_id = await gateway_queries.find_keyed(tx, tenant, KEYED_BY, query.idempotency_key or "")
        job, _ = await _find(call, tx, job_id or "")
        return reply(await _job_view(call, tx, job))


# Fields that the contract of the gateway does not have.
HIDDEN_FIELDS = ("result_data", "error_message", "waiting_for", "owner_heartbeat_at")


async def _find(call: GatewayCall, tx: Transaction, job_id: str) -> tuple[View, Workflow]:
    """Return the job and its workflow. Raises Refusal, also for a job of another tenant; it never echoes the id."""
    record = await job_queries.find_job(tx, job_id, call.caller.tenant) if job_id == job_id.lower() else None
    if record is None:
        raise UNKNOWN_JOB
    job, definition_id = record
    return job, await call.context.catalog.get(tx, definition_id)


async def _job_view(
    call: GatewayCall, tx: Transaction, job: View, workflow: Workflow | None = None
) -> dict[str, Any]:
    view = {name: value for name, value in job.items() if name not in HIDDEN_FIELDS}
    error = job["error"]
    view["error_message"] = error.get("message") if isinstance(error, dict) else None
    view["nodes"] = None
    if workflow is not None:
        view["nodes"] = await job_queries.list_nodes(tx, job["job_id"], workflow, tenant=call.caller.tenant)
    return view
