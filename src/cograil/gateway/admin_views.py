"""Views for operators across jobs, and the health and settings of the gateway."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version as version_of
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response

from cograil.gateway.gateway_context import GatewayCall
from cograil.http.server.dispatcher import reply
from cograil.http.server.request_parsing import Query
from cograil.http.server.routing import Router
from cograil.settings import describe
from cograil.store import gateway_queries, job_queries

admin = Router("admin", "")

TIMEOUT_SECONDS = 2.0
HEALTHY = "ok"


class PageSize(Query):
    """The size of a page."""

    limit: Annotated[int, Field(ge=1, le=500)] = 50


@admin.get("/gateway/health", "operator", responses={200: "the state of the gateway"})
async def show_own_health(call: GatewayCall) -> Response:
    """Show the health of the gateway."""
    return reply(await _health(call))


@admin.get("/admin/health", "operator", responses={200: "the state of the gateway and of its dependencies"})
async def show_health(call: GatewayCall) -> Response:
    """Show the health of the gateway, and the live processes."""
    async with call.transaction("show") as tx:
        processes = await job_queries.list_processes(tx)
        jobs = await gateway_queries.count_jobs(tx, call.caller.tenant)
    alive = Counter(process["kind"] for process in processes if process["is_live"])
    return reply(await _health(call) | {"processes": alive, "jobs": jobs.by_status})


@admin.get("/admin/config", "operator", responses={200: "its settings, without secrets"})
async def show_config(call: GatewayCall) -> Response:
    """Show the settings of the gateway; secrets are masked."""
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


@admin.get("/admin/active-jobs", "operator", query=PageSize, responses={200: "jobs that have not ended"})
async def list_active_jobs(call: GatewayCall) -> Response:
    """List the jobs that have not ended."""
    async with call.transaction("show") as tx:
        page = await gateway_queries.page_jobs(
            tx, call.caller.tenant, statuses=["pending", "running"], limit=call.query.limit
        )
    return reply(_page("jobs", [job for job, _ in page]))


@admin.get("/admin/recent-events", "operator", query=PageSize, responses={200: "the latest first"})
async def list_recent_events(call: GatewayCall) -> Response:
    """List the latest events."""
    async with call.transaction("show") as tx:
        return reply(
            _page("events", await gateway_queries.recent_events(tx, call.caller.tenant, call.query.limit))
        )


@admin.get("/admin/orphans", "operator", query=PageSize, responses={200: "jobs without progress"})
async def list_orphans(call: GatewayCall) -> Response:
    """List the jobs whose inputs or wake-up time have waited for two leases."""
    seconds = 2 * call.context.settings.lease.seconds
    async with call.transaction("show") as tx:
        jobs = await gateway_queries.orphaned_jobs(tx, call.caller.tenant, seconds, call.query.limit)
    return reply(_page("orphans", jobs) | {"threshold_seconds": seconds})


@admin.get("/admin/running-nodes", "operator", query=PageSize, responses={200: "the oldest first"})
async def list_running_nodes(call: GatewayCall) -> Response:
    """List the running nodes."""
    async with call.transaction("show") as tx:
        return reply(
            _page("nodes", await gateway_queries.running_nodes(tx, call.caller.tenant, call.query.limit))
        )


@admin.get("/admin/failed-nodes", "operator", query=PageSize, responses={200: "the latest first"})
async def list_failed_nodes(call: GatewayCall) -> Response:
    """List the recently failed nodes."""
    async with call.transaction("show") as tx:
        return reply(
            _page("nodes", await gateway_queries.failed_nodes(tx, call.caller.tenant, call.query.limit))
        )


def _page(name: str, rows: list[job_queries.View]) -> dict[str, Any]:
    return {name: rows, "count": len(rows)}


async def _health(call: GatewayCall) -> dict[str, Any]:
    """Return the state of each dependency. The transaction proves that the database responds."""
    gateway = call.context
    async with call.transaction("probe"):
        checks = {"database": HEALTHY, "orchestrator": await gateway.api.is_alive(TIMEOUT_SECONDS)}
    if gateway.worker is not None:
        checks["worker"] = await gateway.worker.is_alive(TIMEOUT_SECONDS)
    is_healthy = all(state == HEALTHY for state in checks.values())
    return {"status": "healthy" if is_healthy else "degraded", "checks": checks}
