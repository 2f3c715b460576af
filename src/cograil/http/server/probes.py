"""Is it alive, is it ready, how is it doing: questions of load balancers, supervisors and Prometheus."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cograil import metrics
from cograil.model.readiness_check import DEGRADED, OK

Checks = Callable[[], Awaitable[dict[str, str]]]
Samples = Callable[[], Awaitable[list[metrics.Sample]]]
Others = Callable[[], Awaitable[metrics.Counts]]


async def nobody_else() -> metrics.Counts:
    """Of a process that speaks for itself alone."""
    return metrics.NO_COUNTS


def probe_app(checks: Checks, samples: Samples) -> Starlette:
    """/livez, /readyz and /metrics.

    `checks` names what readiness depends on: "ok", or what is wrong with it. `samples` is what the
    database knows; what this process counts itself is added.
    """
    return Starlette(routes=probe_routes(checks, samples))


def metrics_app(samples: Samples, others: Others = nobody_else) -> Starlette:
    """/metrics alone, for a port of its own."""
    return Starlette(routes=[_metrics_route(samples, others)])


def probe_routes(checks: Checks, samples: Samples, others: Others = nobody_else) -> list[Route]:
    """The same as routes; `others` is what was counted by processes for which this one speaks."""

    async def livez(request: Request) -> JSONResponse:
        """The loop runs; the database is not asked, for restarting us would not mend it."""
        return JSONResponse({"alive": True, "status": "ok"})

    async def readyz(request: Request) -> JSONResponse:
        """200 when every check is ok, or something is missing that most can do without; else 503."""
        found = await checks()
        is_ready = all(state == OK or state.startswith(DEGRADED) for state in found.values())
        is_whole = all(state == OK for state in found.values())
        status = OK if is_whole else DEGRADED if is_ready else "not ready"
        return JSONResponse(
            {"ready": is_ready, "status": status, "checks": found}, status_code=200 if is_ready else 503
        )

    return [Route("/livez", livez), Route("/readyz", readyz), _metrics_route(samples, others)]


def _metrics_route(samples: Samples, others: Others) -> Route:
    async def show_metrics(request: Request) -> Response:
        accept = request.headers.get("accept", "")
        text, kind = metrics.exposition(await samples(), accept, await others())
        return Response(text, headers={"content-type": kind})

    return Route("/metrics", show_metrics)
