"""The access log: one line for each request, if COGRAIL_SERVER__ACCESS_LOG is on."""

from __future__ import annotations

import time

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cograil.http.auth.client_address import client_address
from cograil.settings import Settings

log = structlog.get_logger("access")


def log_requests(app: ASGIApp, settings: Settings) -> ASGIApp:
    """Return this application with an access log, if the settings enable it.

    The query string is not logged: it may contain cursors and keys.
    """
    if not settings.server.access_log:
        return app
    proxies = settings.server.trusted_networks()

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        started_at, status, size = time.perf_counter(), 0, 0

        async def count(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                size += len(message.get("body", b""))
            await send(message)

        try:
            await app(scope, receive, count)
        finally:
            log.info(
                "request",
                method=scope["method"],
                path=scope["path"],
                status=status or None,
                bytes=size,
                ms=round((time.perf_counter() - started_at) * 1000, 1),
                client=client_address(scope, Headers(scope=scope), proxies),
            )

    return serve
