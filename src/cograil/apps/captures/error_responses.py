"""Error responses of a post, each of which is recorded in the audit log.

The entry is written in a transaction of its own before the response is sent; if that fails, the response is 503. An
unauthenticated request is recorded without a user.
"""

from __future__ import annotations

from collections.abc import Callable

import orjson
import psycopg
import structlog
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cograil.apps.captures import audit, queries
from cograil.apps.captures.audit import AuditEvent
from cograil.apps.captures.keyed_lock import KeyedLock
from cograil.apps.captures.request import posted_capture_ids
from cograil.errors import CograilError, Overloaded
from cograil.http.auth.client_address import client_address
from cograil.http.server.dispatcher import DATABASE_UNAVAILABLE, OVERLOADED, ApiContext
from cograil.http.server.headers import request_headers
from cograil.http.server.problem_details import Refusal
from cograil.model.roles import Caller
from cograil.store.database import LOST, STALLED, Transaction

log = structlog.get_logger("captures")
OURS = {"capture_conflict": "CONFLICT", "clock_skewed": "CLOCK_SKEW", "capture_rate_exceeded": "RATE_LIMITED"}
MALFORMED = frozenset({413, 415, 422})
ERROR = {
    "type": "object",
    "required": ["error", "message"],
    "properties": {"error": {"type": "string"}, "message": {"type": "string"}, "field": {"type": "string"}},
}
WORDS = {
    400: "BAD_REQUEST",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    409: "CONFLICT",
    429: "RATE_LIMITED",
    503: "SERVICE_UNAVAILABLE",
}


def render_error(refusal: Refusal, request_id: str) -> Response:
    """The error response of this API; it names an invalid field."""
    is_malformed = refusal.status in MALFORMED and refusal.code not in OURS
    status = 400 if is_malformed else refusal.status
    word = OURS.get(refusal.code) or WORDS.get(status, refusal.code.upper())
    body = {"error": word, "message": refusal.detail}
    if refusal.pointer:
        body["field"] = refusal.pointer.removeprefix("/")
    headers = {**refusal.headers}
    return Response(orjson.dumps(body), status, media_type="application/json", headers=headers)


class AuditedApp:
    """An ASGI application that records every refused post in the audit log before it responds."""

    def __init__(self, app: ASGIApp, instance: ApiContext, is_audited: Callable[[Scope], bool]) -> None:
        self._app = app
        self._instance = instance
        self._is_audited = is_audited
        self._proxies = instance.settings.server.trusted_networks()
        self._locks = KeyedLock()  # concurrent refusals of one user or address wait here for their chain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._is_audited(scope):
            await self._app(scope, receive, send)
            return
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)

        capture_ids: list[str] = []
        token = posted_capture_ids.set(capture_ids)
        try:
            await self._app(scope, receive, keep)
        finally:
            posted_capture_ids.reset(token)
        if messages and messages[0]["status"] >= 400:
            try:
                await self._write(scope, messages[0]["status"], messages[-1].get("body", b""), capture_ids)
            except (*LOST, psycopg.Error, CograilError) as error:
                log.warning("a refusal is not in the audit log", error=str(error).strip())
                is_busy = isinstance(error, STALLED | Overloaded)
                await render_error(OVERLOADED if is_busy else DATABASE_UNAVAILABLE, "")(scope, receive, send)
                return
        for message in messages:
            await send(message)

    async def _write(self, scope: Scope, status: int, body: bytes, capture_ids: list[str]) -> None:
        caller: Caller | None = scope.get("cograil.caller")
        address = client_address(scope, request_headers(scope), self._proxies)
        capture_id = capture_ids[0] if capture_ids else None
        tenant, user = (caller.tenant, caller.user_id) if caller is not None else (None, None)
        payload = orjson.loads(body) if body else {}
        audit_event = AuditEvent("CAPTURE_REFUSED", tenant, user, capture_id, status, address, payload)

        async def write() -> None:
            async with self._instance.db.transaction("refuse_capture", tenant=tenant) as tx:
                if user is not None:
                    await queries.act_for_user(tx, user)
                await audit.append(tx, await _chain(tx, audit_event), audit_event)

        await self._locks.take((tenant, user, None if user else address), write)


async def _chain(tx: Transaction, audit_event: AuditEvent) -> str:
    """The chain of the caller's own capture if the request names one, else that of the user or address."""
    if audit_event.tenant_id is None or audit_event.user_id is None:
        return f"address/{audit_event.source_ip}"
    if audit_event.capture_id is not None:
        capture = await queries.find_capture(tx, audit_event.tenant_id, audit_event.capture_id)
        if capture is not None and capture.user_id == audit_event.user_id:
            return capture.id
    return f"user/{audit_event.tenant_id}/{audit_event.user_id}"
