"""Reads that the command line makes over HTTP: ids by prefix, many criteria, workflow, failures, progress."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

from pydantic import Field
from starlette.responses import Response

from cograil.api_schemas import job_schemas
from cograil.http.routes.job_routes import find_job
from cograil.http.server.dispatcher import Call, reply
from cograil.http.server.field_types import Labels, Moment
from cograil.http.server.request_parsing import Body, Query
from cograil.http.server.routing import Router
from cograil.store import job_queries
from cograil.store.job_filter_queries import JobSearch, find_jobs_by
from cograil.store.job_progress_queries import load_progress, new_events, resolve_job
from cograil.store.pause_queries import list_pauses

job_lookups = Router("jobs")

ShownStatus = Literal["pending", "running", "waiting", "completed", "failed", "cancelled"]
Text = Annotated[str, Field(min_length=1, max_length=300)]


class JobSearchBody(Body):
    """The criteria that a job must meet; one that is left out matches every job."""

    statuses: Annotated[list[ShownStatus], Field(max_length=6)] = Field(default_factory=list)
    workflow_id: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    labels: Labels = Field(default_factory=dict)
    since: Moment | None = None
    until: Moment | None = None
    text: Text | None = None
    error: Text | None = None
    before: str | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 50

    def criteria(self) -> JobSearch:
        """Return the criteria as the store takes them."""
        return JobSearch(
            self.statuses, self.workflow_id, self.labels, self.since, self.until, self.text, self.error
        )


class WatchQuery(Query):
    """Events after this number; without it, none."""

    after: Annotated[int, Field(ge=0)] | None = None


@job_lookups.post(
    "/jobs/search",
    "viewer",
    body=JobSearchBody,
    is_body_optional=True,
    responses={200: "the newest jobs that meet all criteria"},
    response_model=job_schemas.JobMatches,
)
async def search_jobs(call: Call) -> Response:
    """List the newest jobs that meet all criteria.

    A job that waits for a person or a time has the status `waiting` here, not pending or running. `before` is
    the id of the last job of the previous page.
    """
    search: JobSearchBody = call.body
    tenant = call.caller.tenant
    async with call.transaction("show") as tx:
        before = None if search.before is None else await resolve_job(tx, search.before, tenant)
        jobs = await find_jobs_by(
            tx, search.criteria(), tenant=tenant, before=before, limit=search.limit, is_bounded=True
        )
    return reply({"jobs": jobs})


@job_lookups.get(
    "/jobs/{job_id}/id",
    "viewer",
    responses={200: "the complete id", 409: "several jobs begin with this"},
    response_model=job_schemas.JobId,
)
async def resolve_job_id(call: Call) -> Response:
    """Show the complete id of the job whose id begins with these digits, at least 8 of them."""
    async with call.transaction("show") as tx:
        return reply({"job_id": await resolve_job(tx, call.path["job_id"], call.caller.tenant)})


@job_lookups.get(
    "/jobs/{job_id}/workflow",
    "viewer",
    responses={200: "the definition that the job runs"},
    response_model=job_schemas.JobWorkflow,
)
async def show_job_workflow(call: Call) -> Response:
    """Show the workflow that a job runs, as it was when the job was created; also one that is not published."""
    async with call.transaction("show") as tx:
        job, workflow = await find_job(call, tx)
    return reply(
        {
            "job_id": job["job_id"],
            "workflow_id": workflow.workflow_id,
            "version": workflow.version,
            "app": workflow.app,
            "definition": workflow.document,
        }
    )


@job_lookups.get(
    "/jobs/{job_id}/failures",
    "viewer",
    responses={200: "the failed nodes, the first to fail first"},
    response_model=job_schemas.Failures,
)
async def list_failures(call: Call) -> Response:
    """List the failed nodes of a job and the failed children of its fan-outs, at most 100."""
    async with call.transaction("show") as tx:
        job, _ = await find_job(call, tx)
        failures = await job_queries.list_failures(tx, job["job_id"], tenant=call.caller.tenant)
    return reply({"job_id": job["job_id"], "failures": failures})


@job_lookups.get(
    "/jobs/{job_id}/nodes/{node_id}/traceback",
    "viewer",
    responses={200: "the traceback, or null"},
    response_model=job_schemas.TracebackLookup,
)
async def show_traceback(call: Call) -> Response:
    """Show the traceback of the last failed attempt of a node; null if it did not raise.

    For a subworkflow it is the traceback of the failed node in its child job.
    """
    async with call.transaction("show") as tx:
        job, _ = await find_job(call, tx)
        traceback = await job_queries.find_traceback(tx, job["job_id"], call.path["node_id"])
    return reply({"traceback": None if traceback is None else traceback._asdict()})


@job_lookups.get(
    "/jobs/{job_id}/watch",
    "viewer",
    query=WatchQuery,
    responses={200: "status and nodes, without inputs and outputs"},
    response_model=job_schemas.WatchedJob,
)
async def watch_job(call: Call) -> Response:
    """Show the progress of a job and its nodes, and with `after` its new events: cheap enough for polling.

    Pending nodes are left out, and so are the children of fan-outs and their events.
    """
    tenant, after = call.caller.tenant, call.query.after
    async with call.transaction("show") as tx:
        job, _ = await find_job(call, tx)
        progress = await load_progress(tx, job["job_id"], tenant)
        events = [] if after is None else await new_events(tx, job["job_id"], after, tenant)
    nodes = [asdict(node) for node in progress.nodes.values()]
    return reply(asdict(progress) | {"nodes": nodes, "events": events})


@job_lookups.get(
    "/pauses",
    "viewer",
    responses={200: "what is paused, by whom and why"},
    response_model=job_schemas.Pauses,
)
async def show_pauses(call: Call) -> Response:
    """List the paused jobs, queues and workflows."""
    async with call.transaction("show") as tx:
        pauses = await list_pauses(tx, call.caller.tenant)
    return reply({"pauses": [pause._asdict() for pause in pauses]})
