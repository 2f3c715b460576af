"""The OpenAPI document of the declared routes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel, TypeAdapter
from starlette.responses import Response

from cograil.api_schemas.monitoring_schemas import Alive, Ready
from cograil.http.server.dispatcher import Call, encode_json
from cograil.http.server.problem_details import MEDIA_TYPE
from cograil.http.server.routing import Endpoint, Router
from cograil.metrics import CONTENT_TYPE, OPEN_CONTENT_TYPE
from cograil.model.roles import ROLES

openapi_document = Router("description")
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
    "In addition to the responses of each route: 404 and 405 for unknown paths and methods, 414 and 431 for "
    "URLs and headers that are too long, 417 for unsupported expectations, 421 for a foreign Host header while "
    "no key exists, 508 for an event loop between servers, 500 for an internal error."
)

# Responses of every route, in addition to those it declares.
ALWAYS = {
    400: "the request is malformed",
    401: "no valid key",
    422: "the request is invalid",
    429: "too many invalid keys from this address",
    503: "the database is unavailable, or the server is overloaded or shutting down",
}
FORBIDDEN = {403: "the role of the key does not allow this"}
NAMED = {404: "it does not exist, or belongs to another tenant"}
WITH_BODY = {
    408: "the body was sent too slowly",
    413: "the body is too large",
    415: "the body is not JSON in UTF-8",
}
IN_JSON = {406: "the client does not accept JSON"}
COMMON = ALWAYS | FORBIDDEN | NAMED | WITH_BODY | IN_JSON

HEADERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "Idempotency-Key": (
        "A repeated request with this key gets the first response again.",
        {"type": "string", "pattern": "^[\\x21-\\x7e]{1,128}$"},
    ),
    "Prefer": (
        "`wait=10` waits up to 10 seconds (at most 60) for the end of the job.",
        {"type": "string", "examples": ["wait=10"]},
    ),
    "Last-Event-ID": (
        "Resume after the event with this id.",
        {"type": "string", "pattern": "^[!-~]{1,500}$"},
    ),
}
RESPONSE_HEADERS = {
    401: ("WWW-Authenticate", "the authentication scheme"),
    429: ("Retry-After", "seconds to wait before the next request"),
    503: ("Retry-After", "seconds to wait before the next request"),
}


@dataclass(frozen=True, slots=True)
class Probe:
    """A route without authentication, served outside the dispatcher."""

    path: str
    operation: str
    summary: str
    responses: Mapping[int, str]
    response_model: Any


PROBES = (
    Probe("/livez", "livez", "Check that the process runs", {200: "the process runs"}, Alive),
    Probe("/readyz", "readyz", "Check that the server is ready", {200: "ready", 503: "not ready"}, Ready),
    Probe("/metrics", "metrics", "Show metrics for Prometheus", {200: "the metrics"}, str),
)


def operation_id(endpoint: Endpoint) -> str:
    """Return the operation id of a route."""
    return endpoint.operation


def operation_id_from_function(endpoint: Endpoint) -> str:
    """Return the name of the function, for an API where each function serves one path."""
    return endpoint.serve.__name__


@dataclass(frozen=True, slots=True)
class ApiInfo:
    """Title, error format and naming of one API."""

    title: str = "cograil"
    problem: tuple[str, dict[str, Any]] = ("Problem", PROBLEM)
    media_type: str = MEDIA_TYPE
    probes: tuple[Probe, ...] = PROBES
    prefixes: tuple[str, ...] = ()
    operation_id: Callable[[Endpoint], str] = field(default=operation_id)
    statuses_sent_as_400: frozenset[int] = frozenset()  # except for routes that declare them


API = ApiInfo()


@dataclass(frozen=True, slots=True)
class ApiDescription:
    """An API: its routers and how to describe them."""

    info: ApiInfo
    routers: tuple[Router, ...]

    @property
    def endpoints(self) -> list[Endpoint]:
        """All routes, followed by all WebSocket routes."""
        routes = [endpoint for router in self.routers for endpoint in router.endpoints]
        return routes + [endpoint for router in self.routers for endpoint in router.sockets]

    def document(self) -> dict[str, Any]:
        """Return the OpenAPI 3.1 document."""
        return document((endpoint for router in self.routers for endpoint in router.endpoints), self.info)


def document(endpoints: Iterable[Endpoint], info: ApiInfo = API) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of these routes."""
    builder = SchemaBuilder(info)
    paths: dict[str, dict[str, Any]] = {probe.path: {"get": builder.probe(probe)} for probe in info.probes}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = builder.operation(endpoint)
    schemas = builder.schemas()
    name, problem = info.problem
    about = {"title": info.title, "version": version("cograil"), "description": EVERYWHERE}
    servers = {"servers": [{"url": prefix or "/"} for prefix in info.prefixes]} if info.prefixes else {}
    return {
        "openapi": "3.1.0",
        "info": about | {"license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        **servers,
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(schemas.items())) | {name: problem},
            "responses": builder.error_responses(),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "cograil keys create"}
            },
        },
        "security": [{"key": []}],
    }


