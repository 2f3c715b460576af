"""A port, and an application served on it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.types import ASGIApp

from cograil.errors import Conflict, UsageError

SHUTDOWN_SECONDS = 2  # for requests that are still coming in; without a bound a slow client holds us


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
    """Signals are for the process, not for its server."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(app: ASGIApp, listening: socket.socket) -> AsyncIterator[None]:
    """Answer on this socket during the block; it is closed afterwards."""
    config = uvicorn.Config(
        app,
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield
    finally:
        server.should_exit = True
        await task
