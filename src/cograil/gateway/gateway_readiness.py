"""What must be there before the gateway serves anything; until then it says what is missing.

It looks again every second: whichever of the gateway, the database and the API is started first does not
matter. The probes answer all the time.
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
PATIENCE_SECONDS = 2.0
PROBES = ("/livez", "/readyz", "/metrics")
OVERRIDES = ("x-http-method-override", "x-http-method", "x-method-override")


class Place(NamedTuple):
    """Where the database and the API are, as far as anybody said."""

    database: str | None
    api: str | None

    @property
    def missing(self) -> list[str]:
        """The variables that say nothing."""
        names = {"COGRAIL_GATEWAY__DATABASE_URL": self.database, "COGRAIL_GATEWAY__API_URL": self.api}
        return [name for name, value in names.items() if not value]


Find = Callable[[], Awaitable[Place]]
Approve = Callable[[KeyAuthenticator], Awaitable[None]]


class Startup:
    """The checks, and the door that is there when all of them have passed."""

    def __init__(self, settings: Settings, find: Find, approve: Approve) -> None:
        self.checks = dict.fromkeys(CHECKS, "not looked at yet")
        self.door: Dispatcher[Gateway] | None = None
        self._stopping = asyncio.Event()
        self._settings = settings
        self._find = find
        self._approve = approve
        self._kept = AsyncExitStack()

    async def run(self) -> None:
        """Look until all is there, then open the door until `stop`.

        Raises UnsafeDatabase for a role that may too much, and what `approve` raises.
        """
        while not self._stopping.is_set():
            if self.door is None and await self._look():
                log.info("gateway ready", checks=self.checks)
            seconds = None if self.door else RETRY_SECONDS
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), seconds)

    def stop(self) -> None:
        """Not ready any more."""
        self._stopping.set()

    async def close(self) -> None:
        """Close all connections."""
        await self._kept.aclose()

    async def readiness(self) -> dict[str, str]:
        """The checks as they are: of those that passed once, the database may have gone since."""
        if self.door is None:
            return self.checks
        checks = self.checks | {"database": await _answers(self.door.context.db)}
        return checks | ({"draining": "stopping"} if self._stopping.is_set() else {})

    async def _look(self) -> bool:
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
            self.door = Dispatcher(gateway, with_prefix(ROUTERS), answer)
            self._kept = stack.pop_all()
        return True

    async def _open_database(self, stack: AsyncExitStack, url: str | None) -> tuple[Database | None, str]:
        """A database that answers in the role of a gateway, or why there is none. Raises UnsafeDatabase."""
        if url is None:
            return None, "not configured"
        database = Database(url, self._settings.database, application="cograil gateway", role=GATEWAY_ROLE)
        try:
            async with asyncio.timeout(2 * PATIENCE_SECONDS):
                db = await stack.enter_async_context(database)
                await _check(db)
        except UnsafeDatabase:
            raise
        except SchemaMismatch:
            return None, "has another schema than this program needs"
        except (RolesMissing, *ROLE_ERRORS):
            log.warning("roles or grants are missing", role=GATEWAY_ROLE, next="run `cograil db roles`")
            return None, "roles or grants are missing: run `cograil db roles`"
        except (TimeoutError, CograilError, psycopg.Error):  # the reason may name hosts and users
            return None, "unreachable"
        return db, OK

    async def _open_api(self, stack: AsyncExitStack, url: str | None) -> tuple[Upstream | None, str]:
        api = self._upstream(stack, url)
        return api, "not configured" if api is None else await api.is_alive(PATIENCE_SECONDS)

    def _upstream(self, stack: AsyncExitStack, url: str | None) -> Upstream | None:
        if not url:
            return None
        upstream = Upstream(url, self._settings.gateway.timeout_seconds)
        stack.push_async_callback(upstream.close)
        return upstream


async def _check(db: Database) -> None:
    """Raises UnsafeDatabase for a role that may too much, SchemaMismatch for a schema we do not know."""
    async with db.transaction("doors") as tx:
        privileges = await role_privileges(tx)
        schema = await schema_status(tx.connection)
    if privileges:
        raise UnsafeDatabase(
            f"the gateway must not act in a role that {' and '.join(privileges)}: row-level security does not "
            f"bind it; {GATEWAY_ROLE} must be a plain role that owns nothing"
        )
    if schema.problems or schema.pending:
        raise SchemaMismatch("; ".join(schema.problems) or "the schema is older than this program")


async def _answers(db: Database) -> str:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), db.transaction("probe"):
            return OK
    except (TimeoutError, psycopg.Error, DatabaseUnavailable):
        return "unreachable"


# -- the application --------------------------------------------------------------------------------------


def application(startup: Startup) -> ASGIApp:
    """The probes need no key; all else goes through the door, once there is one."""

    async def livez(request: Request) -> JSONResponse:
        """The loop runs."""
        return JSONResponse({"alive": True})

    async def readyz(request: Request) -> JSONResponse:
        """200 when every check is ok, else 503 with those that are not."""
        checks = await startup.readiness()
        failed = {name: state for name, state in checks.items() if state != OK}
        if failed:
            body = {"ready": False, "error": "not ready", "details": failed, "checks": checks}
            return JSONResponse(body, status_code=503)
        return JSONResponse({"ready": True, "checks": checks})

    async def show_metrics(request: Request) -> Response:
        """Of requests and of this process; of jobs nothing, for who reaches this port may be anybody."""
        text, kind = metrics.exposition(None, request.headers.get("accept", ""))
        return Response(text, headers={"content-type": kind})

    handlers = dict(zip(PROBES, (livez, readyz, show_metrics), strict=True))
    routes = [Route(prefix + path, handlers[path]) for prefix in ("", ALSO_UNDER) for path in PROBES]
    probe_app, probe_paths = _framed(Starlette(routes=routes)), {route.path for route in routes}

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        is_probe = (
            scope["type"] == "http" and scope["path"] in probe_paths and scope["method"] in ("GET", "HEAD")
        )
        await (probe_app(scope, receive, send) if is_probe else _enter(startup, scope, receive, send))

    return serve


def _framed(app: ASGIApp) -> ASGIApp:
    """A probe needs no key, but it is a request like any other."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            request_limits.check_framing(scope)
        except Refusal as refusal:
            await answer(refusal, "")(scope, receive, send)
        else:
            await app(scope, receive, send)

    return serve


