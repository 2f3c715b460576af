"""What one does to a job: cancel, retry, answer, pause; and why it waits."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from cograil.api_schemas import job_schemas
from cograil.errors import NodeNotFound
from cograil.http.routes.job_routes import find_job, trace_parent_of, with_hop
from cograil.http.server.dispatcher import Call, reply
from cograil.http.server.idempotent_requests import idempotency_key, request_key, run_idempotent
from cograil.http.server.request_parsing import Body
from cograil.http.server.routing import Router
from cograil.model.job import Signalled
from cograil.model.workflow import Json
from cograil.store import job_queries
from cograil.store.database import Transaction
from cograil.store.job_queries import View
from cograil.verbs import idempotency, pause
from cograil.verbs.cancel import cancel
from cograil.verbs.explain import explain
from cograil.verbs.retry import preview_retry, retry
from cograil.verbs.signal import signal, waiting_approval

job_actions = Router("jobs")

Reason = Annotated[str, Field(max_length=2000)]
By = Annotated[str, Field(min_length=1, max_length=64)]


class ReasonBody(Body):
    """Why; it is kept with the event."""

    reason: Reason = ""


class RetryBody(Body):
    """From where, and with which inputs instead of those it had."""

    from_node: Annotated[str, Field(min_length=1, max_length=80)] | None = None
    input_params: dict[str, Json] | None = None
    new_keys: bool = False
    preview: bool = False


class Signal(Body):
    """A message to a job."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    node_id: Annotated[str, Field(min_length=1, max_length=80)] | None = None
    reason: Reason | None = None
    by: By | None = None
    data: Json = None


def actor(call: Call) -> str:
    """Who does this, for events and explanations: the name of the key, or its id."""
    return call.caller.name or call.caller.key_id


async def load_job(call: Call, job_id: str) -> View:
    """The job as it is now."""
    async with call.transaction("show") as tx:
        return (await job_queries.find_jobs(tx, [job_id], call.caller.tenant))[job_id]


@job_actions.post(
    "/jobs/{job_id}/cancel",
    "submitter",
    body=ReasonBody,
    is_body_optional=True,
    responses={200: "the job", 409: "it had ended before"},
    response_model=job_schemas.Job,
)
async def cancel_job(call: Call) -> Response:
    """Cancel a job. What was reported before counts."""
    async with call.transaction("cancel") as tx:
        job, _ = await find_job(call, tx)
        job_id = job["job_id"]
        await cancel(tx, call.context.engine_context, job_id, by=actor(call), reason=call.body.reason)
        await call.audit(tx, "cancel", job_id, reason=call.body.reason)
    return reply(await load_job(call, job_id))


@job_actions.post(
    "/jobs/{job_id}/retry",
    "submitter",
    body=RetryBody,
    is_body_optional=True,
    responses={202: "the new job", 200: "what would run again", 409: "it has not ended"},
    response_model={202: job_schemas.Job, 200: job_schemas.RetryPreview},
    headers=("Idempotency-Key",),
)
async def retry_job(call: Call) -> Response:
    """Retry a job that has ended: a new job that keeps what was completed.

    Nodes that had not completed run with the idempotency keys they had; a node that had completed and runs
    again because of `from_node` has a new one. `new_keys` gives all of them new ones. With `preview` nothing
    is changed: `same_keys` and `new_keys` of the answer say which node runs with which.
    """
    return await _retry(call, call.body.from_node)


@job_actions.post(
    "/jobs/{job_id}/nodes/{node_id}/retry",
    "submitter",
    body=RetryBody,
    is_body_optional=True,
    responses={202: "the job in which it runs again", 200: "what would run again", 409: "it has not failed"},
    response_model={202: job_schemas.Job, 200: job_schemas.RetryPreview},
    headers=("Idempotency-Key",),
)
async def retry_node(call: Call) -> Response:
    """Retry one node: in place while the job runs, else in a new job.

    Its idempotency key stays the same, unless it had completed before.
    """
    return await _retry(call, call.path["node_id"])


async def _retry(call: Call, node_id: str | None) -> Response:
    """The new job. Asked again under the same idempotency key it is the same one, as it was then."""
    asked: RetryBody = call.body
    if asked.preview:
        async with call.transaction("retry") as tx:
            job, _ = await find_job(call, tx)
            seen = await preview_retry(
                tx,
                call.context.engine_context,
                job["job_id"],
                node_id=node_id,
                inputs=asked.input_params,
                new_keys=asked.new_keys,
            )
        return reply(asdict(seen))
    again: View
    if (key := idempotency_key(call)) is None:
        async with call.transaction("retry") as tx:
            again = await _run_again(call, node_id, tx)
    else:
        request = idempotency.fingerprint({**call.path, "body": asked.model_dump(mode="json")})
        again, _ = await run_idempotent(
            call, request_key(call, key), request, partial(_run_again, call, node_id), "retry"
        )
    return reply(again, 202, {"Location": f"/api/v1/jobs/{again['job_id']}"})


