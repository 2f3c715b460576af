"""The OpenAPI document of the gateway: its own routes, and the proxied routes as the API describes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from cograil.api_schemas.monitoring_schemas import Alive
from cograil.gateway import gateway_schemas
from cograil.gateway.gateway_context import ALSO_UNDER
from cograil.gateway.gateway_readiness import ROUTERS
from cograil.http.server.application import ROUTERS as API_ROUTERS
from cograil.http.server.openapi import JSON, PROBES, ApiInfo, Probe, document
from cograil.http.server.routing import Endpoint

PROXIED = re.compile(r"/proxy/(?:orchestrator|worker)(/.+)")
API_ERRORS = {502: "the API failed or cannot be reached", 504: "the API timed out"}
PROXY_ERRORS = {503: "the proxy target cannot be reached", **API_ERRORS}
ERROR = {
    "type": "object",
    "required": ["error", "code"],
    "properties": {
        "error": {"type": "string"},
        "code": {"type": "string"},
        "details": {"type": "object"},
    },
}
RESPONSE_MODELS: Mapping[str, Any] = {
    "/platform/submit": gateway_schemas.AcceptedRequest,
    "/platform/status/{request_id}": gateway_schemas.RequestStatus,
    "/gateway/submit": gateway_schemas.AcceptedSubmit,
    "/gateway/submit/batch": gateway_schemas.AcceptedBatch,
    "/gateway/health": gateway_schemas.GatewayHealth,
    "/status/job/{job_id}": gateway_schemas.SeenJob,
    "/status/jobs": gateway_schemas.SeenJobs,
    "/status/job/{job_id}/nodes": gateway_schemas.SeenNodes,
    "/status/job/{job_id}/events": gateway_schemas.SeenEvents,
    "/status/stats": gateway_schemas.Stats,
    "/status/lookup": gateway_schemas.SeenJob,
    "/admin/health": gateway_schemas.WholeHealth,
    "/admin/config": gateway_schemas.GatewayConfig,
    "/admin/active-jobs": gateway_schemas.ActiveJobs,
    "/admin/recent-events": gateway_schemas.RecentEvents,
    "/admin/orphans": gateway_schemas.Orphans,
    "/admin/running-nodes": gateway_schemas.RunningNodes,
    "/admin/failed-nodes": gateway_schemas.FailedNodes,
    "/proxy/health": gateway_schemas.ProxyHealth,
}
SUBMITS = ("/platform/submit", "/gateway/submit", "/gateway/submit/batch")
LOOKUP = "/status/lookup"


def gateway_document() -> dict[str, Any]:
    """Return the OpenAPI document. Each path is listed once; it is also served under /api."""
    return document(described_endpoints(), API_INFO)


def described_endpoints() -> Iterator[Endpoint]:
    """Yield the routes of the gateway with their response models."""
    api_endpoints = {
        (endpoint.method, endpoint.path): endpoint for router in API_ROUTERS for endpoint in router.endpoints
    }
    probes = {probe.path: probe for probe in PROBES}
    for endpoint in (endpoint for router in ROUTERS for endpoint in router.endpoints):
        target = PROXIED.fullmatch(endpoint.path)
        if target is None:
            yield _describe_own(endpoint)
        elif (probe := probes.get(target[1])) is not None:
            yield replace(
                endpoint,
                query=None,
                response_model=probe.response_model,
                responses=PROXY_ERRORS | dict(probe.responses),
                error_models=(503,) if 503 in probe.responses else (),
            )
        else:
            yield _describe_proxied(endpoint, api_endpoints[endpoint.method, target[1]])


def _describe_own(endpoint: Endpoint) -> Endpoint:
    responses = dict(endpoint.responses)
    if endpoint.path in SUBMITS:
        responses |= API_ERRORS | {
            404: "no such workflow",
            409: "the idempotency key was used with another request",
        }
    elif endpoint.path == LOOKUP:
        responses |= {404: "no such job"}
    headers = ("Idempotency-Key",) if endpoint.path in SUBMITS[:2] else ()
    model = RESPONSE_MODELS[endpoint.path]
    return replace(endpoint, response_model=model, responses=responses, headers=headers)


def _describe_proxied(endpoint: Endpoint, api: Endpoint) -> Endpoint:
    return replace(
        endpoint,
        serve=api.serve,
        body=api.body,
        is_body_optional=api.is_body_optional,
        query=api.query,
        response_model=api.response_model,
        error_models=api.error_models,
        responses=PROXY_ERRORS | dict(api.responses or {200: "done"}),
    )


def _operation_id(endpoint: Endpoint) -> str:
    """Derive the operation id from the path: one function serves many paths."""
    return "_".join([endpoint.method.lower(), *re.findall(r"\w+", endpoint.path)])


API_INFO = ApiInfo(
    title="cograil gateway",
    problem=("Error", ERROR),
    media_type=JSON,
    probes=(
        Probe("/livez", "livez", "Check that the process runs", {200: "the process runs"}, Alive),
        Probe(
            "/readyz",
            "readyz",
            "Check that the gateway is ready",
            {200: "ready", 503: "not ready"},
            gateway_schemas.GatewayReady,
        ),
        Probe("/metrics", "metrics", "Show metrics for Prometheus", {200: "the metrics"}, str),
    ),
    prefixes=("", ALSO_UNDER),
    operation_id=_operation_id,
)
