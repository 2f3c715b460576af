"""The dispatcher: finds the route of a request, authenticates the caller, parses the input, calls the route.

The order keeps work away from callers without access: framing, route, key, role, body, parameters.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic

import orjson
import structlog
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import TypeVar

from cograil import metrics
from cograil.errors import CograilError, Overloaded
from cograil.http.auth.authentication import Authenticator
from cograil.http.auth.client_address import client_address, reject_foreign_origin
from cograil.http.server import problem_details, request_limits
from cograil.http.server.headers import request_headers
from cograil.http.server.page_cursors import PageCursors
from cograil.http.server.problem_details import ErrorRenderer, Refusal
from cograil.http.server.request_parsing import NoQuery, read_body, read_query
from cograil.http.server.routing import SOCKET, Endpoint, Router
from cograil.http.server.single_flight import SingleFlight
from cograil.http.server.submit_batcher import SubmitBatcher
from cograil.http.streams.event_subscribers import EventSubscribers
from cograil.http.streams.job_waiter import JobEndListener
from cograil.http.streams.throttle import Throttle
from cograil.model.ids import new_id
from cograil.model.roles import Caller
from cograil.settings import Settings
from cograil.store.api_keys import AuditRecord, add_audits
from cograil.store.database import LOST, STALLED, Database, Transaction
from cograil.verbs.advance import EngineContext

log = structlog.get_logger("http")
MAX_INLINE_BYTES = 64 * 1024  # larger bodies are parsed in a thread, to keep the event loop free
MAX_REQUEST_ID = 64
SHUTTING_DOWN = Refusal(
    503,
    "shutting_down",
    "The server is shutting down; the request may have been completed. Retry.",
    headers={"Retry-After": "1"} | request_limits.CLOSE,
)
DATABASE_UNAVAILABLE = Refusal(
    503,
    "database_unavailable",
    "The database connection was lost; the request may have been completed. Check before you retry.",
    headers={"Retry-After": "1"},
)
OVERLOADED = Refusal(
    503,
    Overloaded.code,
    "Server overloaded; the request was not completed. Retry.",
    headers={"Retry-After": "1"},
)


@dataclass(slots=True)
class ServerContext:
    """What every dispatcher needs: a database, settings, and an authenticator."""

    db: Database
    settings: Settings
    keys: Authenticator
    endpoints: tuple[Endpoint, ...] = field(default=(), kw_only=True)  # set by the dispatcher


@dataclass(slots=True)
class ApiContext(ServerContext):
    """What the routes of the API need."""

    engine_context: EngineContext
    cursors: PageCursors
    submit_batcher: SubmitBatcher
    job_end_listener: JobEndListener
    subscribers: EventSubscribers
    single_flight: SingleFlight[Any]  # requests with an idempotency key
    progress_throttle: Throttle = field(default_factory=Throttle)  # progress reports of workers

    def end(self) -> None:
        """End all streams and waits: the port is about to close."""
        self.subscribers.end()
        self.job_end_listener.end()


ContextT = TypeVar("ContextT", bound=ServerContext, default=ApiContext)


@dataclass(slots=True)
class Call(Generic[ContextT]):
    """One authenticated and parsed request."""

    context: ContextT
    endpoint: Endpoint
    caller: Caller
    request_id: str
    address: str
    headers: Headers
    path: Mapping[str, str]
    receive: Receive
    body: Any = None
    query: Any = None

    @asynccontextmanager
    async def transaction(self, name: str) -> AsyncIterator[Transaction]:
        """Open a transaction that sees only the tenant of the caller."""
        async with self.context.db.transaction(name, tenant=self.caller.tenant) as tx:
            yield tx

    async def audit(self, tx: Transaction, action: str, target: str = "", **data: Any) -> None:
        """Record this call in the audit log, in this transaction."""
        await add_audits(tx, [self.entry(action, target, **data)])

    def entry(self, action: str, target: str = "", **data: Any) -> AuditRecord:
        """Return the audit entry of this call."""
        caller = self.caller
        return AuditRecord(
            caller.tenant,
            caller.key_id,
            caller.user_id,
            caller.role,
            action,
            target,
            self.request_id,
            self.address,
            data or None,
        )


def encode_json(value: Any) -> bytes:
    """Encode a response as JSON, with times in UTC."""
    return orjson.dumps(value, option=orjson.OPT_UTC_Z)


def reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response."""
    return Response(encode_json(value), status, media_type="application/json", headers=dict(headers or {}))


