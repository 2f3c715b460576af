"""The door: every request comes in here, is measured, recognised, read and served, and leaves with an answer.

In this order, so that nothing is done for whoever may not: framing, route, key, role, body, parameters.
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
from cograil.http.auth.authentication import Recognising
from cograil.http.auth.client_address import address_of, refuse_foreign
from cograil.http.server import problem_details, request_limits
from cograil.http.server.headers import headers_of
from cograil.http.server.page_cursors import Cursors
from cograil.http.server.problem_details import Refusal, Telling
from cograil.http.server.request_parsing import NoQuery, read_body, read_query
from cograil.http.server.routing import SOCKET, Endpoint, Table
from cograil.http.server.single_flight import Flights
from cograil.http.server.submit_batcher import Gatherer
from cograil.http.streams.event_subscribers import Live
from cograil.http.streams.job_waiter import Doorbell
from cograil.http.streams.throttle import Pace
from cograil.model.ids import new_id
from cograil.model.roles import Caller
from cograil.settings import Settings
from cograil.store.api_keys import AuditEntry, add_audits
from cograil.store.database import LOST, STALLED, Database, Transaction
from cograil.verbs.advance import EngineContext

log = structlog.get_logger("http")
MAX_INLINE_BYTES = 64 * 1024  # larger bodies are read in a thread, so that others are served meanwhile
MAX_REQUEST_ID = 64
SHUTTING_DOWN = Refusal(
    503,
    "shutting_down",
    "this server is about to stop; what was asked for may have been done, ask again",
    headers={"Retry-After": "1"} | request_limits.CLOSE,
)
UNREACHABLE = Refusal(
    503,
    "database_unavailable",
    "the database went away; what was asked for may have been done, look before asking again",
    headers={"Retry-After": "1"},
)
TOO_BUSY = Refusal(
    503,
    Overloaded.code,
    "this server has more to do than it can; this was not finished, ask again",
    headers={"Retry-After": "1"},
)


@dataclass(slots=True)
class Behind:
    """What is behind any door: a database, and who may come in."""

    db: Database
    settings: Settings
    keys: Recognising
    endpoints: tuple[Endpoint, ...] = field(default=(), kw_only=True)  # what is served, once there is a door


@dataclass(slots=True)
class Instance(Behind):
    """What is behind the door of the API."""

    engine_context: EngineContext
    cursors: Cursors
    gatherer: Gatherer
    doorbell: Doorbell
    live: Live
    flights: Flights[Any]  # of what is asked under one idempotency key
    pace: Pace = field(default_factory=Pace)  # of progress that workers tell

    def end(self) -> None:
        """Whoever waits for something is answered now: the port is about to close."""
        self.live.end()
        self.doorbell.end()


House = TypeVar("House", bound=Behind, default=Instance)


@dataclass(slots=True)
class Call(Generic[House]):
    """One request, recognised and read."""

    instance: House
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
        """A transaction that sees the caller's tenant."""
        async with self.instance.db.transaction(name, tenant=self.caller.tenant) as tx:
            yield tx

    async def audit(self, tx: Transaction, action: str, target: str = "", **data: Any) -> None:
        """Note who does this; it commits with it."""
        await add_audits(tx, [self.entry(action, target, **data)])

    def entry(self, action: str, target: str = "", **data: Any) -> AuditEntry:
        """What the audit log says of this call."""
        caller = self.caller
        return AuditEntry(
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


def written(value: Any) -> bytes:
    """JSON as we answer it; times are written in UTC."""
    return orjson.dumps(value, option=orjson.OPT_UTC_Z)


def reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON."""
    return Response(written(value), status, media_type="application/json", headers=dict(headers or {}))


class Door(Generic[House]):
    """The application that serves these tables; `told` is how it says what goes wrong."""

    def __init__(
        self, instance: House, tables: Iterable[Table], told: Telling = problem_details.answer
    ) -> None:
        self.instance = instance
        self._told = told
        self._proxies = instance.settings.server.trusted_networks()
        tables = tuple(tables)
        self.endpoints = tuple(endpoint for table in tables for endpoint in table.endpoints)
        instance.endpoints = self.endpoints
        self._plain = {(one.method, one.path): one for one in self.endpoints if "{" not in one.path}
        self._by_length: dict[int, list[tuple[tuple[str, ...], Endpoint]]] = {}
        for endpoint in [*self.endpoints, *(one for table in tables for one in table.sockets)]:
            steps = tuple(endpoint.path.split("/"))
            self._by_length.setdefault(len(steps), []).append((steps, endpoint))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return
        headers, begun = headers_of(scope), time.perf_counter()
        request_id = _request_id(headers)
        try:
            response = await self._answer(scope, receive, headers, request_id)
        except Refusal as refusal:
            response = self._told(refusal, request_id)
        except CograilError as error:
            response = self._told(problem_details.refusal_of(error), request_id)
        except STALLED as error:
            log.warning(
                "too busy for a transaction", path=scope["path"], request_id=request_id, error=str(error)
            )
            response = self._told(TOO_BUSY, request_id)
        except LOST as error:
            log.warning("the database is gone", path=scope["path"], request_id=request_id, error=str(error))
            response = self._told(UNREACHABLE, request_id)
        except asyncio.CancelledError:  # the server is about to stop and waited for long enough
            response = self._told(SHUTTING_DOWN, request_id)
        except Exception:
            log.exception("request failed", path=scope["path"], request_id=request_id)
            unknown = Refusal(
                500, "internal", "something is wrong here; the log has more under this request id"
            )
            response = self._told(unknown, request_id)
        metrics.observe_request(
            scope.get("method", SOCKET), response.status_code, time.perf_counter() - begun
        )
        response.raw_headers += _always(response, request_id)
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, headers: Headers, request_id: str) -> Response:
        request_limits.check_framing(scope)
        endpoint, path = self._find(scope.get("method", SOCKET), scope["path"])
        request_limits.check_expectations(headers)
        request_limits.check_hops(headers)
        if not endpoint.is_stream:
            request_limits.check_accept(headers, endpoint.media_type, problem_details.MEDIA_TYPE)
        address = address_of(scope, headers, self._proxies)
        caller = await self.instance.keys.caller(headers, address, is_quick=endpoint.is_quick)
        scope["cograil.caller"] = caller  # for who stands before this door and wants to know whom it refused
        if not caller.key_id:
            refuse_foreign(headers, self.instance.settings.host)
        if not caller.may(*endpoint.requires):
            raise Refusal(403, "forbidden", f"this needs the role {' or '.join(endpoint.requires)}")
        request_limits.check_tenant(headers)
        call = Call(self.instance, endpoint, caller, request_id, address, headers, path, receive)
        if endpoint.query is not None:
            call.query = read_query(scope["query_string"], endpoint.query)
        elif scope["query_string"]:
            read_query(scope["query_string"], NoQuery)
        if endpoint.body is not None:
            call.body = await _body(endpoint, endpoint.body, headers, receive)
        return await endpoint.serve(call)

    def serves(self, method: str, path: str) -> bool:
        """Whether there is a route of this path for this method."""
        try:
            self._find(method, path)
        except Refusal:
            return False
        return True

    def _find(self, method: str, path: str) -> tuple[Endpoint, dict[str, str]]:
        """The route of this path. Raises Refusal: 404, or 405 when it is served for other methods only."""
        if (plain := self._plain.get((method, path))) is not None:
            return plain, {}
        given = path.split("/")
        allowed = []
        for steps, endpoint in self._by_length.get(len(given), ()):
            found = _matched(steps, given)
            if found is None:
                continue
            if method in (endpoint.method, "HEAD") and (method != "HEAD" or endpoint.method == "GET"):
                return endpoint, found
            allowed.append(endpoint.method)
        if allowed:
            allow = ", ".join(sorted({*allowed, *(["HEAD"] if "GET" in allowed else [])}))
            raise Refusal(405, "method_not_allowed", f"this route takes {allow}", headers={"Allow": allow})
        raise Refusal(404, "not_found", "there is nothing here")


async def _body(endpoint: Endpoint, model: type[BaseModel], headers: Headers, receive: Receive) -> BaseModel:
    """The body as its model. Where it may be left out, nothing is an empty object."""
    has_none = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
    if has_none and endpoint.is_body_optional:
        return model()
    is_untyped = endpoint.is_type_optional and "content-type" not in headers
    request_limits.check_json(headers, is_any_type=endpoint.is_any_type or is_untyped)
    raw = await request_limits.read_body(receive, headers, endpoint.max_body)
    if len(raw) <= MAX_INLINE_BYTES:
        return read_body(raw, model, max_bytes=endpoint.max_body)
    return await asyncio.to_thread(read_body, raw, model, max_bytes=endpoint.max_body)


def _matched(steps: tuple[str, ...], given: list[str]) -> dict[str, str] | None:
    """The names in the path, if it is one of this route."""
    found: dict[str, str] = {}
    for step, text in zip(steps, given, strict=True):
        if step.startswith("{"):
            name, _, end = step[1:].partition("}")  # {id}:refresh names an id, and what is asked of it
            if len(text) <= len(end) or not text.endswith(end) or not text.isprintable():
                return None
            found[name] = text.removesuffix(end)
        elif step != text:
            return None
    return found


def _always(response: Response, request_id: str) -> list[tuple[bytes, bytes]]:
    """What every answer says."""
    told = [(b"x-request-id", request_id.encode()), (b"x-content-type-options", b"nosniff")]
    if not any(name == b"cache-control" for name, _ in response.raw_headers):
        told.append((b"cache-control", b"no-store"))
    return told


def _request_id(headers: Headers) -> str:
    """The caller's own, if it is a plain word: it goes into logs and answers."""
    given = headers.get("x-request-id", "")
    is_plain = given.isascii() and given.replace("-", "").replace("_", "").isalnum()
    return given if is_plain and len(given) <= MAX_REQUEST_ID else new_id()
