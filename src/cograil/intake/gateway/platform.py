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

from cograil import jsontext
from cograil.definitions.hints import Hints
from cograil.errors import CograilError
from cograil.intake.gateway.door import Asked
from cograil.intake.gateway.upstream import PASSED_ON, Answered, Upstream, forward
from cograil.intake.http.door import reply
from cograil.intake.http.once import KeyText, idempotency_key
from cograil.intake.http.problems import Refusal, refusal_of
from cograil.intake.http.reading import Batch, Body, as_model
from cograil.intake.http.table import Table
from cograil.model.ids import is_id
from cograil.model.requests import Hidden, outside_error, outside_result, outside_status
from cograil.model.workflow import Json, Workflow
from cograil.store.insides import Inside, find_insides
from cograil.store.requests import Found, count_done, find_request

platform = Table("platform", "")

BATCH_BODY = 8 * 1024 * 1024
BATCH_ITEMS = 100
AT_ONCE = 10
LONGEST_KEY = 128
MOST_SENT = 2 * 1024 * 1024
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


class BatchSubmit(Batch):
    """Up to a hundred of them; each is checked by itself."""

    most = BATCH_ITEMS
    jobs: Annotated[list[DirectSubmit], Field(min_length=1, max_length=BATCH_ITEMS)]


@platform.post(
    "/platform/submit",
    "submitter",
    "gateway",
    body=PlatformSubmit,
    is_type_optional=True,
    answers={202: "accepted under this request id", 409: "the idempotency key was used with another request"},
)
async def submit_request(call: Asked) -> Response:
    """Ask for something to be done."""
    return reply(await _submit(call, call.body), 202)


@platform.get("/platform/status/{request_id}", "submitter", "gateway", answers={200: "what became of it"})
async def show_request(call: Asked) -> Response:
    """Show what became of a request."""
    request_id, tenant = call.path["request_id"], call.caller.tenant
    if not is_id(request_id):
        raise UNKNOWN_REQUEST
    async with call.transaction("request") as tx:
        found = await find_request(tx, tenant, request_id.lower())
        if found is None:
            raise UNKNOWN_REQUEST
        workflow = await call.instance.catalog.get(tx, found.definition_id)
        job_id = found.job["job_id"]
        done = await count_done(tx, tenant, job_id)
        inside = (await find_insides(tx, [job_id])).get(job_id, Inside())
    return reply(_outside_view(found, workflow, done, inside))


@platform.post(
    "/gateway/submit",
    "operator",
    body=DirectSubmit,
    is_type_optional=True,
    answers={202: "queued under this id"},
)
async def submit_directly(call: Asked) -> Response:
    """Submit a job. `GET /status/lookup` finds it by the correlation id that it was given."""
    accepted = await _submit(call, call.body)
    own = {"message_id": accepted["request_id"], "status": "queued"}
    return reply(accepted | own | {"correlation_id": call.body.correlation_id or accepted["request_id"]}, 202)


@platform.post(
    "/gateway/submit/batch",
    "operator",
    body=BatchSubmit,
    is_type_optional=True,
    max_body=BATCH_BODY,
    answers={202: "how many were accepted, their ids, and what is wrong with the others"},
)
async def submit_batch(call: Asked) -> Response:
    """Submit up to 100 jobs; each is accepted or refused by itself.

    With an idempotency key in the header each job that has none itself has that one and its place.
    """
    turns, hints = asyncio.Semaphore(AT_ONCE), Hints()
    key = idempotency_key(call)

    async def one(place: int, item: Json) -> dict[str, Any] | Refusal:
        async with turns:
            try:
                return await _submit(call, _one_of_many(item, key, place, hints), is_alone=False)
            except Refusal as refusal:
                return refusal
            except CograilError as error:
                return refusal_of(error)

    made = await asyncio.gather(*(one(place, item) for place, item in enumerate(call.body.jobs)))
    refused = [(index, one) for index, one in enumerate(made) if isinstance(one, Refusal)]
    if len(refused) == len(made) and all(refusal.status >= 500 for _, refusal in refused):
        raise refused[0][1]
    answer = {
        "submitted": len(made) - len(refused),
        "failed": len(refused),
        "message_ids": [accepted["request_id"] for accepted in made if isinstance(accepted, dict)],
        "errors": [
            {"index": index, "error": refusal.detail, "code": refusal.code} for index, refusal in refused
        ],
    }
    return reply(answer, 202)


def _one_of_many(item: Json, key: str | None, place: int, hints: Hints) -> DirectSubmit:
    """One job of a batch. Raises CograilError for what is none.

    The key of a batch is for all of it: under one key two different jobs would be in each other's way, and
    two that are alike would be one.
    """
    if isinstance(item, CograilError):
        raise item
    given = as_model(item, DirectSubmit, hints)
    if key is None or given.idempotency_key is not None:
        return given
    own = f"{key}#{place}"
    if len(own) > LONGEST_KEY:
        own = f"sha256:{hashlib.sha256(own.encode()).hexdigest()}"
    return given.model_copy(update={"idempotency_key": own})


async def _submit(call: Asked, given: PlatformSubmit, *, is_alone: bool = True) -> dict[str, Any]:
    """Send it to the API under a new id; of the answer only what is meant for those outside.

    A request that was made before under the same idempotency key keeps the id that it had.
    """
    request = given.model_dump(exclude_none=True) | {"request_id": str(uuid4())}
    passed = PASSED_ON if is_alone else set(PASSED_ON) - {"idempotency-key"}
    headers = {name: call.headers[name] for name in passed if name in call.headers}
    headers |= {"content-type": "application/json", "x-request-id": call.request_id}
    content = jsontext.write(request, max_bytes=MOST_SENT)
    answered = await _accepted(call.instance.api, request["request_id"], headers, content)
    told = orjson.loads(answered.body)
    return {
        "request_id": told["request_id"],
        "workflow_id": told["workflow_id"],
        "submitted_at": told["submitted_at"],
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


def _outside_view(found: Found, workflow: Workflow, done: int, inside: Inside) -> dict[str, Any]:
    job, total = found.job, len(workflow.nodes)
    hidden = Hidden(job["job_id"], job["correlation_id"], *inside)
    return {
        "request_id": job["correlation_id"],
        "workflow_id": job["workflow_id"],
        "status": outside_status(job["status"]),
        "submitted_at": found.asked_at,
        "completed_at": job["completed_at"],
        "result": outside_result(job["result"], hidden),
        "error": outside_error(job["status"], job["error"], hidden),
        "progress": {
            "completed": done,
            "total": total,
            "percent": round(100 * done / total, 1),
        },
    }
