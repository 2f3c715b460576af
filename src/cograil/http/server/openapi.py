"""The OpenAPI document: the table of routes, in the words that other programs understand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel, TypeAdapter
from starlette.responses import Response

from cograil.api_schemas.monitoring_schemas import Alive, Ready
from cograil.http.server.dispatcher import Call, written
from cograil.http.server.problem_details import MEDIA_TYPE
from cograil.http.server.routing import Endpoint, Table
from cograil.metrics import CONTENT_TYPE, OPEN_CONTENT_TYPE
from cograil.model.roles import ROLES

description = Table("description")
SCHEMAS, RESPONSES = "#/components/schemas/", "#/components/responses/Status"
JSON = "application/json"
PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "code", "detail", "pointer", "request_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
        "pointer": {"type": "string"},
        "request_id": {"type": "string"},
        "problems": {"type": "array", "items": {"type": "object"}},
    },
}
EVERYWHERE = (
    "Beside what each route says: 404 and 405 for what is not served, 414 and 431 for what is too long, "
    "417 for expectations, 421 without keys for a host that is not this machine, 508 for events of ours that "
    "come back, 500 for a fault of ours."
)

# What a route may answer beside what it says itself.
ALWAYS = {
    400: "the request cannot be read",
    401: "no valid key",
    422: "the request can be read and is wrong",
    429: "too many wrong keys from this address",
    503: "not now: the database is away, or this server stops",
}
FORBIDDEN = {403: "the key has not the role, or what is asked is not for its holder"}
NAMED = {404: "no such thing, or one of another tenant"}
WITH_BODY = {
    408: "the body came too slowly",
    413: "the body is too large",
    415: "the body is not JSON in UTF-8",
}
IN_JSON = {406: "the caller takes no JSON"}
COMMON = ALWAYS | FORBIDDEN | NAMED | WITH_BODY | IN_JSON

HEADERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "Idempotency-Key": (
        "The same request again under this key is answered as the first one was.",
        {"type": "string", "pattern": "^[\\x21-\\x7e]{1,128}$"},
    ),
    "Prefer": (
        "`wait=10` waits so many seconds, at most 60, for the end of the job.",
        {"type": "string", "examples": ["wait=10"]},
    ),
    "Last-Event-ID": ("Go on after this event, by its id.", {"type": "string", "pattern": "^[!-~]{1,500}$"}),
}
TOLD_HEADERS = {
    401: ("WWW-Authenticate", "how to say who calls"),
    429: ("Retry-After", "after how many seconds to come again"),
    503: ("Retry-After", "after how many seconds to come again"),
}


@dataclass(frozen=True, slots=True)
class Probe:
    """A route that needs no key and goes past the door."""

    path: str
    operation: str
    summary: str
    answers: Mapping[int, str]
    gives: Any


PROBES = (
    Probe("/livez", "livez", "Say that the process runs", {200: "it does"}, Alive),
    Probe("/readyz", "readyz", "Say whether it can serve", {200: "it can", 503: "it cannot"}, Ready),
    Probe("/metrics", "metrics", "Tell Prometheus", {200: "what is counted and measured"}, str),
)


def operation_of(endpoint: Endpoint) -> str:
    """The name of a route for programs."""
    return endpoint.operation


def named_by_function(endpoint: Endpoint) -> str:
    """The same where each function serves one path."""
    return endpoint.serve.__name__


@dataclass(frozen=True, slots=True)
class Style:
    """What one door calls itself, and how it says what goes wrong."""

    title: str = "cograil"
    problem: tuple[str, dict[str, Any]] = ("Problem", PROBLEM)
    media_type: str = MEDIA_TYPE
    probes: tuple[Probe, ...] = PROBES
    prefixes: tuple[str, ...] = ()
    named: Callable[[Endpoint], str] = field(default=operation_of)
    told_as_400: frozenset[int] = frozenset()  # but by routes that name them


API = Style()


@dataclass(frozen=True, slots=True)
class Described:
    """A door, as far as a reader can know it: what it serves, and in which words."""

    style: Style
    tables: tuple[Table, ...]

    @property
    def endpoints(self) -> list[Endpoint]:
        """Its routes, and its sockets behind them."""
        routes = [endpoint for table in self.tables for endpoint in table.endpoints]
        return routes + [endpoint for table in self.tables for endpoint in table.sockets]

    def document(self) -> dict[str, Any]:
        """Its routes as OpenAPI 3.1."""
        return document((endpoint for table in self.tables for endpoint in table.endpoints), self.style)


def document(endpoints: Iterable[Endpoint], style: Style = API) -> dict[str, Any]:
    """All of these routes as OpenAPI 3.1."""
    served = list(endpoints)
    scribe = Scribe(style)
    paths: dict[str, dict[str, Any]] = {probe.path: {"get": scribe.probe(probe)} for probe in style.probes}
    for endpoint in served:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = scribe.operation(endpoint)
    schemas = scribe.schemas()
    name, problem = style.problem
    about = {"title": style.title, "version": version("cograil"), "description": EVERYWHERE}
    servers = {"servers": [{"url": prefix or "/"} for prefix in style.prefixes]} if style.prefixes else {}
    return {
        "openapi": "3.1.0",
        "info": about | {"license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        **servers,
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(schemas.items())) | {name: problem},
            "responses": scribe.refusals(),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "cograil keys create"}
            },
        },
        "security": [{"key": []}],
    }


class Scribe:
    """Writes operations, and knows which shapes they spoke of."""

    def __init__(self, style: Style) -> None:
        self._style = style
        self._shapes: dict[str, Any] = {}

    def schemas(self) -> dict[str, Any]:
        """The shapes that were spoken of, by their names."""
        wanted = [(name, "validation", TypeAdapter(shape)) for name, shape in self._shapes.items()]
        _, shared = TypeAdapter.json_schemas(wanted, ref_template=SCHEMAS + "{model}")  # type: ignore[arg-type]
        found: dict[str, Any] = shared.get("$defs", {})
        return found

    def _ref(self, shape: Any) -> dict[str, Any]:
        """Raises ValueError when two shapes have one name: a reader could not tell them apart."""
        if self._shapes.setdefault(shape.__name__, shape) is not shape:
            raise ValueError(f"two shapes are called {shape.__name__}")
        return {"$ref": SCHEMAS + shape.__name__}

    def operation(self, endpoint: Endpoint) -> dict[str, Any]:
        """What a route takes and answers."""
        operation: dict[str, Any] = {
            "operationId": self._style.named(endpoint),
            "summary": endpoint.summary,
            "tags": [endpoint.tag],
            "x-requires": list(endpoint.requires),
            "parameters": [
                *_path_parameters(endpoint),
                *_query_parameters(endpoint.query),
                *_headers(endpoint),
            ],
            "responses": {
                str(status): self._response(status, meaning, endpoint)
                for status, meaning in sorted(answers_of(endpoint).items())
                if status in endpoint.answers or status not in self._style.told_as_400
            },
        }
        if endpoint.body is not None:
            operation["requestBody"] = {
                "required": not endpoint.is_body_optional,
                "content": {JSON: {"schema": self._ref(endpoint.takes or endpoint.body)}},
            }
        return operation

    def refusals(self) -> dict[str, Any]:
        """What is answered alike by all routes that answer it."""
        return {
            f"Status{status}": _with_headers(
                status, {"description": meaning, "content": self._refused(status)}
            )
            for status, meaning in sorted(COMMON.items())
            if status not in self._style.told_as_400
        }

    def _response(self, status: int, meaning: str, endpoint: Endpoint) -> dict[str, Any]:
        if status not in endpoint.answers and status in COMMON:
            return {"$ref": f"{RESPONSES}{status}"}
        response: dict[str, Any] = {"description": meaning}
        if status >= 400:
            return _with_headers(status, response | {"content": self._refused(status, endpoint)})
        if status == 204:
            return response
        if endpoint.is_stream:
            return response | {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
        return response | {"content": self._shown(endpoint.shape(status))}

    def _refused(self, status: int, endpoint: Endpoint | None = None) -> dict[str, Any]:
        problem = {"$ref": SCHEMAS + self._style.problem[0]}
        if endpoint is None or status not in endpoint.reports:
            return {self._style.media_type: {"schema": problem}}
        report = self._shown(endpoint.shape(status))
        if self._style.media_type in report:
            return {self._style.media_type: {"schema": {"anyOf": [report[JSON]["schema"], problem]}}}
        return report | {self._style.media_type: {"schema": problem}}

    def _shown(self, shape: Any) -> dict[str, Any]:
        if shape is str:
            kinds = (CONTENT_TYPE, OPEN_CONTENT_TYPE)
            return {kind.partition(";")[0]: {"schema": {"type": "string"}} for kind in kinds}
        return {JSON: {"schema": {"type": "object"} if shape is None else self._ref(shape)}}

    def probe(self, probe: Probe) -> dict[str, Any]:
        """What a probe answers."""
        return {
            "operationId": probe.operation,
            "summary": probe.summary,
            "tags": ["probes"],
            "security": [],
            "responses": {
                str(status): {"description": meaning, "content": self._shown(probe.gives)}
                for status, meaning in probe.answers.items()
            },
        }


def _with_headers(status: int, response: dict[str, Any]) -> dict[str, Any]:
    if status not in TOLD_HEADERS:
        return response
    name, text = TOLD_HEADERS[status]
    return response | {"headers": {name: {"description": text, "schema": {"type": "string"}}}}


def answers_of(endpoint: Endpoint) -> dict[int, str]:
    """Every status that a route may answer, and what it means there."""
    told = dict(ALWAYS)
    if set(endpoint.requires) != set(ROLES):
        told |= FORBIDDEN
    if "{" in endpoint.path:
        told |= NAMED
    if endpoint.body is not None:
        told |= WITH_BODY
    if not endpoint.is_stream:
        told |= IN_JSON
    return told | dict(endpoint.answers or {200: "done"})


def _path_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    names = re.findall(r"\{(\w+)\}", endpoint.path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(query: type[BaseModel] | None) -> list[dict[str, Any]]:
    if query is None:
        return []
    shape = query.model_json_schema()
    required = shape.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        for name, schema in shape.get("properties", {}).items()
    ]


def _headers(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "required": False, "description": text, "schema": schema}
        for name in endpoint.heeds
        for text, schema in [HEADERS[name]]
    ]


class Kept:
    """The document of the door that was asked last: writing it takes longer than a hundred other requests."""

    def __init__(self) -> None:
        self._endpoints: tuple[Endpoint, ...] = ()
        self._text = b""

    def text(self, endpoints: tuple[Endpoint, ...]) -> bytes:
        """All of these routes as JSON."""
        if self._endpoints is not endpoints:
            self._endpoints, self._text = endpoints, written(document(endpoints))
        return self._text


KEPT = Kept()


@description.get("/openapi.json", *ROLES, answers={200: "this document"})
async def show_openapi(call: Call) -> Response:
    """Show what this API takes and answers."""
    return Response(KEPT.text(call.instance.endpoints), media_type=JSON)
