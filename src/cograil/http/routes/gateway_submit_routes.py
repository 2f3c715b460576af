"""Requests from outside: a job under the id that a gateway gave to it, and never two under one id."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, Field
from starlette.responses import Response

from cograil.api_schemas import job_schemas
from cograil.errors import Conflict, InvalidInput, Problem
from cograil.http.routes.job_routes import NewJob, Word, submission_of
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
    """One spelling only: two would be two requests."""
    try:
        given = UUID(value)
    except ValueError:
        raise ValueError("a request id is a UUID such as 5f64bbf0-6c3f-4f0e-9d0a-0c9b8b3c2a11") from None
    if str(given) != value:
        raise ValueError("a request id is a UUID in small letters with its four dashes")
    return value


class NewRequest(Body):
    """What a caller outside says of a job, and the id under which they will ask for it."""

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
    body=NewRequest,
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
    given: NewRequest = call.body
    key = idempotency_key(call, given.idempotency_key)

    async def ask() -> tuple[View, bool]:
        async with call.transaction("submit") as tx:
            return await _told_by_key(tx, call, given, key)

    same = (SCOPE, call.caller.tenant, key, idempotency.fingerprint(_facts(given)))
    told, is_new = await run_shared(call, same, ask)
    return reply(told, 202 if is_new else 200)


async def _told_by_key(tx: Transaction, call: Call, given: NewRequest, key: str | None) -> tuple[View, bool]:
    """The answer, and whether it is the first. The key is locked before the id: nobody waits in a circle."""
    if key is None:
        return await _told_by_id(tx, call, given)
    name = request_key(call, key)
    asked = {
        name: one for name, one in _facts(given).items() if name not in ("idempotency_key", "request_id")
    }
    match await decide_request(tx, name, idempotency.fingerprint(asked)):
        case idempotency.New(fence):
            told, is_new = await _told_by_id(tx, call, given)
            await idempotency.answer(tx, name, fence, told)
            return told, is_new
        case idempotency.Replay(record):
            return record.answer, False
    raise IdempotencyConflict(key)


async def _told_by_id(tx: Transaction, call: Call, given: NewRequest) -> tuple[View, bool]:
    name = Key(call.caller.tenant, SCOPE, given.request_id)
    asked = idempotency.fingerprint(_facts(given))
    match await decide_request(tx, name, asked):
        case idempotency.New(fence):
            told = await _submit(tx, call, given)
            await idempotency.answer(tx, name, fence, told)
            return told, True
        case idempotency.Replay(record):
            return record.answer, False
    raise RequestConflict(given.request_id)


def _facts(given: NewRequest) -> dict[str, Json]:
    """What the fingerprint of a request is made of; a field that came later counts only where it is given."""
    later = {"correlation_id"} if given.correlation_id is None else set()
    return given.model_dump(mode="json", exclude=later)


async def _submit(tx: Transaction, call: Call, given: NewRequest) -> View:
    """Make the job. Raises RequestConflict: a job may live longer than the record of its request."""
    tenant = call.caller.tenant
    if await find_request(tx, tenant, given.request_id, is_any=True) is not None:
        raise RequestConflict(given.request_id)
    new = NewJob(
        workflow_id=given.workflow_id,
        input_params=given.input_params,
        submitted_by=given.submitted_by,
        priority=given.priority,
        correlation_id=given.correlation_id or given.request_id,
        callback=None if given.callback_url is None else await _callback(tx, call, given.callback_url),
    )
    try:
        (job_id,) = await submit(tx, call.context.engine_context, [submission_of(call, new)], tenant)
    except InvalidInput as error:
        raise InvalidInput([_as_asked(problem) for problem in error.problems]) from None
    await mark_request(tx, tenant, job_id)
    await call.audit(tx, "submit", job_id, request_id=given.request_id)
    return {
        "request_id": given.request_id,
        "workflow_id": given.workflow_id,
        "submitted_at": tx.now.isoformat(),
        "status": "accepted",
        "job_id": job_id,
        "correlation_id": given.correlation_id or given.request_id,
    }


async def _callback(tx: Transaction, call: Call, url: str) -> dict[str, Json]:
    """Whoever is called back knows the request, and nothing of jobs; and by its signature whose it was."""
    secret = await secret_of_key(tx, call.caller.key_id)
    return {"url": url, "style": PLATFORM} | ({} if secret is None else {"secret": secret})


def _as_asked(problem: Problem) -> Problem:
    """With the name by which the caller gave it."""
    return replace(problem, pointer=problem.pointer.replace("/callback/url", "/callback_url"))
