"""A port, and an application served on it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Literal

import uvicorn
from starlette.types import ASGIApp

from cograil.errors import Conflict, UsageError
from cograil.http.server import problem_details
from cograil.http.server.lingering_close import LINGER_SECONDS
from cograil.http.server.problem_details import ErrorRenderer
from cograil.http.streams.websocket import WebSocketProtocol

SHUTDOWN_SECONDS = (
    2.0  # for requests that are still being received; a slow client must not block the shutdown
)
CUT_SECONDS = 0.1  # from the end of a connection until its request notices it


def bind(host: str, port: int) -> socket.socket:
    """Bind this port. Raises Conflict when it is in use, UsageError when it cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Conflict(f"port {port} on {host} is in use; choose another one, or 0 for any") from error
        raise UsageError(f"cannot listen on {host} port {port}: {error.strerror or error}") from error


class _Server(uvicorn.Server):
    """A server that leaves signals to the process and stops within a bounded time."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, finish the open requests, and cut those that exceed the grace period."""
        cut = asyncio.create_task(self._cut())
        try:
            await super().shutdown(sockets)
        finally:
            cut.cancel()

    async def _cut(self) -> None:
        """After the grace period, abort connections that read no response; the others get a 503 first."""
        await asyncio.sleep(SHUTDOWN_SECONDS)
        for connection in list(self.server_state.connections):
            if not _awaits_response(connection):
                connection.transport.abort()
        await asyncio.sleep(CUT_SECONDS)
        for task in list(self.server_state.tasks):
            task.cancel()


def _awaits_response(connection: object) -> bool:
    """Return whether a request has no response yet. A WebSocket never has."""
    request = getattr(connection, "cycle", None)
    return request is not None and not request.response_started


def _protocol(render_error: ErrorRenderer) -> type[asyncio.Protocol] | Literal["auto"]:
    """Return the protocol class; without httptools, uvicorn chooses its own."""
    try:
        from cograil.http.server.uvicorn_protocol import Protocol  # noqa: PLC0415
    except ModuleNotFoundError:
        return "auto"
    return type("Protocol", (Protocol,), {"render_error": staticmethod(render_error)})


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp,
    listener: socket.socket,
    on_end: Callable[[], None] | None = None,
    render_error: ErrorRenderer = problem_details.answer,
) -> AsyncIterator[None]:
    """Serve on this socket during the block; it is closed afterwards.

    `on_end` is called first, to end streams. `render_error` makes the response to an unreadable request.
    """
    config = uvicorn.Config(
        app,
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        http=_protocol(render_error),
        ws=WebSocketProtocol,
        proxy_headers=False,  # the dispatcher decides which proxies to trust
        # Longer than the server's own grace period, because uvicorn logs an error when this one expires.
        timeout_graceful_shutdown=round(SHUTDOWN_SECONDS + LINGER_SECONDS) + 2,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        if on_end is not None:
            on_end()
        server.should_exit = True
        await task