class SchemaBuilder:
    """Builds operations and collects the models they refer to."""

    def __init__(self, info: ApiInfo) -> None:
        self._info = info
        self._models: dict[str, Any] = {}

    def schemas(self) -> dict[str, Any]:
        """Return the JSON schemas of the collected models, by name."""
        adapters = [(name, "validation", TypeAdapter(model)) for name, model in self._models.items()]
        _, shared = TypeAdapter.json_schemas(adapters, ref_template=SCHEMAS + "{model}")  # type: ignore[arg-type]
        schemas: dict[str, Any] = shared.get("$defs", {})
        return schemas

    def _ref(self, model: Any) -> dict[str, Any]:
        """Return a reference to a model. Raises ValueError when two models have the same name."""
        if self._models.setdefault(model.__name__, model) is not model:
            raise ValueError(f"two models have the name {model.__name__}; rename one of them")
        return {"$ref": SCHEMAS + model.__name__}

    def operation(self, endpoint: Endpoint) -> dict[str, Any]:
        """Return the operation object of a route."""
        operation: dict[str, Any] = {
            "operationId": self._info.operation_id(endpoint),
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
                for status, meaning in sorted(responses_of(endpoint).items())
                if status in endpoint.responses or status not in self._info.statuses_sent_as_400
            },
        }
        if endpoint.body is not None:
            operation["requestBody"] = {
                "required": not endpoint.is_body_optional,
                "content": {JSON: {"schema": self._ref(endpoint.request_model or endpoint.body)}},
            }
        return operation

    def error_responses(self) -> dict[str, Any]:
        """Return the error responses that routes share."""
        return {
            f"Status{status}": _with_headers(
                status, {"description": meaning, "content": self._error_content(status)}
            )
            for status, meaning in sorted(COMMON.items())
            if status not in self._info.statuses_sent_as_400
        }

    def _response(self, status: int, meaning: str, endpoint: Endpoint) -> dict[str, Any]:
        if status not in endpoint.responses and status in COMMON:
            return {"$ref": f"{RESPONSES}{status}"}
        response: dict[str, Any] = {"description": meaning}
        if status >= 400:
            return _with_headers(status, response | {"content": self._error_content(status, endpoint)})
        if status == 204:
            return response
        if endpoint.is_stream:
            return response | {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
        return response | {"content": self._content(endpoint.model_of(status))}

    def _error_content(self, status: int, endpoint: Endpoint | None = None) -> dict[str, Any]:
        problem = {"$ref": SCHEMAS + self._info.problem[0]}
        if endpoint is None or status not in endpoint.error_models:
            return {self._info.media_type: {"schema": problem}}
        report = self._content(endpoint.model_of(status))
        if self._info.media_type in report:
            return {self._info.media_type: {"schema": {"anyOf": [report[JSON]["schema"], problem]}}}
        return report | {self._info.media_type: {"schema": problem}}

    def _content(self, model: Any) -> dict[str, Any]:
        if model is str:
            kinds = (CONTENT_TYPE, OPEN_CONTENT_TYPE)
            return {kind.partition(";")[0]: {"schema": {"type": "string"}} for kind in kinds}
        return {JSON: {"schema": {"type": "object"} if model is None else self._ref(model)}}

    def probe(self, probe: Probe) -> dict[str, Any]:
        """Return the operation object of a probe."""
        return {
            "operationId": probe.operation,
            "summary": probe.summary,
            "tags": ["probes"],
            "security": [],
            "responses": {
                str(status): {"description": meaning, "content": self._content(probe.response_model)}
                for status, meaning in probe.responses.items()
            },
        }


def _with_headers(status: int, response: dict[str, Any]) -> dict[str, Any]:
    if status not in RESPONSE_HEADERS:
        return response
    name, text = RESPONSE_HEADERS[status]
    return response | {"headers": {name: {"description": text, "schema": {"type": "string"}}}}


def responses_of(endpoint: Endpoint) -> dict[int, str]:
    """Return every status of a route with its description."""
    responses = dict(ALWAYS)
    if set(endpoint.requires) != set(ROLES):
        responses |= FORBIDDEN
    if "{" in endpoint.path:
        responses |= NAMED
    if endpoint.body is not None:
        responses |= WITH_BODY
    if not endpoint.is_stream:
        responses |= IN_JSON
    return responses | dict(endpoint.responses or {200: "done"})


def _path_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    names = re.findall(r"\{(\w+)\}", endpoint.path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(query: type[BaseModel] | None) -> list[dict[str, Any]]:
    if query is None:
        return []
    query_schema = query.model_json_schema()
    required = query_schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        for name, schema in query_schema.get("properties", {}).items()
    ]


def _headers(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "required": False, "description": text, "schema": schema}
        for name in endpoint.headers
        for text, schema in [HEADERS[name]]
    ]


class CachedDocument:
    """Caches the last document: building it costs as much as a hundred other requests."""

    def __init__(self) -> None:
        self._endpoints: tuple[Endpoint, ...] = ()
        self._text = b""

    def text(self, endpoints: tuple[Endpoint, ...]) -> bytes:
        """Return the document of these routes as JSON."""
        if self._endpoints is not endpoints:
            self._endpoints, self._text = endpoints, encode_json(document(endpoints))
        return self._text


CACHED_DOCUMENT = CachedDocument()


@openapi_document.get("/openapi.json", *ROLES, responses={200: "this document"})
async def show_openapi(call: Call) -> Response:
    """Show the OpenAPI document of this API."""
    return Response(CACHED_DOCUMENT.text(call.context.endpoints), media_type=JSON)
