"""The list of jobs: by status, workflow, label, and what is in their input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlencode

from pydantic import Field
from starlette.responses import Response

from cograil.intake.http.jobs import labels_of
from cograil.intake.http.problems import Refusal
from cograil.intake.http.reading import Query
from cograil.store import reading
from cograil.store import workflows as workflow_store
from cograil.store.board import search_jobs
from cograil.store.database import Transaction
from cograil.store.reading import STATUSES, View
from cograil.ui.rendering import page
from cograil.ui.visits import HTML, Visit, pages

jobs = pages("jobs")
PAGE = 50
Word = Annotated[str, Field(max_length=300)]


class JobFilters(Query):
    """Which jobs. What is empty is not asked for."""

    status: Word = ""
    workflow_id: Word = ""
    label: Word = ""
    q: Word = ""
    cursor: Annotated[str, Field(max_length=1024)] = ""

    def named(self) -> dict[str, str]:
        """Those that are asked for."""
        given = {"status": self.status, "workflow_id": self.workflow_id, "label": self.label, "q": self.q}
        return {name: value.strip() for name, value in given.items() if value.strip()}


@jobs.get("/jobs", "viewer", query=JobFilters, media_type=HTML)
async def list_jobs(visit: Visit) -> Response:
    """Jobs, newest first."""
    asked: JobFilters = visit.query
    filters = asked.named()
    if filters.get("status", "running") not in STATUSES:
        raise Refusal(422, "invalid_parameter", f"a status is one of {', '.join(STATUSES)}")
    bound = (visit.caller.tenant, "pages of jobs", *sorted(filters.items()))
    before = visit.instance.cursors.read(asked.cursor, *bound) if asked.cursor else None
    async with visit.transaction("show") as tx:
        found, stopped_at = await _find(tx, visit.caller.tenant, filters, before)
        known = await workflow_store.list_workflows(tx, visit.caller.tenant)
    older = None
    if stopped_at is not None:
        older = urlencode(filters | {"cursor": visit.instance.cursors.make(stopped_at, *bound)})
    return page(
        visit,
        "jobs.html",
        jobs=found,
        filters=filters,
        statuses=STATUSES,
        workflows=sorted({one["workflow_id"] for one in known}),
        older=older,
        is_first=before is None,
    )


async def _find(
    tx: Transaction, tenant: str, filters: Mapping[str, str], before: str | None
) -> tuple[list[View], str | None]:
    """A page of them, and the id after which the next begins."""
    statuses = [filters["status"]] if "status" in filters else None
    workflow = filters.get("workflow_id")
    if "label" in filters or "q" in filters:
        return await search_jobs(
            tx,
            tenant,
            statuses=statuses,
            workflow=workflow,
            labels=labels_of(filters.get("label", "")),
            text=filters.get("q"),
            before=before,
            limit=PAGE,
        )
    found = await reading.list_jobs(
        tx, tenant=tenant, statuses=statuses, workflow=workflow, before=before, limit=PAGE
    )
    return found, found[-1]["job_id"] if len(found) == PAGE else None
