"""The job list: filtered by status, time, workflow, label and input; sorted; with bulk actions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, cast
from urllib.parse import urlencode

from pydantic import Field
from starlette.responses import Response

from cograil import clock
from cograil.http.routes.job_routes import labels_of
from cograil.http.server.problem_details import Refusal
from cograil.http.server.request_parsing import Query
from cograil.model.states import DISPLAY_STATUSES
from cograil.store import job_queries
from cograil.store import workflow_queries as workflow_store
from cograil.store.database import Transaction
from cograil.store.job_queries import View
from cograil.store.job_snapshot import JobSort, JobWindow, search_jobs
from cograil.store.retention_queries import first_id_at
from cograil.ui.page_context import HTML, PageRequest, pages
from cograil.ui.rendering import page
from cograil.ui.times import read_wall_time

jobs = pages("jobs")
PAGE = 50
PERIODS = {"1h": timedelta(hours=1), "24h": timedelta(hours=24), "7d": timedelta(days=7)}
PERIOD_NAMES = {"1h": "last hour", "24h": "last 24 hours", "7d": "last 7 days"}
SORTS = {"newest": "newest first", "oldest": "oldest first", "longest": "longest first"}
SEARCHED = frozenset({"label", "q", "period", "since", "until", "sort"})  # filters that need a search
Word = Annotated[str, Field(max_length=300)]
Clock = Annotated[str, Field(max_length=40)]


class JobFilters(Query):
    """The filter of the job list. An empty field does not filter; `since` and `until` are in `zone`."""

    status: Word = ""
    workflow_id: Word = ""
    label: Word = ""
    q: Word = ""
    period: Word = ""
    since: Clock = ""
    until: Clock = ""
    zone: Annotated[str, Field(max_length=64)] = ""
    sort: Word = ""
    cursor: Annotated[str, Field(max_length=1024)] = ""

    def named(self) -> dict[str, str]:
        """Return the filters that are set, with times in UTC. Raises Refusal for an unknown value."""
        values = {name: value.strip() for name, value in self.model_dump(exclude={"cursor", "zone"}).items()}
        filters = {name: value for name, value in values.items() if value}
        _check(filters, "status", DISPLAY_STATUSES)
        _check(filters, "period", tuple(PERIODS))
        _check(filters, "sort", tuple(SORTS))
        for name in ("since", "until"):
            if name in filters:
                filters[name] = _utc_clock(name, filters[name], self.zone.strip())
        if "since" in filters or "until" in filters:
            filters.pop("period", None)
        if filters.get("sort") == "newest":
            del filters["sort"]
        return filters


def _check(filters: Mapping[str, str], name: str, known: tuple[str, ...]) -> None:
    if name in filters and filters[name] not in known:
        raise Refusal(422, "invalid_parameter", f"{name} is one of {', '.join(known)}")


def _utc_clock(name: str, text: str, zone: str) -> str:
    try:
        return f"{read_wall_time(text, zone):%Y-%m-%dT%H:%M}"
    except ValueError as error:
        raise Refusal(422, "invalid_parameter", f"{name} is not a time: {error}") from None


def range_of(filters: Mapping[str, str]) -> tuple[datetime | None, datetime | None]:
    """Return the range of submission times."""
    if "period" in filters:
        return clock.now() - PERIODS[filters["period"]], None
    bounds = (filters.get(name) for name in ("since", "until"))
    first, last = (None if text is None else read_wall_time(text, "UTC") for text in bounds)
    return first, last


@jobs.get("/jobs", "viewer", query=JobFilters, media_type=HTML)
async def list_jobs(request: PageRequest) -> Response:
    """Show jobs, newest first by default."""
    query: JobFilters = request.query
    filters = query.named()
    bound = (request.caller.tenant, "pages of jobs", *sorted(filters.items()))
    position = request.context.cursors.read(query.cursor, *bound) if query.cursor else None
    async with request.transaction("show") as tx:
        jobs, stopped_at = await _find(tx, request.caller.tenant, filters, position)
        workflows = await workflow_store.list_workflows(tx, request.caller.tenant)
    older = None
    if stopped_at is not None:
        older = urlencode(filters | {"cursor": request.context.cursors.make(stopped_at, *bound)})
    return page(
        request,
        "jobs.html",
        jobs=jobs,
        filters=filters,
        statuses=DISPLAY_STATUSES,
        periods=PERIOD_NAMES,
        sorts=SORTS,
        workflows=sorted({workflow["workflow_id"] for workflow in workflows}),
        has_errors=any(job["error"] for job in jobs),
        older=older,
        is_first=position is None,
    )


async def _find(
    tx: Transaction, tenant: str, filters: Mapping[str, str], position: str | None
) -> tuple[list[View], str | None]:
    """Return a page of jobs, and the id after which the next one starts."""
    statuses = [filters["status"]] if "status" in filters else None
    workflow = filters.get("workflow_id")
    if SEARCHED.isdisjoint(filters):
        jobs = await job_queries.list_jobs(
            tx,
            tenant=tenant,
            statuses=statuses,
            workflow=workflow,
            before=position,
            limit=PAGE,
            is_apart=True,
        )
        return jobs, jobs[-1]["job_id"] if len(jobs) == PAGE else None
    return await search_jobs(
        tx,
        tenant,
        statuses=statuses,
        workflow=workflow,
        labels=labels_of(filters.get("label", "")),
        text=filters.get("q"),
        window=_window(filters, position),
        limit=PAGE,
        is_apart=True,
    )


def _window(filters: Mapping[str, str], position: str | None) -> JobWindow:
    """Return the window of the chosen time, after the previous page."""
    first, last = range_of(filters)
    sort = cast("JobSort", filters.get("sort", "newest"))
    window = JobWindow(sort=sort)
    window = window if first is None else window._replace(after=first_id_at(first))
    window = window if last is None else window._replace(before=first_id_at(last))
    if position is None:
        return window
    return window._replace(after=position) if sort == "oldest" else window._replace(before=position)
