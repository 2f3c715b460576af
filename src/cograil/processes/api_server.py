"""The API server: inside `cograil up`, or as another `cograil server` on an existing database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import structlog

from cograil import logs
from cograil.app_registry import PortContext, require_apps
from cograil.errors import UsageError
from cograil.http.auth.client_address import is_loopback
from cograil.http.server.access_log import log_requests
from cograil.http.server.application import application, open_api_context
from cograil.http.server.dispatcher import ApiContext
from cograil.http.server.port import bind, serving
from cograil.http.server.probes import metrics_app, probe_routes
from cograil.processes.app_plugins import (
    all_doors,
    app_checks,
    app_samples,
    check_app_schemas,
    serving_ports,
)
from cograil.processes.instance_discovery import (
    check_schema,
    find_conninfo,
    make_engine_context,
    require_queues,
)
from cograil.processes.lifecycle import run_async, stop_on_signals
from cograil.processes.process_readiness import ProcessHealth
from cograil.settings import Settings
from cograil.store.connect_retry import look, opened
from cograil.store.database import BUSY, Database
from cograil.store.database_roles import SERVER_ROLE


def server(settings: Settings) -> None:
    """Serve the port until a signal arrives."""
    require_queues(settings)
    require_apps(settings)
    logs.configure(settings.log.level, settings.log.format)
    run_async(_serve(settings), "server")


async def _serve(settings: Settings) -> None:
    log = structlog.get_logger("server")
    conninfo = await find_conninfo(settings)
    async with open_api(conninfo, settings) as instance:
        await look(partial(check_schema, instance.db))
        await look(partial(check_app_schemas, instance.db, settings))
        stop = stop_on_signals()  # one signal suffices until here: no request was served
        apps = app_checks(settings, has_worker=False)
        health = ProcessHealth(instance.db, {}, apps, samples=app_samples(settings))
        probes = probe_routes(health.checks, health.samples)
        app = log_requests(application(instance, probes, apps=all_doors(instance)), settings)
        async with (
            serving(app, bind(settings.host, settings.port), instance.end),
            serving_ports(settings, PortContext(instance, health.checks, metrics_app(health.samples))),
        ):
            log.info("ready", host=settings.host, port=settings.port)
            await stop.wait()
            health.is_draining = True
    log.info("stopped")


@asynccontextmanager
async def open_api(conninfo: str, settings: Settings) -> AsyncIterator[ApiContext]:
    """Yield the context of the API, with connections of its own that act in the server role.

    Raises UsageError when the port would be open to everyone, UnsafeDatabase for a role with too many
    privileges.
    """
    url = settings.server.database_url or conninfo
    async with (
        opened(
            Database(url, settings.database, application="cograil server", kept=BUSY, role=SERVER_ROLE)
        ) as db,
        open_api_context(db, make_engine_context(settings), settings, settings.server.key_file) as instance,
    ):
        if not is_loopback(settings.host) and not await look(instance.keys.has_keys):
            raise UsageError(
                f"cannot listen on {settings.host}: no API key exists, so every client would be an admin; "
                "create a key with `cograil keys create --role admin` or name a file with a key in "
                "API_KEY_FILE, then start the server again (docs/how-to/deploy.md)"
            )
        try:
            yield instance
        finally:
            await instance.progress_throttle.stop()
