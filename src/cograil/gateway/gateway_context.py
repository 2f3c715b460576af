"""What is behind the gateway's door, and how it says what goes wrong: `{error, details?, code?}`."""

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
OURS = frozenset(
    {"bad_gateway", "unreachable", "gateway_timeout", "not_configured", "not_ready", "loop_detected"}
)
CANNOT = "this cannot be done now; try again later"


@dataclass(slots=True)
class Gateway(ServerContext):
    """What the gateway needs."""

    catalog: DefinitionCache
    api: Upstream
    worker: Upstream | None


Asked = Call[Gateway]


def answer(refusal: Refusal, request_id: str) -> Response:
    """A refusal as the gateway's callers know it. They hear nothing of our own troubles."""
    is_inside = refusal.status >= 500 and refusal.code not in OURS
    body: dict[str, Any] = {"error": CANNOT if is_inside else refusal.detail, "code": refusal.code}
    if not is_inside and (details := _details(refusal)):
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


def with_prefix(tables: list[Router]) -> list[Router]:
    """These tables, and once more with every path under /api."""
    again = []
    for table in tables:
        other = Router(table.tag, ALSO_UNDER)
        other.endpoints = [_moved(endpoint) for endpoint in table.endpoints]
        again.append(other)
    return [*tables, *again]


def _moved(endpoint: Endpoint) -> Endpoint:
    return replace(endpoint, path=ALSO_UNDER + endpoint.path)
