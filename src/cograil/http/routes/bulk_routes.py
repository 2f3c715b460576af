"""Bulk operations: cancel or retry many jobs, and the progress of an operation."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

from pydantic import Field
from starlette.responses import Response

from cograil.api_schemas import job_schemas
from cograil.http.routes.job_action_routes import Reason, actor, load_job
from cograil.http.server.dispatcher import Call, reply
from cograil.http.server.field_types import Labels, Moment
from cograil.http.server.request_parsing import Body
from cograil.http.server.routing import Router
from cograil.store.job_progress_queries import resolve_job
from cograil.verbs.bulk import JobFilter, begin_bulk, find_bulk, outcome_of, preview_bulk

bulk_operations = Router("bulk")

EngineStatus = Literal["pending", "running", "completed", "failed", "cancelled"]


class BulkBody(Body):
    """Which jobs; a criterion that is left out matches every job."""

    statuses: Annotated[list[EngineStatus], Field(max_length=5)] = Field(default_factory=list)
    workflow_id: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    labels: Labels = Field(default_factory=dict)
    correlation_id: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    created_before: Moment | None = None
    created_after: Moment | None = None
    reason: Reason = ""
    preview: bool = False

    def job_filter(self) -> JobFilter:
        """Return the filter as the verb takes it."""
        return JobFilter(
            tuple(self.statuses),
            self.workflow_id,
            self.labels,
            self.correlation_id,
            self.created_before,
            self.created_after,
        )


RESPONSES = {202: "the bulk job", 200: "how many jobs match, with `preview`"}
RESPONSE_MODELS = {202: job_schemas.Job, 200: job_schemas.BulkPreview}


@bulk_operations.post(
    "/bulk/cancel", "operator", body=BulkBody, responses=RESPONSES, response_model=RESPONSE_MODELS
)
async def bulk_cancel(call: Call) -> Response:
    """Cancel the pending and running jobs that match.

    The operation is a job itself: it continues after the response, and cancelling it stops it.
    """
    return await _begin(call, "cancel")


@bulk_operations.post(
    "/bulk/retry", "operator", body=BulkBody, responses=RESPONSES, response_model=RESPONSE_MODELS
)
async def bulk_retry(call: Call) -> Response:
    """Retry the failed jobs that match; with `statuses` also cancelled ones. A job is retried once."""
    return await _begin(call, "retry")


async def _begin(call: Call, verb: str) -> Response:
    body: BulkBody = call.body
    job_filter, tenant = body.job_filter(), call.caller.tenant
    if body.preview:
        async with call.transaction("preview") as tx:
            return reply(asdict(await preview_bulk(tx, verb, job_filter, tenant)))
    async with call.transaction("bulk") as tx:
        job_id = await begin_bulk(
            tx,
            call.context.engine_context,
            verb,
            job_filter,
            by=actor(call),
            reason=body.reason,
            tenant=tenant,
        )
        await call.audit(tx, f"bulk {verb}", job_id, reason=body.reason, filter=job_filter.as_json())
    return reply(await load_job(call, job_id), 202, {"Location": f"/api/v1/jobs/{job_id}"})


@bulk_operations.get(
    "/bulk/{job_id}",
    "viewer",
    responses={200: "its progress, and why jobs were skipped or failed"},
    response_model=job_schemas.BulkProgress,
)
async def show_bulk(call: Call) -> Response:
    """Show the progress of a bulk operation."""
    tenant = call.caller.tenant
    async with call.transaction("show") as tx:
        operation = await find_bulk(tx, await resolve_job(tx, call.path["job_id"], tenant), tenant)
    return reply({"job_id": operation.job_id} | outcome_of(operation))