def _said_new_keys(asked: RetryBody) -> dict[str, bool]:
    return {"new_keys": True} if asked.new_keys else {}


async def _run_again(call: Call, node_id: str | None, tx: Transaction) -> View:
    asked: RetryBody = call.body
    job, _ = await find_job(call, tx)
    job_id, engine_context, tenant = job["job_id"], call.context.engine_context, call.caller.tenant
    again = await retry(
        tx,
        engine_context,
        job_id,
        node_id=node_id,
        inputs=asked.input_params,
        by=actor(call),
        trace_parent=trace_parent_of(call),
        labels=with_hop(call, None),
        new_keys=asked.new_keys,
    )
    await call.audit(tx, "retry", job_id, node_id=node_id, retried_as=again, **_said_new_keys(asked))
    return (await job_queries.find_jobs(tx, [again], tenant))[again]


@job_actions.post(
    "/jobs/{job_id}/signals",
    "operator",
    body=Signal,
    responses={200: "what was decided", 409: "nobody waits for an answer"},
    response_model=job_schemas.Answered,
)
async def send_signal(call: Call) -> Response:
    """Send a signal: approve or reject what waits for somebody's answer."""
    return await _signal(call, call.body)


@job_actions.post(
    "/jobs/{job_id}/approve",
    "operator",
    body=Body,
    is_body_optional=True,
    response_model=job_schemas.Answered,
    responses={200: "what was decided", 409: "nobody waits for an answer"},
)
async def approve(call: Call) -> Response:
    """Approve the only approval that waits in this job."""
    return await _signal(call, Signal(name="approve"))


@job_actions.post(
    "/jobs/{job_id}/reject",
    "operator",
    body=ReasonBody,
    is_body_optional=True,
    response_model=job_schemas.Answered,
    responses={200: "what was decided", 409: "nobody waits for an answer"},
)
async def reject(call: Call) -> Response:
    """Reject the only approval that waits in this job."""
    return await _signal(call, Signal(name="reject", reason=call.body.reason or None))


async def _signal(call: Call, asked: Signal) -> Response:
    async with call.transaction("signal") as tx:
        job, workflow = await find_job(call, tx)
        job_id = job["job_id"]
        if asked.node_id is not None and asked.node_id not in workflow.nodes:
            raise NodeNotFound(job_id, asked.node_id)
        nodes = await job_queries.list_nodes(tx, job_id, workflow, tenant=call.caller.tenant, children=False)
        node_id = asked.node_id or waiting_approval(job, nodes)
        answer = Signalled(asked.name, node_id, asked.by or actor(call) or None, asked.reason, asked.data)
        decided = await signal(tx, call.context.engine_context, job_id, answer)
        what = {"node_id": node_id, "by": answer.by, "reason": asked.reason}
        await call.audit(tx, f"signal {asked.name}", job_id, **what)
    return reply({"job_id": job_id, "node_id": node_id, "by": answer.by} | asdict(decided))


@job_actions.post(
    "/jobs/{job_id}/pause",
    "operator",
    body=ReasonBody,
    is_body_optional=True,
    response_model=job_schemas.Job,
    responses={200: "the job", 409: "it is paused, or has ended"},
)
async def pause_job(call: Call) -> Response:
    """Pause a job: what runs goes on, nothing new begins."""
    async with call.transaction("pause") as tx:
        job, _ = await find_job(call, tx)
        await pause.pause_job(tx, job["job_id"], by=actor(call), reason=call.body.reason)
        await call.audit(tx, "pause job", job["job_id"], reason=call.body.reason)
    return reply(await load_job(call, job["job_id"]))


@job_actions.post(
    "/jobs/{job_id}/resume",
    "operator",
    body=Body,
    is_body_optional=True,
    response_model=job_schemas.Job,
    responses={200: "the job", 409: "it is not paused, or has ended"},
)
async def resume_job(call: Call) -> Response:
    """Let a paused job go on."""
    async with call.transaction("resume") as tx:
        job, _ = await find_job(call, tx)
        await pause.resume_job(tx, job["job_id"])
        await call.audit(tx, "resume job", job["job_id"])
    return reply(await load_job(call, job["job_id"]))


@job_actions.get(
    "/jobs/{job_id}/explain",
    "viewer",
    responses={200: "why it waits, the first reason first"},
    response_model=job_schemas.Explanation,
)
async def explain_job(call: Call) -> Response:
    """Say why a job is not further along."""
    async with call.transaction("explain") as tx:
        job, _ = await find_job(call, tx)
        found = await explain(tx, call.context.engine_context.definitions, job["job_id"], call.caller.tenant)
    return reply(asdict(found))
