"""All that is served on one port: probes, the API, and its description."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from cograil.errors import RolesMissing, UnsafeDatabase
from cograil.http.auth.authentication import KeyRing, is_local
from cograil.http.routes.gateway_submit_routes import submissions
from cograil.http.routes.handler_test_routes import trying
from cograil.http.routes.health_routes import health
from cograil.http.routes.job_action_routes import deeds
from cograil.http.routes.job_routes import jobs
from cograil.http.routes.job_view_routes import views
from cograil.http.routes.monitoring_routes import dag, measuring, observing
from cograil.http.routes.schedule_routes import schedules
from cograil.http.routes.webhook_routes import telling
from cograil.http.routes.worker_routes import workers
from cograil.http.routes.workflow_routes import workflows
from cograil.http.server import problem_details, request_limits
from cograil.http.server.dispatcher import Door, Instance
from cograil.http.server.idempotency_turns import IN_PROGRESS_SECONDS
from cograil.http.server.openapi import description
from cograil.http.server.page_cursors import Cursors
from cograil.http.server.problem_details import Refusal
from cograil.http.server.routing import Table
from cograil.http.server.single_flight import Flights
from cograil.http.server.submit_batcher import Gatherer
from cograil.http.streams.event_streams import live, sockets
from cograil.http.streams.event_subscribers import Live
from cograil.http.streams.job_waiter import Doorbell
from cograil.model.ids import new_id
from cograil.settings import Settings
from cograil.store.api_keys import find_secret, role_privileges
from cograil.store.connect_retry import look
from cograil.store.database import Database
from cograil.store.database_roles import ROLE_ERRORS, SERVER_ROLE, explain_roles
from cograil.verbs.advance import EngineContext

TABLES: Sequence[Table] = (
    jobs,
    submissions,
    deeds,
    views,
    workflows,
    workers,
    telling,
    schedules,
    live,
    sockets,
    observing,
    measuring,
    dag,
    trying,
    health,
    description,
)


@asynccontextmanager
async def open_instance(
    db: Database, engine_context: EngineContext, settings: Settings, key_file: Path | None = None
) -> AsyncIterator[Instance]:
    """What the API needs. Raises UnsafeDatabase for a role that sees more than one tenant at a time."""
    secret = await look(partial(_find_secret, db))
    doorbell, streams, flights = Doorbell(db), Live(db), Flights[Any](IN_PROGRESS_SECONDS)
    keys = KeyRing(db, key_file, is_local=is_local(settings))
    try:
        yield Instance(
            db,
            settings,
            keys,
            engine_context,
            cursors=Cursors(secret),
            gatherer=Gatherer(db, engine_context),
            doorbell=doorbell,
            live=streams,
            flights=flights,
        )
    finally:
        await flights.end()
        await keys.end()
        await streams.stop()
        await doorbell.stop()


async def _find_secret(db: Database) -> str:
    """That of the cursors, for a role that may have it. Raises UnsafeDatabase or RolesMissing."""
    try:
        async with db.transaction("doors") as tx:
            refuse_powerful(await role_privileges(tx))
            return await find_secret(tx, "cursor")
    except ROLE_ERRORS as error:
        raise RolesMissing(explain_roles(SERVER_ROLE, str(error))) from error


def refuse_powerful(powers: Sequence[str]) -> None:
    """Raises UnsafeDatabase when row-level security would not bind this role."""
    if powers:
        raise UnsafeDatabase(
            f"no door may act in a role that {' and '.join(powers)}: row-level security does not bind it; "
            f"grant {SERVER_ROLE} to the user of the database URL, or name another one for the server"
        )


def _check_probe(scope: Scope) -> None:
    """Raises Refusal: a probe needs no key, but it is a request like any other."""
    request_limits.check_framing(scope)
    if scope["method"] not in ("GET", "HEAD"):
        allow = {"Allow": "GET, HEAD"}
        raise Refusal(405, "method_not_allowed", "this route takes GET, HEAD", headers=allow)


def application(
    instance: Instance,
    probes: Iterable[Route],
    tables: Sequence[Table] = TABLES,
    apps: Mapping[str, ASGIApp] | None = None,
) -> ASGIApp:
    """The probes need no key; all else goes through the door, or that of the app whose paths begin so."""
    door, probing = Door(instance, tables), Starlette(routes=list(probes))
    probed = {route.path for route in probing.routes if isinstance(route, Route)}

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        is_probe = scope.get("path") in probed and scope["type"] == "http"
        try:
            if is_probe:
                _check_probe(scope)
        except Refusal as refusal:
            await problem_details.answer(refusal, new_id())(scope, receive, send)
            return
        own = _app_of(scope, apps or {})
        await (probing if is_probe else own or door)(scope, receive, send)

    return serve


def _app_of(scope: Scope, apps: Mapping[str, ASGIApp]) -> ASGIApp | None:
    """The app that serves this path, and all below it; `/` is only itself, and for browsers only."""
    path = scope.get("path", "")
    if path == "/":
        return apps.get(path) if _wants_page(scope) else None
    below = (app for begin, app in apps.items() if begin != "/" and path.startswith(f"{begin}/"))
    return apps.get(path) or next(below, None)


def _wants_page(scope: Scope) -> bool:
    return any(name == b"accept" and b"text/html" in value for name, value in scope.get("headers", ()))
