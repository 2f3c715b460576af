"""Trying a handler by itself: for people who write one, on a server that is there for tests.

Only while `COGRAIL_TESTING` is on: whoever may call this runs any handler with any parameters. The handler
runs where all run, in a worker, as the only node of a job of its own.
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
    """With which parameters, on which queue, and how long to wait for it."""

    params: Annotated[dict[str, Json], Field(max_length=100)] = Field(default_factory=dict)
    queue: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    timeout_seconds: Annotated[int, Field(ge=1, le=60)] = 30


class HandlerNotFound(NotFound):
    """No worker that runs now has this handler."""

    code = "handler_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"no worker that runs now has a handler {name[:200]!r}")


@handler_tests.get(
    "/test/handlers",
    "operator",
    responses={200: "the handlers that workers have now"},
    response_model=monitoring_schemas.Handlers,
)
async def list_handlers(call: Call) -> Response:
    """List the handlers that can be tried; 403 unless COGRAIL_TESTING is on."""
    _refuse_unless_testing()
    return reply({"handlers": await _handlers(call)})


@handler_tests.post(
    "/test/handler/{name}",
    "operator",
    body=HandlerTest,
    is_body_optional=True,
    responses={
        200: "how it ended",
        202: "it has not ended yet; see the job",
        404: "no worker has this handler",
    },
    response_model=monitoring_schemas.HandlerTrial,
)
async def try_handler(call: Call) -> Response:
    """Run a handler once with these parameters; 403 unless COGRAIL_TESTING is on."""
    _refuse_unless_testing()
    name, given = call.path["name"], call.body
    if name not in {one["name"] for one in await _handlers(call)}:
        raise HandlerNotFound(name)
    source = _source(name, given)
    workflow, tenant = await asyncio.to_thread(read_workflow, source), call.caller.tenant
    async with call.transaction("submit") as tx:
        draft = await keep_draft(tx, workflow, source, tenant)
        values: Json = list(given.params.values())
        one = Submission(
            WORKFLOW, {"values": values}, definition_id=draft.definition_id, submitted_by=actor(call)
        )
        (job_id,) = await submit(tx, call.context.engine_context, [one], tenant)
        await call.audit(tx, "try handler", name, job_id=job_id)
    is_over = await call.context.job_end_listener.wait(job_id, tenant, given.timeout_seconds)
    return reply(await _outcome(call, job_id, workflow), 200 if is_over else 202)


def _refuse_unless_testing() -> None:
    if os.environ.get(VARIABLE, "").lower() not in ("1", "true", "yes", "on"):
        raise Refusal(403, "not_testing", f"this server is not there for tests: {VARIABLE} is not on")


async def _handlers(call: Call) -> list[View]:
    """By name, each with how many workers have it."""
    async with call.transaction("show") as tx:
        found = await job_queries.list_processes(tx)
    counts: dict[str, int] = {}
    for worker in found:
        for name in (worker["handlers"] or ()) if worker["kind"] == "worker" and worker["is_live"] else ():
            counts[name] = counts.get(name, 0) + 1
    return [{"name": name, "workers": counts[name]} for name in sorted(counts)]


def _source(name: str, given: HandlerTest) -> str:
    """A workflow of this handler alone. Values come as inputs: what looks like a template in them is none."""
    node: dict[str, Json] = {
        "handler": name,
        "params": {key: f"{{{{ inputs.values[{place}] }}}}" for place, key in enumerate(given.params)},
        "timeout_seconds": given.timeout_seconds,
        "retry": {"max_attempts": 1},
    }
    if given.queue is not None:
        node["queue"] = given.queue
    inputs = {"values": {"type": "array"}}
    return orjson.dumps({"workflow_id": WORKFLOW, "inputs": inputs, "nodes": {NODE: node}}).decode()


async def _outcome(call: Call, job_id: str, workflow: Workflow) -> View:
    async with call.transaction("show") as tx:
        (node,) = await job_queries.list_nodes(tx, job_id, workflow, tenant=call.caller.tenant)
    names = ("handler", "status", "output", "error", "started_at", "completed_at")
    return {"job_id": job_id} | {name: node[name] for name in names}
