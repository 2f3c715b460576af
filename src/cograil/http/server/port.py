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

SHUTDOWN_SECONDS = 2.0  # for requests that are still coming in; without a bound a slow client holds us
CUT_SECONDS = 0.1  # from the end of the connection until its request has noticed


def bind(host: str, port: int) -> socket.socket:
    """This port, ours. Raises Conflict when somebody else has it, UsageError when it cannot be had at all."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Conflict(f"port {port} on {host} is in use; choose another one, or 0 for any") from error
        raise UsageError(f"cannot listen on {host} port {port}: {error.strerror or error}") from error


class _Server(uvicorn.Server):
    """Signals are for the process, not for its server. Its end is quiet, whatever callers do."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take nothing more, answer what came in, and leave behind whoever is not done in time."""
        cutting = asyncio.create_task(self._cut())
        try:
            await super().shutdown(sockets)
        finally:
            cutting.cancel()

    async def _cut(self) -> None:
        """After the grace: who takes none of its answer is dropped, who has none yet is told by the door."""
        await asyncio.sleep(SHUTDOWN_SECONDS)
        for connection in list(self.server_state.connections):
            if not _can_be_told(connection):
                connection.transport.abort()
        await asyncio.sleep(CUT_SECONDS)
        for task in list(self.server_state.tasks):
            task.cancel()


def _can_be_told(connection: object) -> bool:
    """Whether it waits for an answer of which nothing was said yet. A WebSocket does not."""
    request = getattr(connection, "cycle", None)
    return request is not None and not request.response_started


def _protocol(told: ErrorRenderer) -> type[asyncio.Protocol] | Literal["auto"]:
    """How bytes become requests; where there is no httptools uvicorn knows another way."""
    try:
        from cograil.http.server.uvicorn_protocol import Protocol  # noqa: PLC0415
    except ModuleNotFoundError:
        return "auto"
    return type("Protocol", (Protocol,), {"told": staticmethod(told)})


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp,
    listening: socket.socket,
    ending: Callable[[], None] | None = None,
    told: ErrorRenderer = problem_details.answer,
) -> AsyncIterator[None]:
    """Answer on this socket during the block; it is closed afterwards.

    `ending` is called first, for answers that would go on for as long as somebody listens. `told` is how
    it is said that something is no request at all.
    """
    config = uvicorn.Config(
        app,
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        http=_protocol(told),
        ws=WebSocketProtocol,
        proxy_headers=False,  # whom to believe is decided by the door
        # Ours comes first: uvicorn's is loud.
        timeout_graceful_shutdown=round(SHUTDOWN_SECONDS + LINGER_SECONDS) + 2,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield
    finally:
        if ending is not None:
            ending()
        server.should_exit = True
        await task
