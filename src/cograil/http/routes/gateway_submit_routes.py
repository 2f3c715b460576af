"""Submits of the gateway: each job has a request id from the gateway, and a request id has at most one job."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, Field
from starlette.responses import Response

from cograil.api_schemas import job_schemas
from cograil.errors import Conflict, InvalidInput, Problem
from cograil.http.routes.job_routes import NewJobBody, Word, submission_of
from cograil.http.server.dispatcher import Call, reply
from cograil.http.server.field_types import WorkflowName
from cograil.http.server.idempotent_requests import (
    IdempotencyConflict,
    KeyText,
    decide_request,
    idempotency_key,
    request_key,
    run_shared,
)
from cograil.http.server.request_parsing import Body
from cograil.http.server.routing import Router
from cograil.model.workflow import Json
from cograil.store.database import Transaction
from cograil.store.gateway_queries import find_request, mark_request
from cograil.store.job_queries import View
from cograil.verbs import idempotency
from cograil.verbs.callback_secrets import secret_of_key
from cograil.verbs.callback_targets import PLATFORM
from cograil.verbs.idempotency import Key
from cograil.verbs.submit import submit

gateway_submits = Router("jobs")
SCOPE = "request"


def _uuid(value: str) -> str:
    """Return the id. Raises ValueError for any but the canonical spelling: two spellings would be two requests."""
    try:
        request_id = UUID(value)
    except ValueError:
        raise ValueError("a request id is a UUID such as 5f64bbf0-6c3f-4f0e-9d0a-0c9b8b3c2a11") from None
    if str(request_id) != value:
        raise ValueError("a request id is a UUID in small letters with its four dashes")
    return value


class GatewaySubmission(Body):
    """A job submitted through the gateway, and its request id."""

    workflow_id: WorkflowName
    input_params: dict[str, Json] = Field(default_factory=dict)
    submitted_by: Word
    callback_url: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    priority: Annotated[int, Field(ge=0, le=10)] = 0
    idempotency_key: KeyText | None = None
    request_id: Annotated[str, AfterValidator(_uuid)]
    correlation_id: Word | None = None


class RequestConflict(Conflict):
    """Another job has this request id."""

    code = "request_conflict"

    def __init__(self, request_id: str) -> None:
        super().__init__(f"the request id {request_id} was used for something else")


@gateway_submits.post(
    "/submit",
    "submitter",
    "gateway",
    body=GatewaySubmission,
    responses={
        202: "accepted: the request and its job",
        200: "the first answer to the same request",
        409: "the request id or the idempotency key was used for something else",
        404: "no such workflow",
    },
    response_model=job_schemas.Request,
    headers=("Idempotency-Key",),
)
async def submit_request(call: Call) -> Response:
    """Submit a job under the id of a request.

    The request id is the correlation id of the job, unless another one is given. The same request again, by
    its id or by its idempotency key, is answered as the first one was.
    """
    body: GatewaySubmission = call.body
    key = idempotency_key(call, body.idempotency_key)

    async def respond() -> tuple[View, bool]:
        async with call.transaction("submit") as tx:
            return await _submit_by_key(tx, call, body, key)

    same = (SCOPE, call.caller.tenant, key, idempotency.fingerprint(_fingerprint_fields(body)))
    accepted, is_new = await run_shared(call, same, respond)
    return reply(accepted, 202 if is_new else 200)


async def _submit_by_key(
    tx: Transaction, call: Call, body: GatewaySubmission, key: str | None
) -> tuple[View, bool]:
    """Return the answer, and whether it is new. Locks the key before the id, always: no deadlock."""
    if key is None:
        return await _submit_by_id(tx, call, body)
    name = request_key(call, key)
    fields = {
        field: value
        for field, value in _fingerprint_fields(body).items()
        if field not in ("idempotency_key", "request_id")
    }
    match await decide_request(tx, name, idempotency.fingerprint(fields)):
        case idempotency.New(fence):
            accepted, is_new = await _submit_by_id(tx, call, body)
            await idempotency.answer(tx, name, fence, accepted)
            return accepted, is_new
        case idempotency.Replay(record):
            return record.answer, False
    raise IdempotencyConflict(key)


async def _submit_by_id(tx: Transaction, call: Call, body: GatewaySubmission) -> tuple[View, bool]:
    name = Key(call.caller.tenant, SCOPE, body.request_id)
    fingerprint = idempotency.fingerprint(_fingerprint_fields(body))
    match await decide_request(tx, name, fingerprint):
        case idempotency.New(fence):
            accepted = await _submit(tx, call, body)
            await idempotency.answer(tx, name, fence, accepted)
            return accepted, True
        case idempotency.Replay(record):
            return record.answer, False
    raise RequestConflict(body.request_id)


def _fingerprint_fields(body: GatewaySubmission) -> dict[str, Json]:
    """Return the fields of the fingerprint. A field added later counts only if it is set: old fingerprints stay."""
    unset = {"correlation_id"} if body.correlation_id is None else set()
    return body.model_dump(mode="json", exclude=unset)


async def _submit(tx: Transaction, call: Call, body: GatewaySubmission) -> View:
    """Submit the job. Raises RequestConflict: a job may be kept longer than its idempotency record."""
    tenant = call.caller.tenant
    if await find_request(tx, tenant, body.request_id, is_any=True) is not None:
        raise RequestConflict(body.request_id)
    job = NewJobBody(
        workflow_id=body.workflow_id,
        input_params=body.input_params,
        submitted_by=body.submitted_by,
        priority=body.priority,
        correlation_id=body.correlation_id or body.request_id,
        callback=None if body.callback_url is None else await _callback(tx, call, body.callback_url),
    )
    try:
        (job_id,) = await submit(tx, call.context.engine_context, [submission_of(call, job)], tenant)
    except InvalidInput as error:
        raise InvalidInput([_with_request_field(problem) for problem in error.problems]) from None
    await mark_request(tx, tenant, job_id)
    await call.audit(tx, "submit", job_id, request_id=body.request_id)
    return {
        "request_id": body.request_id,
        "workflow_id": body.workflow_id,
        "submitted_at": tx.now.isoformat(),
        "status": "accepted",
        "job_id": job_id,
        "correlation_id": body.correlation_id or body.request_id,
    }


async def _callback(tx: Transaction, call: Call, url: str) -> dict[str, Json]:
    """Return the callback. Its payload has the request id, and the secret of the key signs it."""
    secret = await secret_of_key(tx, call.caller.key_id)
    return {"url": url, "style": PLATFORM} | ({} if secret is None else {"secret": secret})


def _with_request_field(problem: Problem) -> Problem:
    """Return the problem with the field name of the request."""
    return replace(problem, pointer=problem.pointer.replace("/callback/url", "/callback_url"))
