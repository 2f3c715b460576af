"""The OpenAPI document of the gateway: its own routes, and those it passes on, as the API describes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from cograil.api_schemas.monitoring_schemas import Alive
from cograil.gateway import gateway_schemas
from cograil.gateway.gateway_context import ALSO_UNDER
from cograil.gateway.gateway_readiness import TABLES
from cograil.http.server.application import TABLES as API_TABLES
from cograil.http.server.openapi import JSON, PROBES, Probe, Style, document
from cograil.http.server.routing import Endpoint

PASSED = re.compile(r"/proxy/(?:orchestrator|worker)(/.+)")
NO_API = {502: "the API failed, or cannot be reached", 504: "the API did not answer in time"}
NO_TARGET = {503: "what this is passed on to cannot be reached", **NO_API}
ERROR = {
    "type": "object",
    "required": ["error", "code"],
    "properties": {
        "error": {"type": "string"},
        "code": {"type": "string"},
        "details": {"type": "object"},
    },
}
GIVES: Mapping[str, Any] = {
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
    """All that a gateway serves, once; every path is there under /api too."""
    return document(described(), STYLE)


def described() -> Iterator[Endpoint]:
    """The routes of the gateway, with what they answer."""
    passed = {(one.method, one.path): one for table in API_TABLES for one in table.endpoints}
    probes = {probe.path: probe for probe in PROBES}
    for endpoint in (one for table in TABLES for one in table.endpoints):
        target = PASSED.fullmatch(endpoint.path)
        if target is None:
            yield _own(endpoint)
        elif (probe := probes.get(target[1])) is not None:
            reports = (503,) if 503 in probe.answers else ()
            answers = NO_TARGET | dict(probe.answers)
            yield replace(endpoint, query=None, gives=probe.gives, answers=answers, reports=reports)
        else:
            yield _passed_on(endpoint, passed[endpoint.method, target[1]])


def _own(endpoint: Endpoint) -> Endpoint:
    answers = dict(endpoint.answers)
    if endpoint.path in SUBMITS:
        answers |= NO_API | {404: "no such workflow", 409: "the idempotency key was used for something else"}
    elif endpoint.path == LOOKUP:
        answers |= {404: "no such job"}
    heeds = ("Idempotency-Key",) if endpoint.path in SUBMITS[:2] else ()
    return replace(endpoint, gives=GIVES[endpoint.path], answers=answers, heeds=heeds)


def _passed_on(endpoint: Endpoint, api: Endpoint) -> Endpoint:
    return replace(
        endpoint,
        serve=api.serve,
        body=api.body,
        is_body_optional=api.is_body_optional,
        query=api.query,
        gives=api.gives,
        reports=api.reports,
        answers=NO_TARGET | dict(api.answers or {200: "done"}),
    )


def _named(endpoint: Endpoint) -> str:
    """By its path, for many of them are served by the same function."""
    return "_".join([endpoint.method.lower(), *re.findall(r"\w+", endpoint.path)])


STYLE = Style(
    title="cograil gateway",
    problem=("Error", ERROR),
    media_type=JSON,
    probes=(
        Probe("/livez", "livez", "Say that the process runs", {200: "it does"}, Alive),
        Probe(
            "/readyz",
            "readyz",
            "Say whether it serves",
            {200: "it does", 503: "not yet"},
            gateway_schemas.GatewayReady,
        ),
        Probe("/metrics", "metrics", "Tell Prometheus", {200: "what is counted and measured"}, str),
    ),
    prefixes=("", ALSO_UNDER),
    named=_named,
)
