"""The proxy: forwards requests to listed paths of the API and of workers.

Each listed path is a route; any other path is 404. Submits are not listed: they go through `/platform` and
`/gateway`, where a request gets its id.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from pydantic import ConfigDict
from starlette.responses import Response

from cograil.gateway.gateway_context import GatewayCall
from cograil.gateway.upstream_client import (
    PASSED_ON,
    Upstream,
    UpstreamResponse,
    UpstreamTimeout,
    UpstreamUnreachable,
    upstream_refusal,
)
from cograil.http.server import request_limits
from cograil.http.server.dispatcher import reply
from cograil.http.server.problem_details import Refusal
from cograil.http.server.request_parsing import Query
from cograil.http.server.routing import MAX_BODY, Router, Serve

proxy = Router("proxy", "")

TIMEOUT_SECONDS = 2.0
TARGETS = ("orchestrator", "worker")
SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
RETURNED_HEADERS = ("content-type", "retry-after", "www-authenticate", "allow", "location", "x-request-id")

PROBES = ("/livez", "/readyz", "/metrics")
REPORTS = (*PROBES, "/health")  # their 503 responses are reports
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


CODE_TEXTS = {
    "already_terminal": "the job has already ended",
    "not_finished": "the job has not ended yet",
    "not_waiting": "nothing waits for this signal",
    "not_found": "no route matches this path",
    "unknown_field": "unknown field",
    "unknown_parameter": "unknown parameter",
    "invalid_parameter": "invalid parameter",
    "invalid_cursor": "the cursor does not belong to this list",
    "invalid_type": "the value has the wrong type",
    "invalid_value": "invalid value",
    "out_of_range": "the number is out of range",
    "malformed_json": "the body is not valid JSON",
    "idempotency_conflict": "the idempotency key was used with another request",
    "invalid_idempotency_key": "invalid idempotency key",
}
STATUS_TEXTS = {
    400: "the request is malformed",
    401: "a valid key is needed: Authorization: Bearer cog_...",
    403: "this requires another role",
    404: "no route matches this path",
    409: "this is not possible in the current state",
    413: "the request is too large",
    415: "the body must be application/json in UTF-8",
    422: "the request is invalid",
    429: "too many requests",
}


class AnyQuery(Query):
    """Query parameters that are forwarded unchanged."""

    model_config = ConfigDict(extra="allow", hide_input_in_errors=True)


@proxy.get("/proxy/health", "operator", responses={200: "the state of each target"})
async def show_health(call: GatewayCall) -> Response:
    """Show whether the API and the worker respond."""
    states = await asyncio.gather(*(_state(_target(call, name)) for name in TARGETS))
    targets = {name: {"status": state} for name, state in zip(TARGETS, states, strict=True)}
    is_healthy = all(state in ("ok", "not configured") for state in states)
    return reply({"status": "healthy" if is_healthy else "degraded", **targets})


async def _state(target: Upstream | None) -> str:
    return "not configured" if target is None else await target.is_alive(TIMEOUT_SECONDS)


def _target(call: GatewayCall, name: str) -> Upstream | None:
    return call.context.api if name == "orchestrator" else call.context.worker


def _forwarder(name: str, path: str) -> Serve:
    async def serve(call: GatewayCall) -> Response:
        target = _target(call, name)
        if target is None:
            raise Refusal(503, "not_configured", f"no {name} is configured (WORKER_URL)")
        return _own_response(call, path, await _send(call, name, target, path))

    serve.__doc__ = f"Forward this request to the {name}."
    return serve


async def _send(call: GatewayCall, name: str, target: Upstream, path: str) -> UpstreamResponse:
    headers = {header: call.headers[header] for header in PASSED_ON if header in call.headers}
    content = await request_limits.read_body(call.receive, call.headers, MAX_BODY)
    try:
        return await target.send(call.endpoint.method, _target_path(call, path), headers, content)
    except UpstreamUnreachable:
        raise Refusal(503, "unreachable", f"the {name} cannot be reached; try again later") from None
    except UpstreamTimeout:
        raise Refusal(504, "gateway_timeout", f"the {name} did not answer in time") from None


def _target_path(call: GatewayCall, path: str) -> str:
    """Return the path with its parameters. Raises Refusal for a value that could change the path."""
    if any(not SEGMENT.fullmatch(value) for value in call.path.values()):
        raise Refusal(404, "not_found", "no route matches this path")
    parameters: dict[str, Any] = call.query.model_extra or {}
    return path.format(**call.path) + (f"?{urlencode(parameters)}" if parameters else "")


def _redacted(refusal: Refusal) -> Refusal:
    """Return the error with the gateway's own text for each code: the texts of the API name jobs, nodes and
    workers.
    """
    problems = tuple(
        replace(problem, message=_error_text(problem.code, refusal.status)) for problem in refusal.problems
    )
    return replace(refusal, detail=_error_text(refusal.code, refusal.status), problems=problems)


def _error_text(code: str, status: int) -> str:
    return CODE_TEXTS.get(code) or STATUS_TEXTS.get(status, "the orchestrator rejected the request")


def _own_response(call: GatewayCall, path: str, response: UpstreamResponse) -> Response:
    """Return the response of the upstream unchanged. Errors get the gateway's own text."""
    if path not in REPORTS and response.status >= 500:
        raise Refusal(502, "bad_gateway", "the orchestrator failed")
    if 400 <= response.status < 500:
        raise _redacted(upstream_refusal(response))
    headers = {name: response.headers[name] for name in RETURNED_HEADERS if name in response.headers}
    return Response(response.body, response.status, headers=headers)


def _declare() -> None:
    for name, method, paths in (
        ("orchestrator", "GET", READ),
        ("orchestrator", "POST", CHANGED),
        ("worker", "GET", PROBES),
    ):
        for path in paths:
            declare = proxy.route(method, f"/proxy/{name}{path}", "operator", query=AnyQuery)
            declare(_forwarder(name, path))


_declare()
