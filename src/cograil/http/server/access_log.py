"""One log line for each request that was answered, for those who want it (COGRAIL_SERVER__ACCESS_LOG)."""

from __future__ import annotations

import time

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cograil.http.auth.client_address import client_address
from cograil.settings import Settings

log = structlog.get_logger("access")


def log_requests(app: ASGIApp, settings: Settings) -> ASGIApp:
    """This application; each of its answers is logged when it ends, if the settings say so.

    The query is left out: cursors and keys of callers may be in it.
    """
    if not settings.server.access_log:
        return app
    proxies = settings.server.trusted_networks()

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        begun, status, size = time.perf_counter(), 0, 0

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
                ms=round((time.perf_counter() - begun) * 1000, 1),
                client=client_address(scope, Headers(scope=scope), proxies),
            )

    return serve
