"""Public requests: external callers see the request and never its jobs. Operators submit here too."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Annotated, Any
from uuid import uuid4

import orjson
from pydantic import Field
from starlette.responses import Response

from cograil import strict_json
from cograil.definitions.suggestions import Suggestions
from cograil.errors import CograilError
from cograil.gateway.gateway_context import GatewayCall
from cograil.gateway.upstream_client import PASSED_ON, Upstream, UpstreamResponse, forward
from cograil.http.server.dispatcher import reply
from cograil.http.server.idempotent_requests import KeyText, idempotency_key
from cograil.http.server.problem_details import Refusal, refusal_of
from cograil.http.server.request_parsing import BatchBody, Body, as_model
from cograil.http.server.routing import Router
from cograil.model.ids import is_id
from cograil.model.redaction import Hidden, outside_error, outside_result, outside_status
from cograil.model.workflow import Json, Workflow
from cograil.store.gateway_queries import RequestedJob, count_done, find_request
from cograil.store.related_jobs import RelatedJobs, load_related_jobs

platform = Router("platform", "")

BATCH_BODY = 8 * 1024 * 1024
BATCH_ITEMS = 100
MAX_CONCURRENT = 10
MAX_KEY = 128
MAX_FORWARDED_BYTES = 2 * 1024 * 1024
UNKNOWN_REQUEST = Refusal(404, "not_found", "unknown request")

Word = Annotated[str, Field(min_length=1, max_length=64)]


class PlatformSubmit(Body):
    """A request of an external caller."""

    workflow_id: Word
    input_params: dict[str, Json] = Field(default_factory=dict)
    submitted_by: Word
    callback_url: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    priority: Annotated[int, Field(ge=0, le=10)] = 0
    idempotency_key: KeyText | None = None


class DirectSubmit(PlatformSubmit):
    """A submit of an operator, with an optional submitter and correlation id."""

    submitted_by: Word = "gateway"
    correlation_id: Word | None = None


class BatchSubmit(BatchBody):
    """Up to 100 submits; each is checked separately."""

    max_items = BATCH_ITEMS
    jobs: Annotated[list[DirectSubmit], Field(min_length=1, max_length=BATCH_ITEMS)]


@platform.post(
    "/platform/submit",
    "submitter",
    "gateway",
    body=PlatformSubmit,
    is_type_optional=True,
    responses={
        202: "accepted under this request id",
        409: "the idempotency key was used with another request",
    },
)
async def submit_request(call: GatewayCall) -> Response:
    """Submit a request."""
    return reply(await _submit(call, call.body), 202)


@platform.get("/platform/status/{request_id}", "submitter", "gateway", responses={200: "the request"})
async def show_request(call: GatewayCall) -> Response:
    """Show the state of a request."""
    request_id, tenant = call.path["request_id"], call.caller.tenant
    if not is_id(request_id):
        raise UNKNOWN_REQUEST
    async with call.transaction("request") as tx:
        request = await find_request(tx, tenant, request_id.lower())
        if request is None:
            raise UNKNOWN_REQUEST
        workflow = await call.context.catalog.get(tx, request.definition_id)
        job_id = request.job["job_id"]
        completed = await count_done(tx, tenant, job_id)
        related = (await load_related_jobs(tx, [job_id])).get(job_id, RelatedJobs())
    return reply(_public_view(request, workflow, completed, related))


@platform.post(
    "/gateway/submit",
    "operator",
    body=DirectSubmit,
    is_type_optional=True,
    responses={202: "queued under this id"},
)
async def submit_directly(call: GatewayCall) -> Response:
    """Submit a job. `GET /status/lookup` finds it by its correlation id."""
    accepted = await _submit(call, call.body)
    aliases = {"message_id": accepted["request_id"], "status": "queued"}
    return reply(
        accepted | aliases | {"correlation_id": call.body.correlation_id or accepted["request_id"]}, 202
    )


@platform.post(
    "/gateway/submit/batch",
    "operator",
    body=BatchSubmit,
    is_type_optional=True,
    max_body=BATCH_BODY,
    responses={202: "the number of accepted jobs, their ids, and the errors of the others"},
)
async def submit_batch(call: GatewayCall) -> Response:
    """Submit up to 100 jobs; each is accepted or rejected separately.

    With an idempotency key in the header, each job without its own key gets that key and its index.
    """
    slots, hints = asyncio.Semaphore(MAX_CONCURRENT), Suggestions()
    key = idempotency_key(call)

    async def submit_item(index: int, item: Json) -> dict[str, Any] | Refusal:
        async with slots:
            try:
                return await _submit(call, _batch_item(item, key, index, hints), is_alone=False)
            except Refusal as refusal:
                return refusal
            except CograilError as error:
                return refusal_of(error)

    results = await asyncio.gather(*(submit_item(index, item) for index, item in enumerate(call.body.jobs)))
    refused = [(index, result) for index, result in enumerate(results) if isinstance(result, Refusal)]
    if len(refused) == len(results) and all(refusal.status >= 500 for _, refusal in refused):
        raise refused[0][1]
    answer = {
        "submitted": len(results) - len(refused),
        "failed": len(refused),
        "message_ids": [accepted["request_id"] for accepted in results if isinstance(accepted, dict)],
        "errors": [
            {"index": index, "error": refusal.detail, "code": refusal.code} for index, refusal in refused
        ],
    }
    return reply(answer, 202)


def _batch_item(item: Json, key: str | None, index: int, hints: Suggestions) -> DirectSubmit:
    """Return one job of a batch. Raises CograilError for an invalid one.

    The key of a batch gets the index of the job: with the same key, different jobs would conflict and equal
    jobs would become one.
    """
    if isinstance(item, CograilError):
        raise item
    body = as_model(item, DirectSubmit, hints)
    if key is None or body.idempotency_key is not None:
        return body
    item_key = f"{key}#{index}"
    if len(item_key) > MAX_KEY:
        item_key = f"sha256:{hashlib.sha256(item_key.encode()).hexdigest()}"
    return body.model_copy(update={"idempotency_key": item_key})


async def _submit(call: GatewayCall, body: PlatformSubmit, *, is_alone: bool = True) -> dict[str, Any]:
    """Send a request to the API under a new id. Returns the public fields of the response.

    A repeated request with the same idempotency key keeps its first id.
    """
    request = body.model_dump(exclude_none=True) | {"request_id": str(uuid4())}
    forwarded = PASSED_ON if is_alone else set(PASSED_ON) - {"idempotency-key"}
    headers = {name: call.headers[name] for name in forwarded if name in call.headers}
    headers |= {"content-type": "application/json", "x-request-id": call.request_id}
    content = strict_json.write(request, max_bytes=MAX_FORWARDED_BYTES)
    response = await _forward_submit(call.context.api, request["request_id"], headers, content)
    accepted = orjson.loads(response.body)
    return {
        "request_id": accepted["request_id"],
        "workflow_id": accepted["workflow_id"],
        "submitted_at": accepted["submitted_at"],
        "status": "accepted",
    }


async def _forward_submit(
    api: Upstream, request_id: str, headers: Mapping[str, str], content: bytes
) -> UpstreamResponse:
    """Return the response of the API. A broken connection is retried: the request id makes that idempotent.

    Without a response the error contains the request id, because the request may have been accepted.
    """
    try:
        return await forward(api, "POST", "/api/v1/submit", headers, content, tries=2)
    except Refusal as refusal:
        if refusal.status in (502, 504):
            refusal.detail += f"; check request {request_id} before you send it again"
        raise


def _public_view(
    request: RequestedJob, workflow: Workflow, completed: int, related: RelatedJobs
) -> dict[str, Any]:
    job, total = request.job, len(workflow.nodes)
    hidden = Hidden(job["job_id"], job["correlation_id"], *related)
    return {
        "request_id": job["correlation_id"],
        "workflow_id": job["workflow_id"],
        "status": outside_status(job["status"]),
        "submitted_at": request.requested_at,
        "completed_at": job["completed_at"],
        "result": outside_result(job["result"], hidden),
        "error": outside_error(job["status"], job["error"], hidden),
        "progress": {
            "completed": completed,
            "total": total,
            "percent": round(100 * completed / total, 1),
        },
    }
