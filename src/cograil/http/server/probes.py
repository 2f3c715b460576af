"""Probes for load balancers, supervisors and Prometheus: /livez, /readyz and /metrics."""

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
OtherCounts = Callable[[], Awaitable[metrics.Counts]]


async def no_other_counts() -> metrics.Counts:
    """Return no counts, for a process that reports only its own."""
    return metrics.NO_COUNTS


def probe_app(checks: Checks, samples: Samples) -> Starlette:
    """Return an application with /livez, /readyz and /metrics.

    `checks` returns the state of each dependency: "ok", or what is wrong with it. `samples` returns the metrics
    from the database; those of this process are added.
    """
    return Starlette(routes=probe_routes(checks, samples))


def metrics_app(samples: Samples, others: OtherCounts = no_other_counts) -> Starlette:
    """Return an application with /metrics only, for a separate port."""
    return Starlette(routes=[_metrics_route(samples, others)])


def probe_routes(checks: Checks, samples: Samples, others: OtherCounts = no_other_counts) -> list[Route]:
    """Return the same as routes; `others` returns the counts of the processes that this one reports for."""

    async def livez(request: Request) -> JSONResponse:
        """Return 200 while the event loop runs. The database is not checked: a restart would not repair it."""
        return JSONResponse({"alive": True, "status": "ok"})

    async def readyz(request: Request) -> JSONResponse:
        """Return 200 when every check is ok or degraded, else 503."""
        states = await checks()
        is_ready = all(state == OK or state.startswith(DEGRADED) for state in states.values())
        is_whole = all(state == OK for state in states.values())
        status = OK if is_whole else DEGRADED if is_ready else "not ready"
        return JSONResponse(
            {"ready": is_ready, "status": status, "checks": states}, status_code=200 if is_ready else 503
        )

    return [Route("/livez", livez), Route("/readyz", readyz), _metrics_route(samples, others)]


def _metrics_route(samples: Samples, others: OtherCounts) -> Route:
    async def show_metrics(request: Request) -> Response:
        accept = request.headers.get("accept", "")
        text, kind = metrics.exposition(await samples(), accept, await others())
        return Response(text, headers={"content-type": kind})

    return Route("/metrics", show_metrics)
