"""Refusals of a post: how they are told, and that each of them is in the audit log.

It is written in a transaction of its own, before the caller hears of it: what the log cannot hold is answered
503. Whom nobody recognised is written down without a user.
"""

from __future__ import annotations

from collections.abc import Callable

import orjson
import psycopg
import structlog
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cograil.apps.captures import audit, queries
from cograil.apps.captures.audit import Happening
from cograil.apps.captures.keyed_lock import Turns
from cograil.apps.captures.request import capture_asked
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


def answer(refusal: Refusal, request_id: str) -> Response:
    """A refusal as callers of this API know it; of a field that is wrong the name is told."""
    is_malformed = refusal.status in MALFORMED and refusal.code not in OURS
    status = 400 if is_malformed else refusal.status
    word = OURS.get(refusal.code) or WORDS.get(status, refusal.code.upper())
    body = {"error": word, "message": refusal.detail}
    if refusal.pointer:
        body["field"] = refusal.pointer.removeprefix("/")
    headers = {**refusal.headers}
    return Response(orjson.dumps(body), status, media_type="application/json", headers=headers)


class Audited:
    """A door of which every refusal of a post is in the audit log before it is told."""

    def __init__(self, door: ASGIApp, instance: ApiContext, is_audited: Callable[[Scope], bool]) -> None:
        self._door = door
        self._instance = instance
        self._is_audited = is_audited
        self._proxies = instance.settings.server.trusted_networks()
        self._turns = Turns()  # of those who are refused alike: a crowd of them waits for one chain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._is_audited(scope):
            await self._door(scope, receive, send)
            return
        told: list[Message] = []

        async def keep(message: Message) -> None:
            told.append(message)

        noted: list[str] = []
        token = capture_asked.set(noted)
        try:
            await self._door(scope, receive, keep)
        finally:
            capture_asked.reset(token)
        if told and told[0]["status"] >= 400:
            try:
                await self._write(scope, told[0]["status"], told[-1].get("body", b""), noted)
            except (*LOST, psycopg.Error, CograilError) as error:
                log.warning("a refusal is not in the audit log", error=str(error).strip())
                is_busy = isinstance(error, STALLED | Overloaded)
                await answer(OVERLOADED if is_busy else DATABASE_UNAVAILABLE, "")(scope, receive, send)
                return
        for message in told:
            await send(message)

    async def _write(self, scope: Scope, status: int, body: bytes, noted: list[str]) -> None:
        caller: Caller | None = scope.get("cograil.caller")
        address = client_address(scope, request_headers(scope), self._proxies)
        capture_id = noted[0] if noted else None
        tenant, user = (caller.tenant, caller.user_id) if caller is not None else (None, None)
        payload = orjson.loads(body) if body else {}
        happening = Happening("CAPTURE_REFUSED", tenant, user, capture_id, status, address, payload)

        async def write() -> None:
            async with self._instance.db.transaction("refuse_capture", tenant=tenant) as tx:
                if user is not None:
                    await queries.act_for_user(tx, user)
                await audit.append(tx, await _chain(tx, happening), happening)

        await self._turns.take((tenant, user, None if user else address), write)


async def _chain(tx: Transaction, happening: Happening) -> str:
    """The caller's own capture, if it was about one; else all that is refused to this user or address."""
    if happening.tenant_id is None or happening.user_id is None:
        return f"address/{happening.source_ip}"
    if happening.capture_id is not None:
        own = await queries.find_capture(tx, happening.tenant_id, happening.capture_id)
        if own is not None and own.user_id == happening.user_id:
            return own.id
    return f"user/{happening.tenant_id}/{happening.user_id}"
