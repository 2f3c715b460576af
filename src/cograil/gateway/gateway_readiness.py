"""Readiness of the gateway: it serves requests once all checks pass, and reports what is missing until then.

The checks run every second, so the gateway, the database and the API may start in any order. The probes always
respond.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import psycopg
import structlog
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from cograil import metrics
from cograil.errors import CograilError, DatabaseUnavailable, RolesMissing, SchemaMismatch, UnsafeDatabase
from cograil.gateway.admin_views import admin
from cograil.gateway.gateway_context import ALSO_UNDER, Gateway, answer, with_prefix
from cograil.gateway.operator_views import status
from cograil.gateway.proxy import TARGETS, proxy
from cograil.gateway.public_requests import platform
from cograil.gateway.upstream_client import Upstream
from cograil.http.auth.authentication import KeyAuthenticator, is_local
from cograil.http.server import request_limits
from cograil.http.server.dispatcher import Dispatcher
from cograil.http.server.problem_details import Refusal
from cograil.settings import Settings
from cograil.store.api_keys import role_privileges
from cograil.store.database import Database
from cograil.store.database_roles import GATEWAY_ROLE, ROLE_ERRORS
from cograil.store.migrate import status as schema_status
from cograil.verbs.definition_cache import DefinitionCache

log = structlog.get_logger("gateway")

ROUTERS = [platform, status, admin, proxy]
OK = "ok"
CHECKS = ("env_vars", "database", "orchestrator")
RETRY_SECONDS = 1.0
TIMEOUT_SECONDS = 2.0
PROBES = ("/livez", "/readyz", "/metrics")
OVERRIDES = ("x-http-method-override", "x-http-method", "x-method-override")


class UpstreamUrls(NamedTuple):
    """The URLs of the database and the API; None if not configured."""

    database: str | None
    api: str | None

    @property
    def missing(self) -> list[str]:
        """The variables that are not set."""
        names = {"COGRAIL_GATEWAY__DATABASE_URL": self.database, "COGRAIL_GATEWAY__API_URL": self.api}
        return [name for name, value in names.items() if not value]


Find = Callable[[], Awaitable[UpstreamUrls]]
Approve = Callable[[KeyAuthenticator], Awaitable[None]]


class Startup:
    """The checks, and the dispatcher once all of them have passed."""

    def __init__(self, settings: Settings, find: Find, approve: Approve) -> None:
        self.checks = dict.fromkeys(CHECKS, "not checked yet")
        self.dispatcher: Dispatcher[Gateway] | None = None
        self._stopping = asyncio.Event()
        self._settings = settings
        self._find = find
        self._approve = approve
        self._resources = AsyncExitStack()

    async def run(self) -> None:
        """Run the checks until they pass, then serve until `stop`.

        Raises UnsafeDatabase for a role with too many privileges, and what `approve` raises.
        """
        while not self._stopping.is_set():
            if self.dispatcher is None and await self._check_all():
                log.info("gateway ready", checks=self.checks)
            seconds = None if self.dispatcher else RETRY_SECONDS
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), seconds)

    def stop(self) -> None:
        """Stop: the gateway is no longer ready."""
        self._stopping.set()

    async def close(self) -> None:
        """Close all connections."""
        await self._resources.aclose()

    async def readiness(self) -> dict[str, str]:
        """Return the checks. Once all have passed, only the database is checked again."""
        if self.dispatcher is None:
            return self.checks
        checks = self.checks | {"database": await _database_state(self.dispatcher.context.db)}
        return checks | ({"draining": "stopping"} if self._stopping.is_set() else {})

    async def _check_all(self) -> bool:
        connections = await self._find()
        self.checks["env_vars"] = f"missing: {', '.join(connections.missing)}" if connections.missing else OK
        async with AsyncExitStack() as stack:
            db, self.checks["database"] = await self._open_database(stack, connections.database)
            api, self.checks["orchestrator"] = await self._open_api(stack, connections.api)
            if any(self.checks[name] != OK for name in CHECKS) or db is None or api is None:
                return False
            file = self._settings.server.key_file
            keys = KeyAuthenticator(db, file, is_noting=False, is_local=is_local(self._settings))
            stack.push_async_callback(keys.end)
            await self._approve(keys)
            worker = self._upstream(stack, self._settings.gateway.worker_url)
            gateway = Gateway(db, self._settings, keys, DefinitionCache(), api, worker)
            self.dispatcher = Dispatcher(gateway, with_prefix(ROUTERS), answer)
            self._resources = stack.pop_all()
        return True

    async def _open_database(self, stack: AsyncExitStack, url: str | None) -> tuple[Database | None, str]:
        """Return a database that responds in the gateway role, or why there is none. Raises UnsafeDatabase."""
        if url is None:
            return None, "not configured"
        database = Database(url, self._settings.database, application="cograil gateway", role=GATEWAY_ROLE)
        try:
            async with asyncio.timeout(2 * TIMEOUT_SECONDS):
                db = await stack.enter_async_context(database)
                await _check(db)
        except UnsafeDatabase:
            raise
        except SchemaMismatch:
            return None, "the schema does not match this release: run `cograil db migrate`"
        except (RolesMissing, *ROLE_ERRORS):
            log.warning("roles or grants are missing", role=GATEWAY_ROLE, next="run `cograil db roles`")
            return None, "roles or grants are missing: run `cograil db roles`"
        except (TimeoutError, CograilError, psycopg.Error):  # the error may name hosts and users
            return None, "unreachable"
        return db, OK

    async def _open_api(self, stack: AsyncExitStack, url: str | None) -> tuple[Upstream | None, str]:
        api = self._upstream(stack, url)
        return api, "not configured" if api is None else await api.is_alive(TIMEOUT_SECONDS)

    def _upstream(self, stack: AsyncExitStack, url: str | None) -> Upstream | None:
        if not url:
            return None
        upstream = Upstream(url, self._settings.gateway.timeout_seconds)
        stack.push_async_callback(upstream.close)
        return upstream


async def _check(db: Database) -> None:
    """Raise UnsafeDatabase for a role with too many privileges, SchemaMismatch for an unknown schema."""
    async with db.transaction("doors") as tx:
        privileges = await role_privileges(tx)
        schema = await schema_status(tx.connection)
    if privileges:
        raise UnsafeDatabase(
            f"the gateway cannot use a role that {' and '.join(privileges)}: it bypasses row-level security; "
            f"{GATEWAY_ROLE} must be a plain role that owns nothing"
        )
    if schema.problems or schema.pending:
        raise SchemaMismatch("; ".join(schema.problems) or "the schema is older than this release")


async def _database_state(db: Database) -> str:
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS), db.transaction("probe"):
            return OK
    except (TimeoutError, psycopg.Error, DatabaseUnavailable):
        return "unreachable"


# -- the application --------------------------------------------------------------------------------------


def application(startup: Startup) -> ASGIApp:
    """Return the application. The probes need no key; all other requests go to the dispatcher once it is ready."""

    async def livez(request: Request) -> JSONResponse:
        """Return 200 while the event loop runs."""
        return JSONResponse({"alive": True})

    async def readyz(request: Request) -> JSONResponse:
        """Return 200 when every check is ok, else 503 with the failed ones."""
        checks = await startup.readiness()
        failed = {name: state for name, state in checks.items() if state != OK}
        if failed:
            body = {"ready": False, "error": "not ready", "details": failed, "checks": checks}
            return JSONResponse(body, status_code=503)
        return JSONResponse({"ready": True, "checks": checks})

    async def show_metrics(request: Request) -> Response:
        """Return the metrics of requests and of this process, not of jobs: the port needs no key."""
        text, kind = metrics.exposition(None, request.headers.get("accept", ""))
        return Response(text, headers={"content-type": kind})

    handlers = dict(zip(PROBES, (livez, readyz, show_metrics), strict=True))
    routes = [Route(prefix + path, handlers[path]) for prefix in ("", ALSO_UNDER) for path in PROBES]
    probe_app, probe_paths = _with_framing_checks(Starlette(routes=routes)), {route.path for route in routes}

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        is_probe = (
            scope["type"] == "http" and scope["path"] in probe_paths and scope["method"] in ("GET", "HEAD")
        )
        await (probe_app(scope, receive, send) if is_probe else _dispatch(startup, scope, receive, send))

    return serve


def _with_framing_checks(app: ASGIApp) -> ASGIApp:
    """Return this application with the limits of other requests."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            request_limits.check_framing(scope)
        except Refusal as refusal:
            await answer(refusal, "")(scope, receive, send)
        else:
            await app(scope, receive, send)

    return serve


