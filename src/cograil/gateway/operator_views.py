"""Jobs as operators look at them through the gateway; nothing of this is for callers outside."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response

from cograil.gateway.gateway_context import Asked
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
UNKNOWN_JOB = Refusal(404, "not_found", "there is no such job")

Word = Annotated[str, Field(min_length=1, max_length=128)]


class WithNodes(Query):
    """Whether its nodes are wanted too."""

    include_nodes: bool = False


class JobPage(WithNodes):
    """Which jobs, from which number on."""

    status: Status | None = None
    workflow_id: Word | None = None
    limit: Annotated[int, Field(ge=1, le=500)] = 50
    offset: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0


class EventPage(Query):
    """How many events."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class Lookup(Query):
    """One of the two by which a caller knows a job."""

    correlation_id: Word | None = None
    idempotency_key: Word | None = None


@status.get("/status/job/{job_id}", "operator", query=WithNodes, responses={200: "the job"})
async def show_job(call: Asked) -> Response:
    """Show a job."""
    async with call.transaction("show") as tx:
        job, workflow = await _find(call, tx, call.path["job_id"])
        return reply(await _shown(call, tx, job, workflow if call.query.include_nodes else None))


@status.get("/status/jobs", "operator", query=JobPage, responses={200: "jobs, newest first"})
async def list_jobs(call: Asked) -> Response:
    """List jobs, newest first. Counting stops at 10,000 of a state: then `is_total_cut` says so."""
    query: JobPage = call.query
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
            jobs.append(await _shown(call, tx, job, workflow))
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


@status.get("/status/job/{job_id}/nodes", "operator", responses={200: "its nodes"})
async def list_nodes(call: Asked) -> Response:
    """List the nodes of a job."""
    async with call.transaction("show") as tx:
        job, workflow = await _find(call, tx, call.path["job_id"])
        nodes = await job_queries.list_nodes(tx, job["job_id"], workflow, tenant=call.caller.tenant)
    return reply({"job_id": job["job_id"], "nodes": nodes, "count": len(nodes)})


@status.get(
    "/status/job/{job_id}/events", "operator", query=EventPage, responses={200: "its events in order"}
)
async def list_events(call: Asked) -> Response:
    """List the events of a job."""
    async with call.transaction("show") as tx:
        job, _ = await _find(call, tx, call.path["job_id"])
        events = await job_queries.list_events(
            tx, job["job_id"], limit=call.query.limit, tenant=call.caller.tenant
        )
    return reply({"job_id": job["job_id"], "events": events, "count": len(events)})


@status.get("/status/stats", "operator", responses={200: "how many jobs there are in each state"})
async def show_stats(call: Asked) -> Response:
    """Count jobs by their state, up to 10,000 of each."""
    async with call.transaction("show") as tx:
        counts = await gateway_queries.count_jobs(tx, call.caller.tenant)
    stats = {name: counts.total(name) for name in JOB_STATES}
    return reply({"stats": stats, "total": counts.total(), "is_total_cut": counts.truncated, **stats})


@status.get("/status/lookup", "operator", query=Lookup, responses={200: "the job"})
async def look_up(call: Asked) -> Response:
    """Find a job by its correlation id or its idempotency key."""
    query: Lookup = call.query
    if (query.correlation_id is None) == (query.idempotency_key is None):
        raise Refusal(400, "bad_lookup", "name either a correlation_id or an idempotency_key")
    tenant = call.caller.tenant
    async with call.transaction("show") as tx:
        if query.correlation_id is not None:
            request = await gateway_queries.find_request(tx, tenant, query.correlation_id, is_any=True)
            if request is None:
                raise UNKNOWN_JOB
            return reply(await _shown(call, tx, request.job))
        job_id = await gateway_queries.find_keyed(tx, tenant, KEYED_BY, query.idempotency_key or "")
        job, _ = await _find(call, tx, job_id or "")
        return reply(await _shown(call, tx, job))


# Not in the contract of the gateway.
NOT_SHOWN = ("result_data", "error_message", "waiting_for", "owner_heartbeat_at")


async def _find(call: Asked, tx: Transaction, job_id: str) -> tuple[View, Workflow]:
    """The job and its workflow. Raises Refusal; a foreign one is unknown too, and no id is repeated."""
    record = await job_queries.find_job(tx, job_id, call.caller.tenant) if job_id == job_id.lower() else None
    if record is None:
        raise UNKNOWN_JOB
    return record[0], await call.context.catalog.get(tx, record[1])


async def _shown(call: Asked, tx: Transaction, job: View, workflow: Workflow | None = None) -> dict[str, Any]:
    view = {name: value for name, value in job.items() if name not in NOT_SHOWN}
    error = job["error"]
    view["error_message"] = error.get("message") if isinstance(error, dict) else None
    view["nodes"] = None
    if workflow is not None:
        view["nodes"] = await job_queries.list_nodes(tx, job["job_id"], workflow, tenant=call.caller.tenant)
    return view
