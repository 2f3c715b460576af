"""What operators look at across jobs, and how the gateway itself is doing."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version as version_of
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response

from cograil.gateway.gateway_context import Asked
from cograil.http.server.dispatcher import reply
from cograil.http.server.request_parsing import Query
from cograil.http.server.routing import Router
from cograil.settings import describe
from cograil.store import gateway_queries, job_queries

admin = Router("admin", "")

PATIENCE_SECONDS = 2.0
HEALTHY = "ok"


class Most(Query):
    """How many."""

    limit: Annotated[int, Field(ge=1, le=500)] = 50


@admin.get("/gateway/health", "operator", responses={200: "how it is doing"})
async def show_own_health(call: Asked) -> Response:
    """Say how the gateway is doing."""
    return reply(await _health(call))


@admin.get("/admin/health", "operator", responses={200: "how it and all that it needs are doing"})
async def show_health(call: Asked) -> Response:
    """Say how the gateway is doing, and the processes that do the work."""
    async with call.transaction("show") as tx:
        processes = await job_queries.list_processes(tx)
        jobs = await gateway_queries.count_jobs(tx, call.caller.tenant)
    alive = Counter(process["kind"] for process in processes if process["is_live"])
    return reply(await _health(call) | {"processes": alive, "jobs": jobs.by_status})


@admin.get("/admin/config", "operator", responses={200: "its settings, without secrets"})
async def show_config(call: Asked) -> Response:
    """Show the settings of the gateway; passwords are stars."""
    prefixes = ("gateway.", "log.", "lease.")
    settings = [setting for setting in describe(call.context.settings) if setting.name.startswith(prefixes)]
    return reply(
        {
            "version": version_of("cograil"),
            "is_read_only": True,
            "config": {setting.name: setting.value for setting in settings},
            "orchestrator_url": call.context.api.url,
        }
    )


@admin.get("/admin/active-jobs", "operator", query=Most, responses={200: "jobs that have not ended"})
async def list_active_jobs(call: Asked) -> Response:
    """List the jobs that have not ended."""
    async with call.transaction("show") as tx:
        page = await gateway_queries.page_jobs(
            tx, call.caller.tenant, statuses=["pending", "running"], limit=call.query.limit
        )
    return reply(_listed("jobs", [job for job, _ in page]))


@admin.get("/admin/recent-events", "operator", query=Most, responses={200: "the latest first"})
async def list_recent_events(call: Asked) -> Response:
    """List what happened last."""
    async with call.transaction("show") as tx:
        return reply(
            _listed("events", await gateway_queries.recent_events(tx, call.caller.tenant, call.query.limit))
        )


@admin.get("/admin/orphans", "operator", query=Most, responses={200: "jobs that nobody looks after"})
async def list_orphans(call: Asked) -> Response:
    """List the jobs whose news or hour have waited for two leases."""
    seconds = 2 * call.context.settings.lease.seconds
    async with call.transaction("show") as tx:
        jobs = await gateway_queries.orphaned_jobs(tx, call.caller.tenant, seconds, call.query.limit)
    return reply(_listed("orphans", jobs) | {"threshold_seconds": seconds})


@admin.get("/admin/running-nodes", "operator", query=Most, responses={200: "the oldest first"})
async def list_running_nodes(call: Asked) -> Response:
    """List the nodes that run now."""
    async with call.transaction("show") as tx:
        return reply(
            _listed("nodes", await gateway_queries.running_nodes(tx, call.caller.tenant, call.query.limit))
        )


@admin.get("/admin/failed-nodes", "operator", query=Most, responses={200: "the latest first"})
async def list_failed_nodes(call: Asked) -> Response:
    """List the nodes that failed lately."""
    async with call.transaction("show") as tx:
        return reply(
            _listed("nodes", await gateway_queries.failed_nodes(tx, call.caller.tenant, call.query.limit))
        )


def _listed(name: str, rows: list[job_queries.View]) -> dict[str, Any]:
    return {name: rows, "count": len(rows)}


async def _health(call: Asked) -> dict[str, Any]:
    """Of the database one is sure: the key of this call was looked up in it, or the call is its proof."""
    gateway = call.context
    async with call.transaction("probe"):
        checks = {"database": HEALTHY, "orchestrator": await gateway.api.is_alive(PATIENCE_SECONDS)}
    if gateway.worker is not None:
        checks["worker"] = await gateway.worker.is_alive(PATIENCE_SECONDS)
    is_healthy = all(state == HEALTHY for state in checks.values())
    return {"status": "healthy" if is_healthy else "degraded", "checks": checks}
