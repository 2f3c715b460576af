"""Handler tests: run one handler with given parameters, on a test server.

Only while `COGRAIL_TESTING` is on, because a caller can run any handler with any parameters. The handler runs in
a worker, as the only node of a new job.
"""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

import orjson
from pydantic import Field
from starlette.responses import Response

from cograil.api_schemas import monitoring_schemas
from cograil.definitions import read_workflow
from cograil.errors import NotFound
from cograil.http.routes.job_action_routes import actor
from cograil.http.server.dispatcher import Call, reply
from cograil.http.server.problem_details import Refusal
from cograil.http.server.request_parsing import Body
from cograil.http.server.routing import Router
from cograil.model.workflow import Json, Workflow
from cograil.store import job_queries
from cograil.store.job_queries import View
from cograil.verbs.publish import keep_draft
from cograil.verbs.submit import Submission, submit

handler_tests = Router("testing")
VARIABLE = "COGRAIL_TESTING"
WORKFLOW, NODE = "handler_test", "handler"


class HandlerTest(Body):
    """The parameters and the queue of the handler, and how long to wait for its end."""

    params: Annotated[dict[str, Json], Field(max_length=100)] = Field(default_factory=dict)
    queue: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    timeout_seconds: Annotated[int, Field(ge=1, le=60)] = 30


class HandlerNotFound(NotFound):
    """No live worker has this handler."""

    code = "handler_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"no live worker has a handler {name[:200]!r}")


@handler_tests.get(
    "/test/handlers",
    "operator",
    responses={200: "the handlers of live workers"},
    response_model=monitoring_schemas.HandlerList,
)
async def list_handlers(call: Call) -> Response:
    """List the handlers of live workers; 403 unless COGRAIL_TESTING is on."""
    _refuse_unless_testing()
    return reply({"handlers": await _handlers(call)})


@handler_tests.post(
    "/test/handler/{name}",
    "operator",
    body=HandlerTest,
    is_body_optional=True,
    responses={
        200: "the result",
        202: "the job has not ended; follow it",
        404: "no worker has this handler",
    },
    response_model=monitoring_schemas.HandlerTrial,
)
async def try_handler(call: Call) -> Response:
    """Run a handler once with these parameters; 403 unless COGRAIL_TESTING is on."""
    _refuse_unless_testing()
    name, body = call.path["name"], call.body
    if name not in {handler["name"] for handler in await _handlers(call)}:
        raise HandlerNotFound(name)
    source = _source(name, body)
    workflow, tenant = await asyncio.to_thread(read_workflow, source), call.caller.tenant
    async with call.transaction("submit") as tx:
        draft = await keep_draft(tx, workflow, source, tenant)
        values: Json = list(body.params.values())
        submission = Submission(
            WORKFLOW, {"values": values}, definition_id=draft.definition_id, submitted_by=actor(call)
        )
        (job_id,) = await submit(tx, call.context.engine_context, [submission], tenant)
        await call.audit(tx, "try handler", name, job_id=job_id)
    is_over = await call.context.job_end_listener.wait(job_id, tenant, body.timeout_seconds)
    return reply(await _outcome(call, job_id, workflow), 200 if is_over else 202)


def _refuse_unless_testing() -> None:
    if os.environ.get(VARIABLE, "").lower() not in ("1", "true", "yes", "on"):
        raise Refusal(403, "not_testing", f"handler tests are disabled: set {VARIABLE}=true on a test server")


async def _handlers(call: Call) -> list[View]:
    """Return the handlers by name, each with its number of workers."""
    async with call.transaction("show") as tx:
        processes = await job_queries.list_processes(tx)
    counts: dict[str, int] = {}
    for process in processes:
        for name in (process["handlers"] or ()) if process["kind"] == "worker" and process["is_live"] else ():
            counts[name] = counts.get(name, 0) + 1
    return [{"name": name, "workers": counts[name]} for name in sorted(counts)]


def _source(name: str, body: HandlerTest) -> str:
    """Return the source of a workflow with this handler only. Values are inputs, so they are never templates."""
    node: dict[str, Json] = {
        "handler": name,
        "params": {key: f"{{{{ inputs.values[{index}] }}}}" for index, key in enumerate(body.params)},
        "timeout_seconds": body.timeout_seconds,
        "retry": {"max_attempts": 1},
    }
    if body.queue is not None:
        node["queue"] = body.queue
    inputs = {"values": {"type": "array"}}
    return orjson.dumps({"workflow_id": WORKFLOW, "inputs": inputs, "nodes": {NODE: node}}).decode()


async def _outcome(call: Call, job_id: str, workflow: Workflow) -> View:
    async with call.transaction("show") as tx:
        (node,) = await job_queries.list_nodes(tx, job_id, workflow, tenant=call.caller.tenant)
    names = ("handler", "status", "output", "error", "started_at", "completed_at")
    return {"job_id": job_id} | {name: node[name] for name in names}
