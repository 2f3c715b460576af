"""Requests that are passed on as they are: to paths of the API and of workers that stand in a list.

Each path of the list is a route of its own, so what does not stand in it does not exist here. Submits are not
in it: they go through `/platform` and `/gateway`, where a request gets its id.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from pydantic import ConfigDict
from starlette.responses import Response

from cograil.gateway.gateway_context import Asked
from cograil.gateway.upstream_client import PASSED_ON, Answered, TooSlow, Unreachable, Upstream, relayed
from cograil.http.server import request_limits
from cograil.http.server.dispatcher import reply
from cograil.http.server.problem_details import Refusal
from cograil.http.server.request_parsing import Query
from cograil.http.server.routing import MAX_BODY, Router, Serve

proxy = Router("proxy", "")

PATIENCE_SECONDS = 2.0
TARGETS = ("orchestrator", "worker")
SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
RETURNED = ("content-type", "retry-after", "www-authenticate", "allow", "location", "x-request-id")

PROBES = ("/livez", "/readyz", "/metrics")
REPORTS = (*PROBES, "/health")  # these say with 503 what is wrong
JOB, NODE = "/api/v1/jobs/{job_id}", "/api/v1/jobs/{job_id}/nodes/{node_id}"
WORKFLOW, QUEUE = "/api/v1/workflows/{workflow_id}", "/api/v1/queues/{name}"
READ = (
    *REPORTS,
    "/api/v1/jobs",
    *(JOB + rest for rest in ("", "/nodes", "/events", "/timeline", "/progress", "/explain")),
    *(NODE + rest for rest in ("/progress", "/events")),
    "/api/v1/workflows",
    *(WORKFLOW + rest for rest in ("", "/versions")),
    "/api/v1/nodes",
    "/api/v1/tasks",
    "/api/v1/workers",
    "/api/v1/queues/status",
    "/api/v1/orchestrator/status",
    "/api/v1/metrics/workflows",
    "/api/v1/metrics/workflows/{workflow_id}/nodes",
    "/api/v1/metrics/failures",
    "/api/v1/metrics/throughput",
    "/api/v1/openapi.json",
)
CHANGED = (
    *(JOB + rest for rest in ("/cancel", "/retry", "/signals", "/approve", "/reject", "/pause", "/resume")),
    NODE + "/retry",
    *(WORKFLOW + rest for rest in ("/pause", "/resume")),
    *(QUEUE + rest for rest in ("/pause", "/resume")),
)


SAID = {
    "already_terminal": "the job has already ended",
    "not_finished": "the job has not ended yet",
    "not_waiting": "nothing waits for this",
    "not_found": "no route matches this path",
    "unknown_field": "there is no such field",
    "unknown_parameter": "there is no such parameter",
    "invalid_parameter": "this parameter cannot be so",
    "invalid_cursor": "this is no cursor of this list",
    "invalid_type": "this is of another type",
    "invalid_value": "this value cannot be so",
    "out_of_range": "this number is too small or too large",
    "malformed_json": "this is no JSON",
    "idempotency_conflict": "the idempotency key was used with another request",
    "invalid_idempotency_key": "this is no idempotency key",
}
SAID_OF = {
    400: "the orchestrator cannot read this",
    401: "a valid key is needed: Authorization: Bearer cog_...",
    403: "this needs another role",
    404: "no route matches this path",
    409: "this cannot be done now",
    413: "this is too large",
    415: "a body is application/json in UTF-8",
    422: "something in this cannot be so",
    429: "too many requests",
}


class Anything(Query):
    """Parameters that are passed on as they are."""

    model_config = ConfigDict(extra="allow", hide_input_in_errors=True)


@proxy.get("/proxy/health", "operator", responses={200: "whether they answer"})
async def show_health(call: Asked) -> Response:
    """Say whether the API and the worker answer."""
    states = await asyncio.gather(*(_state(_target(call, name)) for name in TARGETS))
    targets = {name: {"status": state} for name, state in zip(TARGETS, states, strict=True)}
    is_healthy = all(state in ("ok", "not configured") for state in states)
    return reply({"status": "healthy" if is_healthy else "degraded", **targets})


async def _state(target: Upstream | None) -> str:
    return "not configured" if target is None else await target.is_alive(PATIENCE_SECONDS)


def _target(call: Asked, name: str) -> Upstream | None:
    return call.context.api if name == "orchestrator" else call.context.worker


def _passing_on(name: str, path: str) -> Serve:
    async def serve(call: Asked) -> Response:
        target = _target(call, name)
        if target is None:
            raise Refusal(503, "not_configured", f"no {name} is configured (WORKER_URL)")
        return _returned(call, path, await _sent(call, name, target, path))

    serve.__doc__ = f"Pass this on to the {name}."
    return serve


async def _sent(call: Asked, name: str, target: Upstream, path: str) -> Answered:
    headers = {header: call.headers[header] for header in PASSED_ON if header in call.headers}
    content = await request_limits.read_body(call.receive, call.headers, MAX_BODY)
    try:
        return await target.send(call.endpoint.method, _filled(call, path), headers, content)
    except Unreachable:
        raise Refusal(503, "unreachable", f"the {name} cannot be reached; try again later") from None
    except TooSlow:
        raise Refusal(504, "gateway_timeout", f"the {name} did not answer in time") from None


def _filled(call: Asked, path: str) -> str:
    """The path with what was given for its names. Raises Refusal for what could lead elsewhere."""
    if any(not SEGMENT.fullmatch(value) for value in call.path.values()):
        raise Refusal(404, "not_found", "no route matches this path")
    parameters: dict[str, Any] = call.query.model_extra or {}
    return path.format(**call.path) + (f"?{urlencode(parameters)}" if parameters else "")


def _erased(refusal: Refusal) -> Refusal:
    """With a sentence of our own for each code: those of the API name jobs, nodes and workers."""
    problems = tuple(
        replace(problem, message=_said(problem.code, refusal.status)) for problem in refusal.problems
    )
    return replace(refusal, detail=_said(refusal.code, refusal.status), problems=problems)


def _said(code: str, status: int) -> str:
    return SAID.get(code) or SAID_OF.get(status, "the orchestrator refused this")


def _returned(call: Asked, path: str, answered: Answered) -> Response:
    """What came back as it is. A refusal is said in our way: what it is called, and nothing it names."""
    if path not in REPORTS and answered.status >= 500:
        raise Refusal(502, "bad_gateway", "the orchestrator could not do this")
    if 400 <= answered.status < 500:
        raise _erased(relayed(answered))
    headers = {name: answered.headers[name] for name in RETURNED if name in answered.headers}
    return Response(answered.body, answered.status, headers=headers)


def _declare() -> None:
    for name, method, paths in (
        ("orchestrator", "GET", READ),
        ("orchestrator", "POST", CHANGED),
        ("worker", "GET", PROBES),
    ):
        for path in paths:
            declare = proxy.route(method, f"/proxy/{name}{path}", "operator", query=Anything)
            declare(_passing_on(name, path))


_declare()
