"""The dashboard: job counts, throughput, failures, and what waits and why."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from starlette.responses import Response

from cograil import clock
from cograil.http.server.request_parsing import Query
from cograil.http.streams.event_streams import WholeFeed, stream_all
from cograil.model.workflow import Json
from cograil.store import gateway_queries as counting
from cograil.store import job_queries, monitoring_queries
from cograil.store.database import Transaction
from cograil.store.job_queries import View
from cograil.store.job_snapshot import waiting_nodes
from cograil.store.monitoring_queries import oldest_jobs
from cograil.ui.page_context import HTML, PageRequest, as_call, pages
from cograil.ui.rendering import page
from cograil.verbs.explain import explain

home = pages("home")

PERIODS = {"1h": (1, 1), "24h": (24, 30), "7d": (7 * 24, 240)}  # hours, and minutes of a bucket
RECENT, FAILING, EXPLAINED = 8, 6, 5
MAX_COUNTED = 20_000


class DashboardQuery(Query):
    """The period of the chart."""

    period: str = "24h"


@home.get("/", "viewer", query=DashboardQuery, media_type=HTML)
async def show_home(request: PageRequest) -> Response:
    """Show the dashboard."""
    tenant = request.caller.tenant
    period = request.query.period if request.query.period in PERIODS else "24h"
    async with request.transaction("show") as tx:
        counts = await counting.count_shown_jobs(tx, tenant, None, MAX_COUNTED)
        recent = await job_queries.list_jobs(tx, tenant=tenant, limit=RECENT)
        failed = await job_queries.list_jobs(tx, tenant=tenant, statuses=["failed"], limit=FAILING)
        since = clock.now() - timedelta(days=1)
        failures = await monitoring_queries.failure_metrics(tx, tenant, since, None, FAILING)
        queues = await monitoring_queries.queue_status(tx, tenant)
        approvals = await waiting_nodes(tx, tenant, 100)
        processes = await job_queries.list_processes(tx) if request.caller.may("operator") else []
        buckets = await _buckets(tx, tenant, period)
        waits = await _waits(request, tx)
    return page(
        request,
        "home.html",
        counts=counts,
        most_counted=MAX_COUNTED,
        recent=recent,
        failed=failed,
        failures=failures,
        queues=queues,
        approvals=approvals,
        processes=processes,
        buckets=buckets,
        chart=_chart(buckets),
        waits=waits,
        period=period,
        periods=tuple(PERIODS),
    )


async def _buckets(tx: Transaction, tenant: str, period: str) -> list[View]:
    hours, minutes = PERIODS[period]
    width = timedelta(minutes=minutes)
    zero = datetime(2000, 1, 1, tzinfo=UTC)
    first = zero + (clock.now() - timedelta(hours=hours) - zero) // width * width
    return await monitoring_queries.throughput_metrics(tx, tenant, first, width, None)


def _chart(buckets: list[View]) -> Json:
    """Return the columns of the chart."""
    return {
        "at": [int(bucket["bucket_start"].timestamp()) for bucket in buckets],
        "completed": [bucket["jobs_completed"] for bucket in buckets],
        "failed": [bucket["jobs_failed"] for bucket in buckets],
        "submitted": [bucket["jobs_submitted"] for bucket in buckets],
    }


async def _waits(request: PageRequest, tx: Transaction) -> list[View]:
    """Return the longest running jobs, and the first blocker of each."""
    tenant, definitions = request.caller.tenant, request.context.engine_context.definitions
    ids = [job["job_id"] for job in await oldest_jobs(tx, tenant, EXPLAINED)]
    jobs = await job_queries.find_jobs(tx, ids, tenant)
    waits = []
    for job_id in ids:
        blockers = (await explain(tx, definitions, job_id, tenant)).blockers
        waits.append({"job": jobs[job_id], "blocker": blockers[0] if blockers else None})
    return waits


@home.get("/events/stream", "viewer", query=WholeFeed, is_stream=True, headers=("Last-Event-ID",))
async def follow_all(request: PageRequest) -> Response:
    """Stream the events of all jobs."""
    return await stream_all(as_call(request))
