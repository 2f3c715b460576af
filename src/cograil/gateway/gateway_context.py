"""The context of the gateway's routes, and its error format: `{error, details?, code?}`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import orjson
from starlette.responses import Response

from cograil.gateway.upstream_client import Upstream
from cograil.http.server.dispatcher import Call, ServerContext
from cograil.http.server.problem_details import Refusal, listed
from cograil.http.server.routing import Endpoint, Router
from cograil.verbs.definition_cache import DefinitionCache

ALSO_UNDER = "/api"
SHOWN_CODES = frozenset(
    {"bad_gateway", "unreachable", "gateway_timeout", "not_configured", "not_ready", "loop_detected"}
)
INTERNAL_ERROR = "the request failed; try again later"


@dataclass(slots=True)
class Gateway(ServerContext):
    """The context of the routes of the gateway."""

    catalog: DefinitionCache
    api: Upstream
    worker: Upstream | None


GatewayCall = Call[Gateway]


def answer(refusal: Refusal, request_id: str) -> Response:
    """Return the error response of the gateway. Internal errors have no details."""
    is_internal = refusal.status >= 500 and refusal.code not in SHOWN_CODES
    body: dict[str, Any] = {"error": INTERNAL_ERROR if is_internal else refusal.detail, "code": refusal.code}
    if not is_internal and (details := _details(refusal)):
        body["details"] = details
    return Response(
        orjson.dumps(body), refusal.status, media_type="application/json", headers={**refusal.headers}
    )


def _details(refusal: Refusal) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if refusal.pointer:
        details["pointer"] = refusal.pointer
    if refusal.problems:
        details["problems"] = listed(refusal.problems)
    return details


def with_prefix(routers: list[Router]) -> list[Router]:
    """Return these routers, followed by copies with every path under /api."""
    copies = []
    for router in routers:
        copy = Router(router.tag, ALSO_UNDER)
        copy.endpoints = [_with_prefix(endpoint) for endpoint in router.endpoints]
        copies.append(copy)
    return [*routers, *copies]


def _with_prefix(endpoint: Endpoint) -> Endpoint:
    return replace(endpoint, path=ALSO_UNDER + endpoint.path)
