"""Actions on a job: cancel, retry, signal, pause, resume; and an explanation of why it waits."""

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
    """The reason, stored with the event."""

    reason: Reason = ""


class RetryBody(Body):
    """The node to retry from, and new inputs."""

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
    """Return the actor for events and explanations: the name of the key, or its id."""
    return call.caller.name or call.caller.key_id


async def load_job(call: Call, job_id: str) -> View:
    """Return the current state of the job."""
    async with call.transaction("show") as tx:
        return (await job_queries.find_jobs(tx, [job_id], call.caller.tenant))[job_id]


@job_actions.post(
    "/jobs/{job_id}/cancel",
    "submitter",
    body=ReasonBody,
    is_body_optional=True,
    responses={200: "the job", 409: "the job had already ended"},
    response_model=job_schemas.Job,
)
async def cancel_job(call: Call) -> Response:
    """Cancel a job. Results reported earlier still count."""
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
    responses={202: "the new job", 200: "what would run again", 409: "the job has not ended"},
    response_model={202: job_schemas.Job, 200: job_schemas.RetryPreview},
    headers=("Idempotency-Key",),
)
async def retry_job(call: Call) -> Response:
    """Retry a job that has ended: a new job that keeps completed nodes.

    Nodes that had not completed keep their idempotency keys; a completed node that runs again because of
    `from_node` gets a new one. `new_keys` gives all of them new keys. `preview` changes nothing: `same_keys`
    and `new_keys` of the response list the nodes of each kind.
    """
    return await _retry(call, call.body.from_node)


@job_actions.post(
    "/jobs/{job_id}/nodes/{node_id}/retry",
    "submitter",
    body=RetryBody,
    is_body_optional=True,
    responses={
        202: "the job in which the node runs again",
        200: "what would run again",
        409: "the node has not failed",
    },
    response_model={202: job_schemas.Job, 200: job_schemas.RetryPreview},
    headers=("Idempotency-Key",),
)
async def retry_node(call: Call) -> Response:
    """Retry one node: in place while the job runs, else in a new job.

    Its idempotency key stays the same, unless it had completed before.
    """
    return await _retry(call, call.path["node_id"])


async def _retry(call: Call, node_id: str | None) -> Response:
    """Return the new job. A repeated request with the same idempotency key gets the first response again."""
    body: RetryBody = call.body
    if body.preview:
        async with call.transaction("retry") as tx:
            job, _ = await find_job(call, tx)
            preview = await preview_retry(
                tx,
                call.context.engine_context,
                job["job_id"],
                node_id=node_id,
                inputs=body.input_params,
                new_keys=body.new_keys,
            )
        return reply(asdict(preview))
    new_job: View
    if (key := idempotency_key(call)) is None:
        async with call.transaction("retry") as tx:
            new_job = await _retry_in(call, node_id, tx)
    else:
        request = idempotency.fingerprint({**call.path, "body": body.model_dump(mode="json")})
        new_job, _ = await run_idempotent(
            call, request_key(call, key), request, partial(_retry_in, call, node_id), "retry"
        )
    return reply(new_job, 202, {"Location": f"/api/v1/jobs/{new_job['job_id']}"})


def _audit_data(body: RetryBody) -> dict[str, bool]:
    return {"new_keys": True} if body.new_keys else {}


async def _retry_in(call: Call, node_id: str | None, tx: Transaction) -> View:
    body: RetryBody = call.body
    job, _ = await find_job(call, tx)
    job_id, engine_context, tenant = job["job_id"], call.context.engine_context, call.caller.tenant
    new_id = await retry(
        tx,
        engine_context,
        job_id,
        node_id=node_id,
        inputs=body.input_params,
        by=actor(call),
        trace_parent=trace_parent_of(call),
        labels=with_hop(call, None),
        new_keys=body.new_keys,
    )
    await call.audit(tx, "retry", job_id, node_id=node_id, retried_as=new_id, **_audit_data(body))
    return (await job_queries.find_jobs(tx, [new_id], tenant))[new_id]


@job_actions.post(
    "/jobs/{job_id}/signals",
    "operator",
    body=Signal,
    responses={200: "the decision", 409: "no approval waits"},
    response_model=job_schemas.Answered,
)
async def send_signal(call: Call) -> Response:
    """Send a signal: approve or reject an approval node."""
    return await _signal(call, call.body)


@job_actions.post(
    "/jobs/{job_id}/approve",
    "operator",
    body=Body,
    is_body_optional=True,
    response_model=job_schemas.Answered,
    responses={200: "the decision", 409: "no approval waits"},
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
    responses={200: "the decision", 409: "no approval waits"},
)
async def reject(call: Call) -> Response:
    """Reject the only approval that waits in this job."""
    return await _signal(call, Signal(name="reject", reason=call.body.reason or None))


async def _signal(call: Call, body: Signal) -> Response:
    async with call.transaction("signal") as tx:
        job, workflow = await find_job(call, tx)
        job_id = job["job_id"]
        if body.node_id is not None and body.node_id not in workflow.nodes:
            raise NodeNotFound(job_id, body.node_id)
        nodes = await job_queries.list_nodes(tx, job_id, workflow, tenant=call.caller.tenant, children=False)
        node_id = body.node_id or waiting_approval(job, nodes)
        answer = Signalled(body.name, node_id, body.by or actor(call) or None, body.reason, body.data)
        decided = await signal(tx, call.context.engine_context, job_id, answer)
        data = {"node_id": node_id, "by": answer.by, "reason": body.reason}
        await call.audit(tx, f"signal {body.name}", job_id, **data)
    return reply({"job_id": job_id, "node_id": node_id, "by": answer.by} | asdict(decided))


@job_actions.post(
    "/jobs/{job_id}/pause",
    "operator",
    body=ReasonBody,
    is_body_optional=True,
    response_model=job_schemas.Job,
    responses={200: "the job", 409: "the job is paused, or has ended"},
)
async def pause_job(call: Call) -> Response:
    """Pause a job: running nodes continue, no new ones start."""
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
    responses={200: "the job", 409: "the job is not paused, or has ended"},
)
async def resume_job(call: Call) -> Response:
    """Resume a paused job."""
    async with call.transaction("resume") as tx:
        job, _ = await find_job(call, tx)
        await pause.resume_job(tx, job["job_id"])
        await call.audit(tx, "resume job", job["job_id"])
    return reply(await load_job(call, job["job_id"]))


@job_actions.get(
    "/jobs/{job_id}/explain",
    "viewer",
    responses={200: "the reasons why it waits, in order"},
    response_model=job_schemas.Explanation,
)
async def explain_job(call: Call) -> Response:
    """Explain why a job waits."""
    async with call.transaction("explain") as tx:
        job, _ = await find_job(call, tx)
        explanation = await explain(
            tx, call.context.engine_context.definitions, job["job_id"], call.caller.tenant
        )
    return reply(asdict(explanation))
