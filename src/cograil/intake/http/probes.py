"""Is it alive, is it ready: questions of load balancers and supervisors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

OK = "ok"

Checks = Callable[[], Awaitable[dict[str, str]]]


def probe_app(checks: Checks) -> Starlette:
    """/livez and /readyz. `checks` names what readiness depends on: "ok", or what is wrong with it."""
    return Starlette(routes=probe_routes(checks))


def probe_routes(checks: Checks) -> list[Route]:
    async def livez(request: Request) -> JSONResponse:
        """The loop runs; the database is not asked, for restarting us would not mend it."""
        return JSONResponse({"alive": True, "status": "ok"})

    async def readyz(request: Request) -> JSONResponse:
        """200 when every check is ok, else 503."""
        found = await checks()
        is_ready = all(state == OK for state in found.values())
        status = "ok" if is_ready else "not ready"
        return JSONResponse(
            {"ready": is_ready, "status": status, "checks": found}, status_code=200 if is_ready else 503
        )

    return [Route("/livez", livez), Route("/readyz", readyz)]