class Dispatcher(Generic[ContextT]):
    """The ASGI application that serves these routers. `render_error` makes the response for a Refusal."""

    def __init__(
        self,
        context: ContextT,
        routers: Iterable[Router],
        render_error: ErrorRenderer = problem_details.answer,
    ) -> None:
        self.context = context
        self._render_error = render_error
        self._proxies = context.settings.server.trusted_networks()
        routers = tuple(routers)
        self.endpoints = tuple(endpoint for router in routers for endpoint in router.endpoints)
        context.endpoints = self.endpoints
        self._static = {
            (endpoint.method, endpoint.path): endpoint
            for endpoint in self.endpoints
            if "{" not in endpoint.path
        }
        self._by_length: dict[int, list[tuple[tuple[str, ...], Endpoint]]] = {}
        for endpoint in [*self.endpoints, *(socket for router in routers for socket in router.sockets)]:
            segments = tuple(endpoint.path.split("/"))
            self._by_length.setdefault(len(segments), []).append((segments, endpoint))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return
        headers, started_at = request_headers(scope), time.perf_counter()
        request_id = _request_id(headers)
        try:
            response = await self._respond(scope, receive, headers, request_id)
        except Refusal as refusal:
            response = self._render_error(refusal, request_id)
        except CograilError as error:
            response = self._render_error(problem_details.refusal_of(error), request_id)
        except STALLED as error:
            log.warning("server overloaded", path=scope["path"], request_id=request_id, error=str(error))
            response = self._render_error(OVERLOADED, request_id)
        except LOST as error:
            log.warning(
                "database connection lost", path=scope["path"], request_id=request_id, error=str(error)
            )
            response = self._render_error(DATABASE_UNAVAILABLE, request_id)
        except asyncio.CancelledError:  # the server stops and its grace period has passed
            response = self._render_error(SHUTTING_DOWN, request_id)
        except Exception:
            log.exception("request failed", path=scope["path"], request_id=request_id)
            unexpected = Refusal(
                500, "internal", "Internal error. The server log has details for this request id."
            )
            response = self._render_error(unexpected, request_id)
        metrics.observe_request(
            scope.get("method", SOCKET), response.status_code, time.perf_counter() - started_at
        )
        response.raw_headers += _common_headers(response, request_id)
        await response(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive, headers: Headers, request_id: str) -> Response:
        request_limits.check_framing(scope)
        endpoint, path = self._find(scope.get("method", SOCKET), scope["path"])
        request_limits.check_expectations(headers)
        request_limits.check_hops(headers)
        if not endpoint.is_stream:
            request_limits.check_accept(headers, endpoint.media_type, problem_details.MEDIA_TYPE)
        address = client_address(scope, headers, self._proxies)
        caller = await self.context.keys.caller(
            headers, address, allows_stale_auth=endpoint.allows_stale_auth
        )
        scope["cograil.caller"] = caller  # for middleware that logs refused callers
        if not caller.key_id:
            reject_foreign_origin(headers, self.context.settings.host)
        if not caller.may(*endpoint.requires):
            raise Refusal(403, "forbidden", f"this requires the role {' or '.join(endpoint.requires)}")
        request_limits.check_tenant(headers)
        call = Call(self.context, endpoint, caller, request_id, address, headers, path, receive)
        if endpoint.query is not None:
            call.query = read_query(scope["query_string"], endpoint.query)
        elif scope["query_string"]:
            read_query(scope["query_string"], NoQuery)
        if endpoint.body is not None:
            call.body = await _parse_body(endpoint, endpoint.body, headers, receive)
        return await endpoint.serve(call)

    def serves(self, method: str, path: str) -> bool:
        """Return whether a route matches this method and path."""
        try:
            self._find(method, path)
        except Refusal:
            return False
        return True

    def _find(self, method: str, path: str) -> tuple[Endpoint, dict[str, str]]:
        """Return the route and its path parameters. Raises Refusal: 404, or 405 for another method."""
        if (endpoint := self._static.get((method, path))) is not None:
            return endpoint, {}
        path_segments = path.split("/")
        allowed = []
        for segments, endpoint in self._by_length.get(len(path_segments), ()):
            parameters = _match(segments, path_segments)
            if parameters is None:
                continue
            if method in (endpoint.method, "HEAD") and (method != "HEAD" or endpoint.method == "GET"):
                return endpoint, parameters
            allowed.append(endpoint.method)
        if allowed:
            allow = ", ".join(sorted({*allowed, *(["HEAD"] if "GET" in allowed else [])}))
            raise Refusal(405, "method_not_allowed", f"this route allows {allow}", headers={"Allow": allow})
        raise Refusal(404, "not_found", "no route matches this path")


async def _parse_body(
    endpoint: Endpoint, model: type[BaseModel], headers: Headers, receive: Receive
) -> BaseModel:
    """Return the body as its model. An empty optional body equals an empty object."""
    is_empty = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
    if is_empty and endpoint.is_body_optional:
        return model()
    is_untyped = endpoint.is_type_optional and "content-type" not in headers
    request_limits.check_json(headers, is_any_type=endpoint.is_any_type or is_untyped)
    raw = await request_limits.read_body(receive, headers, endpoint.max_body)
    if len(raw) <= MAX_INLINE_BYTES:
        return read_body(raw, model, max_bytes=endpoint.max_body)
    return await asyncio.to_thread(read_body, raw, model, max_bytes=endpoint.max_body)


def _match(segments: tuple[str, ...], path_segments: list[str]) -> dict[str, str] | None:
    """Return the path parameters, or None when the path is not one of this route."""
    parameters: dict[str, str] = {}
    for segment, text in zip(segments, path_segments, strict=True):
        if segment.startswith("{"):
            name, _, suffix = segment[1:].partition("}")  # {id}:refresh is an id followed by an action
            if len(text) <= len(suffix) or not text.endswith(suffix) or not text.isprintable():
                return None
            parameters[name] = text.removesuffix(suffix)
        elif segment != text:
            return None
    return parameters


def _common_headers(response: Response, request_id: str) -> list[tuple[bytes, bytes]]:
    """Return the headers that every response has."""
    headers = [(b"x-request-id", request_id.encode()), (b"x-content-type-options", b"nosniff")]
    if not any(name == b"cache-control" for name, _ in response.raw_headers):
        headers.append((b"cache-control", b"no-store"))
    return headers


def _request_id(headers: Headers) -> str:
    """Return the request id of the client if it is safe to log, else a new one."""
    value = headers.get("x-request-id", "")
    is_plain = value.isascii() and value.replace("-", "").replace("_", "").isalnum()
    return value if is_plain and len(value) <= MAX_REQUEST_ID else new_id()