async def _dispatch(startup: Startup, scope: Scope, receive: Receive, send: Send) -> None:
    """Pass a request to the dispatcher, or answer 503 until it is ready."""
    if scope["type"] not in ("http", "websocket"):
        return
    try:
        _check_request(scope)
        if startup.dispatcher is None:
            failed = ", ".join(name for name, state in startup.checks.items() if state != OK)
            raise Refusal(503, "not_ready", f"the gateway is not ready: {failed or 'starting'}")
    except Refusal as refusal:
        await answer(refusal, "")(scope, receive, send)
        return
    await startup.dispatcher(scope, receive, send)


def _check_request(scope: Scope) -> None:
    """Raise Refusal for a method override header, which an upstream might obey, and for an unknown proxy target.

    A probe gets here only with an unsupported method.
    """
    headers = Headers(scope=scope)
    if any(name in headers for name in OVERRIDES):
        raise Refusal(405, "method_not_allowed", "method override headers are not supported")
    path = str(scope["path"]).removeprefix(ALSO_UNDER)
    if path in PROBES:
        allow = {"Allow": "GET, HEAD"}
        raise Refusal(405, "method_not_allowed", "this route allows GET, HEAD", headers=allow)
    steps = path.split("/")
    if len(steps) > 3 and steps[1] == "proxy" and steps[2] not in TARGETS:
        raise Refusal(400, "bad_target", f"unknown proxy target; the targets are {' and '.join(TARGETS)}")


@asynccontextmanager
async def opened(settings: Settings, find: Find, approve: Approve) -> AsyncIterator[Startup]:
    """Yield a starting gateway; its connections are closed afterwards."""
    startup = Startup(settings, find, approve)
    try:
        yield startup
    finally:
        await startup.close()
