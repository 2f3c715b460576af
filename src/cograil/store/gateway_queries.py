"""The queries of the gateway: public requests, and lists of jobs, nodes and events for operators."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import orjson

from cograil.model.ids import task_name
from cograil.model.states import JOB_STATES
from cograil.store.database import Transaction
from cograil.store.job_queries import View, event_view, job_index, job_view
from cograil.store.statements import statement

FIND_REQUEST = statement("find_request")
MARK_REQUEST = statement("mark_request")
COUNT_DONE = statement("count_done")
PAGE_JOBS = statement("page_jobs")
COUNT_JOBS = statement("count_jobs")
COUNT_SHOWN_JOBS = statement("count_shown_jobs")
FIND_KEYED = statement("find_keyed")
RECENT_EVENTS = statement("recent_events")
RUNNING_NODES = statement("running_nodes")
FAILED_NODES = statement("failed_nodes")
ORPHANED_JOBS = statement("orphaned_jobs")

MAX_COUNTED = 10_000
NEWEST_JOBS = 500  # events and failures across jobs come from this many jobs


class RequestedJob(NamedTuple):
    """The job of a request, the id of its definition, and the time of the request."""

    job: View
    definition_id: int
    requested_at: datetime


async def find_request(
    tx: Transaction, tenant: str, request_id: str, *, is_any: bool = False
) -> RequestedJob | None:
    """Return the job of this request; with `is_any` any job with this correlation id. None when there is none."""
    for row in await tx.fetch_named(FIND_REQUEST, tenant=tenant, request=request_id, is_any=is_any):
        return RequestedJob(job_view(row), row.definition_id, row.requested_at)
    return None


async def mark_request(tx: Transaction, tenant: str, job_id: str) -> None:
    """Mark the job as the job of a request, so that `find_request` returns it."""
    await tx.execute(MARK_REQUEST, tenant=tenant, job=job_id)


async def count_done(tx: Transaction, tenant: str, job_id: str) -> int:
    """Return how many nodes of a job are done."""
    ((done,),) = await tx.fetch(COUNT_DONE, tenant=tenant, job=job_id)
    return int(done)


async def page_jobs(
    tx: Transaction,
    tenant: str,
    *,
    statuses: Sequence[str] | None = None,
    workflow: str | None = None,
    limit: int,
    offset: int = 0,
) -> list[tuple[View, int]]:
    """Return jobs, newest first, each with the id of its definition."""
    rows = await tx.fetch_named(
        PAGE_JOBS,
        index_name=job_index(statuses, workflow, None),
        tenant=tenant,
        statuses=list(statuses or JOB_STATES),
        workflow=workflow,
        max_rows=limit + offset,
        limit=limit,
        offset=offset,
    )
    return [(job_view(row), row.definition_id) for row in rows]


class Counts(NamedTuple):
    """The number of jobs by status. `truncated` says that counting stopped at the limit."""

    by_status: dict[str, int]
    truncated: bool

    def total(self, status: str | None = None) -> int:
        """Return the number of jobs of this status, or of all."""
        return sum(self.by_status.values()) if status is None else self.by_status.get(status, 0)


async def count_jobs(
    tx: Transaction, tenant: str, workflow: str | None = None, max_jobs: int = MAX_COUNTED
) -> Counts:
    """Count up to `max_jobs` jobs of each status, or of a workflow."""
    params = {"tenant": tenant, "workflow": workflow, "statuses": list(JOB_STATES)}
    return _counts(await tx.fetch(COUNT_JOBS, **params, max_jobs=max_jobs + 1), workflow, max_jobs)


async def count_shown_jobs(
    tx: Transaction, tenant: str, workflow: str | None = None, max_jobs: int = MAX_COUNTED
) -> Counts:
    """Count as `count_jobs` does; jobs that wait for a person or a time count as `waiting`."""
    params = {"tenant": tenant, "workflow": workflow, "statuses": list(JOB_STATES)}
    return _counts(await tx.fetch(COUNT_SHOWN_JOBS, **params, max_jobs=max_jobs + 1), workflow, max_jobs)


def _counts(rows: Sequence[tuple[str, int]], workflow: str | None, max_jobs: int) -> Counts:
    counts: dict[str, int] = dict(rows)
    largest = max(counts.values(), default=0) if workflow is None else sum(counts.values())
    return Counts({name: min(count, max_jobs) for name, count in counts.items()}, largest > max_jobs)


async def find_keyed(tx: Transaction, tenant: str, scopes: Sequence[str], key: str) -> str | None:
    """Return the id of the job that was submitted with this idempotency key, or None."""
    for (answer,) in await tx.fetch(FIND_KEYED, tenant=tenant, scopes=list(scopes), key=key):
        job_id: str | None = orjson.loads(answer).get("job_id")
        return job_id
    return None


async def recent_events(tx: Transaction, tenant: str, limit: int) -> list[View]:
    """Return the latest events of the newest jobs, latest first."""
    rows = await tx.fetch(RECENT_EVENTS, tenant=tenant, jobs=NEWEST_JOBS, limit=limit)
    return [event_view(job_id, event) for job_id, *event in rows]


async def running_nodes(tx: Transaction, tenant: str, limit: int) -> list[View]:
    """Return the nodes with a running task, the oldest first."""
    rows = await tx.fetch_dicts(RUNNING_NODES, tenant=tenant, limit=limit)
    return [row | {"task_id": task_name(row["task_id"], row["job_id"]), "status": "running"} for row in rows]


async def failed_nodes(tx: Transaction, tenant: str, limit: int) -> list[View]:
    """Return the failed nodes of the newest jobs, the latest first."""
    rows = await tx.fetch_dicts(FAILED_NODES, tenant=tenant, jobs=NEWEST_JOBS, limit=limit)
    return [
        row | {"error": None if row["error"] is None else orjson.loads(row["error"]), "status": "failed"}
        for row in rows
    ]


async def orphaned_jobs(tx: Transaction, tenant: str, seconds: float, limit: int) -> list[View]:
    """Return the jobs whose inbox rows or wake-up time have waited for longer than this."""
    return await tx.fetch_dicts(ORPHANED_JOBS, tenant=tenant, seconds=float(seconds), limit=limit)
