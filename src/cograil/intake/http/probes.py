"""Is it alive, is it ready, how is it doing: questions of load balancers, supervisors and Prometheus."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cograil import metrics

OK = "ok"

Checks = Callable[[], Awaitable[dict[str, str]]]
Samples = Callable[[], Awaitable[list[metrics.Sample]]]


def probe_app(checks: Checks, samples: Samples) -> Starlette:
    """/livez, /readyz and /metrics.

    `checks` names what readiness depends on: "ok", or what is wrong with it. `samples` is what the
    database knows; what this process counts itself is added.
    """
    return Starlette(routes=probe_routes(checks, samples))


def probe_routes(checks: Checks, samples: Samples) -> list[Route]:
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

    async def show_metrics(request: Request) -> Response:
        return Response(metrics.exposition(await samples()), media_type=metrics.CONTENT_TYPE)

    return [Route("/livez", livez), Route("/readyz", readyz), Route("/metrics", show_metrics)]
