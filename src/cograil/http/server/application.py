"""The application of one port: probes, the API, its OpenAPI document, and mounted applications."""

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
from cograil.http.auth.authentication import KeyAuthenticator, is_local
from cograil.http.routes.bulk_routes import bulk_operations
from cograil.http.routes.gateway_submit_routes import gateway_submits
from cograil.http.routes.handler_test_routes import handler_tests
from cograil.http.routes.health_routes import health
from cograil.http.routes.job_action_routes import job_actions
from cograil.http.routes.job_lookup_routes import job_lookups
from cograil.http.routes.job_routes import jobs
from cograil.http.routes.job_view_routes import job_views
from cograil.http.routes.monitoring_routes import dag, job_metrics, monitoring
from cograil.http.routes.schedule_routes import schedules
from cograil.http.routes.webhook_routes import webhooks
from cograil.http.routes.worker_routes import workers
from cograil.http.routes.workflow_routes import workflows
from cograil.http.server import problem_details, request_limits
from cograil.http.server.dispatcher import ApiContext, Dispatcher
from cograil.http.server.idempotent_requests import IN_PROGRESS_SECONDS
from cograil.http.server.openapi import openapi_document
from cograil.http.server.page_cursors import PageCursors
from cograil.http.server.problem_details import Refusal
from cograil.http.server.routing import Router
from cograil.http.server.single_flight import SingleFlight
from cograil.http.server.submit_batcher import SubmitBatcher
from cograil.http.streams.event_streams import live_events, sockets
from cograil.http.streams.event_subscribers import EventSubscribers
from cograil.http.streams.job_waiter import JobEndListener
from cograil.model.ids import new_id
from cograil.settings import Settings
from cograil.store.api_keys import find_secret, role_privileges
from cograil.store.connect_retry import look
from cograil.store.database import Database
from cograil.store.database_roles import ROLE_ERRORS, SERVER_ROLE, explain_roles
from cograil.verbs.advance import EngineContext

ROUTERS: Sequence[Router] = (
    jobs,
    gateway_submits,
    job_actions,
    job_views,
    job_lookups,
    bulk_operations,
    workflows,
    workers,
    webhooks,
    schedules,
    live_events,
    sockets,
    monitoring,
    job_metrics,
    dag,
    handler_tests,
    health,
    openapi_document,
)


@asynccontextmanager
async def open_api_context(
    db: Database, engine_context: EngineContext, settings: Settings, key_file: Path | None = None
) -> AsyncIterator[ApiContext]:
    """Yield the context of the API. Raises UnsafeDatabase for a role that bypasses row-level security."""
    secret = await look(partial(_find_secret, db))
    job_end_listener, subscribers = JobEndListener(db), EventSubscribers(db)
    single_flight = SingleFlight[Any](IN_PROGRESS_SECONDS)
    keys = KeyAuthenticator(db, key_file, is_local=is_local(settings))
    try:
        yield ApiContext(
            db,
            settings,
            keys,
            engine_context,
            cursors=PageCursors(secret),
            submit_batcher=SubmitBatcher(db, engine_context),
            job_end_listener=job_end_listener,
            subscribers=subscribers,
            single_flight=single_flight,
        )
    finally:
        await single_flight.end()
        await keys.end()
        await subscribers.stop()
        await job_end_listener.stop()


async def _find_secret(db: Database) -> str:
    """Load the secret of the cursors. Raises UnsafeDatabase or RolesMissing for an unsuitable role."""
    try:
        async with db.transaction("doors") as tx:
            require_rls_bound_role(await role_privileges(tx))
            return await find_secret(tx, "cursor")
    except ROLE_ERRORS as error:
        raise RolesMissing(explain_roles(SERVER_ROLE, str(error))) from error


def require_rls_bound_role(privileges: Sequence[str]) -> None:
    """Raise UnsafeDatabase when the role bypasses row-level security."""
    if privileges:
        raise UnsafeDatabase(
            f"the server cannot use a role that {' and '.join(privileges)}: it bypasses row-level security; "
            f"grant {SERVER_ROLE} to the user of the database URL, or set another role for the server"
        )


def _check_probe(scope: Scope) -> None:
    """Raise Refusal for a malformed probe request. Probes need no key, but the same limits apply."""
    request_limits.check_framing(scope)
    if scope["method"] not in ("GET", "HEAD"):
        allow = {"Allow": "GET, HEAD"}
        raise Refusal(405, "method_not_allowed", "this route allows GET, HEAD", headers=allow)


def application(
    context: ApiContext,
    probes: Iterable[Route],
    routers: Sequence[Router] = ROUTERS,
    apps: Mapping[str, ASGIApp] | None = None,
) -> ASGIApp:
    """Return the ASGI application. Probes need no key; `apps` maps path prefixes to mounted applications."""
    dispatcher, probe_app = Dispatcher(context, routers), Starlette(routes=list(probes))
    probe_paths = {route.path for route in probe_app.routes if isinstance(route, Route)}

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        is_probe = scope.get("path") in probe_paths and scope["type"] == "http"
        try:
            if is_probe:
                _check_probe(scope)
        except Refusal as refusal:
            await problem_details.answer(refusal, new_id())(scope, receive, send)
            return
        mounted = _mounted_app(scope, apps or {})
        await (probe_app if is_probe else mounted or dispatcher)(scope, receive, send)

    return serve


def _mounted_app(scope: Scope, apps: Mapping[str, ASGIApp]) -> ASGIApp | None:
    """Return the application mounted at a prefix of this path. `/` matches only itself, and only browsers."""
    path = scope.get("path", "")
    if path == "/":
        return apps.get(path) if _wants_page(scope) else None
    by_prefix = (app for prefix, app in apps.items() if prefix != "/" and path.startswith(f"{prefix}/"))
    return apps.get(path) or next(by_prefix, None)


def _wants_page(scope: Scope) -> bool:
    return any(name == b"accept" and b"text/html" in value for name, value in scope.get("headers", ()))
