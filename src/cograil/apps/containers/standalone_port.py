"""The API of container jobs on a port of its own, for existing clients.

`/v1/jobs` at the root, and its probes: `/readyz` is 503 while no runtime is available.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from cograil.app_registry import PortContext
from cograil.apps.containers.routes import PREFIX, containers_app
from cograil.model.readiness_check import OK

Checks = Callable[[], Awaitable[Mapping[str, str]]]
HEALTHY, UNHEALTHY = "healthy", "unhealthy"


def container_front(context: PortContext) -> ASGIApp:
    """The ASGI application of this port."""
    api, checks = containers_app(context.instance), context.checks

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(PREFIX):
            await api(scope, receive, send)
        elif scope["path"] == "/livez":
            await JSONResponse({"status": HEALTHY})(scope, receive, send)
        elif scope["path"] == "/readyz":
            await (await _readyz(Request(scope), checks))(scope, receive, send)
        else:
            await JSONResponse({"error": "Not found"}, 404)(scope, receive, send)

    return serve


async def _readyz(request: Request, checks: Checks) -> JSONResponse:
    """Ready only if every check is ok, also one that is merely `degraded` on the main port."""
    wrong = {name: state for name, state in (await checks()).items() if state != OK and name in DEPENDS_ON}
    status = UNHEALTHY if wrong else HEALTHY
    message = "; ".join(f"{name}: {state}" for name, state in wrong.items())
    body = {"status": status, "checks": {"orchestrator": {"status": status, "message": message}}}
    return JSONResponse(body, 503 if wrong else 200)


DEPENDS_ON = frozenset({"containers", "database", "schema", "orchestrator", "worker", "draining"})