async def _enter(startup: Startup, scope: Scope, receive: Receive, send: Send) -> None:
    """Through the door, once there is one."""
    if scope["type"] not in ("http", "websocket"):
        return
    try:
        _refuse_odd(scope)
        if startup.door is None:
            failed = ", ".join(name for name, state in startup.checks.items() if state != OK)
            raise Refusal(503, "not_ready", f"the gateway is not ready: {failed or 'starting'}")
    except Refusal as refusal:
        await answer(refusal, "")(scope, receive, send)
        return
    await startup.door(scope, receive, send)


def _refuse_odd(scope: Scope) -> None:
    """Raises Refusal for a method in a header, which others might obey, and for a proxy to nowhere.

    A probe comes here only by a method that it does not take.
    """
    headers = Headers(scope=scope)
    if any(name in headers for name in OVERRIDES):
        raise Refusal(405, "method_not_allowed", "the method of a request stands in its first line")
    path = str(scope["path"]).removeprefix(ALSO_UNDER)
    if path in PROBES:
        allow = {"Allow": "GET, HEAD"}
        raise Refusal(405, "method_not_allowed", "this route allows GET, HEAD", headers=allow)
    steps = path.split("/")
    if len(steps) > 3 and steps[1] == "proxy" and steps[2] not in TARGETS:
        raise Refusal(400, "bad_target", f"a target is {' or '.join(TARGETS)}")


@asynccontextmanager
async def opened(settings: Settings, find: Find, approve: Approve) -> AsyncIterator[Startup]:
    """A gateway that is starting; what it opened is closed afterwards."""
    startup = Startup(settings, find, approve)
    try:
        yield startup
    finally:
        await startup.close()
