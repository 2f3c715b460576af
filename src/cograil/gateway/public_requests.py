"""Requests from outside. Whoever makes one knows its id, and nothing of jobs; operators submit here too."""

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
from cograil.gateway.gateway_context import Asked
from cograil.gateway.upstream_client import PASSED_ON, Answered, Upstream, forward
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
AT_ONCE = 10
MAX_KEY = 128
MAX_SENT = 2 * 1024 * 1024
UNKNOWN_REQUEST = Refusal(404, "not_found", "there is no such request")

Word = Annotated[str, Field(min_length=1, max_length=64)]


class PlatformSubmit(Body):
    """What a caller outside says: who they are, and what is to be done."""

    workflow_id: Word
    input_params: dict[str, Json] = Field(default_factory=dict)
    submitted_by: Word
    callback_url: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    priority: Annotated[int, Field(ge=0, le=10)] = 0
    idempotency_key: KeyText | None = None


class DirectSubmit(PlatformSubmit):
    """The same by an operator, who need not say who they are, and may name a correlation id of their own."""

    submitted_by: Word = "gateway"
    correlation_id: Word | None = None


class BatchSubmit(BatchBody):
    """Up to a hundred of them; each is checked by itself."""

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
async def submit_request(call: Asked) -> Response:
    """Ask for something to be done."""
    return reply(await _submit(call, call.body), 202)


@platform.get("/platform/status/{request_id}", "submitter", "gateway", responses={200: "what became of it"})
async def show_request(call: Asked) -> Response:
    """Show what became of a request."""
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
    return reply(_outside_view(request, workflow, completed, related))


@platform.post(
    "/gateway/submit",
    "operator",
    body=DirectSubmit,
    is_type_optional=True,
    responses={202: "queued under this id"},
)
async def submit_directly(call: Asked) -> Response:
    """Submit a job. `GET /status/lookup` finds it by the correlation id that it was given."""
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
    responses={202: "how many were accepted, their ids, and what is wrong with the others"},
)
async def submit_batch(call: Asked) -> Response:
    """Submit up to 100 jobs; each is accepted or refused by itself.

    With an idempotency key in the header each job that has none itself has that one and its place.
    """
    slots, hints = asyncio.Semaphore(AT_ONCE), Suggestions()
    key = idempotency_key(call)

    async def submit_item(index: int, item: Json) -> dict[str, Any] | Refusal:
        async with slots:
            try:
                return await _submit(call, _one_of_many(item, key, index, hints), is_alone=False)
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


def _one_of_many(item: Json, key: str | None, index: int, hints: Suggestions) -> DirectSubmit:
    """One job of a batch. Raises CograilError for what is none.

    The key of a batch is for all of it: under one key two different jobs would be in each other's way, and
    two that are alike would be one.
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


async def _submit(call: Asked, body: PlatformSubmit, *, is_alone: bool = True) -> dict[str, Any]:
    """Send it to the API under a new id; of the answer only what is meant for those outside.

    A request that was made before under the same idempotency key keeps the id that it had.
    """
    request = body.model_dump(exclude_none=True) | {"request_id": str(uuid4())}
    forwarded = PASSED_ON if is_alone else set(PASSED_ON) - {"idempotency-key"}
    headers = {name: call.headers[name] for name in forwarded if name in call.headers}
    headers |= {"content-type": "application/json", "x-request-id": call.request_id}
    content = strict_json.write(request, max_bytes=MAX_SENT)
    answered = await _accepted(call.context.api, request["request_id"], headers, content)
    accepted = orjson.loads(answered.body)
    return {
        "request_id": accepted["request_id"],
        "workflow_id": accepted["workflow_id"],
        "submitted_at": accepted["submitted_at"],
        "status": "accepted",
    }


async def _accepted(api: Upstream, request_id: str, headers: Mapping[str, str], content: bytes) -> Answered:
    """The API's answer. The same request again is no second one: a broken connection is tried once more.

    Whoever hears none is told the id of the request: it may have been accepted all the same.
    """
    try:
        return await forward(api, "POST", "/api/v1/submit", headers, content, tries=2)
    except Refusal as refusal:
        if refusal.status in (502, 504):
            refusal.detail += f"; ask for request {request_id} before you send it again"
        raise


def _outside_view(
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
