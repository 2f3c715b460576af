"""The gateway: by itself on a port, or beside the API inside `cograil up`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from cograil import logs
from cograil.embedded.data_directory import is_held, read_instance
from cograil.errors import NoInstance, UsageError
from cograil.gateway.gateway_context import answer
from cograil.gateway.gateway_readiness import UpstreamUrls, application, opened
from cograil.http.auth.authentication import KeyAuthenticator
from cograil.http.auth.client_address import is_loopback
from cograil.http.server.port import bind, serving
from cograil.processes.instance_discovery import find_conninfo
from cograil.processes.lifecycle import first_of, kept_running, run_async, stop_on_signals
from cograil.settings import Settings

log = structlog.get_logger("gateway")

NOWHERE = UpstreamUrls(None, None)


def gateway(settings: Settings) -> None:
    """Serve the port until a signal arrives; until the checks pass, it reports that it is not ready."""
    logs.configure(settings.log.level, settings.log.format)
    run_async(_serve(settings))


async def _serve(settings: Settings) -> None:
    stop = stop_on_signals()
    listening = bind(settings.host, settings.gateway.port)
    log.info("listening", host=settings.host, port=listening.getsockname()[1])
    async with open_gateway(settings, listening) as running:
        await first_of(stop, running)
    log.info("stopped")


@asynccontextmanager
async def open_gateway(
    settings: Settings, listening: socket.socket, inside: UpstreamUrls = NOWHERE
) -> AsyncIterator[asyncio.Task[None]]:
    """Yield a gateway on this socket as a task, which raises when it can never be ready.

    `inside` has the URLs of the database and the API of this process, if it runs them.
    """

    async def find() -> UpstreamUrls:
        return await _find(settings, inside)

    async def approve(keys: KeyAuthenticator) -> None:
        if not is_loopback(settings.host) and not await keys.has_keys():
            raise UsageError(
                f"the gateway cannot listen on {settings.host}: no API key exists, so every client would be an "
                "admin; start the gateway on 127.0.0.1, create a key with `cograil keys create`, then start it here "
                "again"
            )

    async with (
        opened(settings, find, approve) as startup,
        serving(application(startup), listening, render_error=answer),
        kept_running(startup.run(), startup.stop) as running,
    ):
        yield running


async def _find(settings: Settings, inside: UpstreamUrls) -> UpstreamUrls:
    """Return the URLs from the settings, else those of this process, else those of the instance on the data
    directory.
    """
    configured = settings.gateway
    database = configured.database_url or settings.database.url or inside.database
    api = configured.api_url or inside.api
    if (database and api) or not is_held(settings.data_dir):
        return UpstreamUrls(database, api)
    try:
        database = database or await find_conninfo(settings)
    except NoInstance:
        return UpstreamUrls(database, api)
    instance = read_instance(settings.data_dir)
    return UpstreamUrls(database, api or (url_of(instance.host, instance.port) if instance else None))


def url_of(host: str, port: int) -> str:
    """Return the URL at which this machine reaches a listening socket."""
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
