"""What the gateway reads: requests from outside, and jobs as their operators look at them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import orjson

from cograil.model.ids import task_name
from cograil.model.states import JOB_STATES
from cograil.store.database import Transaction
from cograil.store.job_queries import View, event_view, job_view, way_of
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
NEWEST_JOBS = 500  # of so many, events and failures are looked at across jobs


class Found(NamedTuple):
    """The job of a request, the id of its definition, and when the request came."""

    job: View
    definition_id: int
    asked_at: datetime


async def find_request(
    tx: Transaction, tenant: str, request_id: str, *, is_any: bool = False
) -> Found | None:
    """The job that does what was requested under this id; or any that somebody gave this correlation id."""
    rows = await tx.fetch(FIND_REQUEST, tenant=tenant, request=request_id, is_any=is_any)
    return Found(job_view(rows[0]), rows[0][16], rows[0][21]) if rows else None


async def mark_request(tx: Transaction, tenant: str, job_id: str) -> None:
    """Let this job be found by the id of its request."""
    await tx.execute(MARK_REQUEST, tenant=tenant, job=job_id)


async def count_done(tx: Transaction, tenant: str, job_id: str) -> int:
    """How many nodes of a job are done."""
    return int((await tx.fetch(COUNT_DONE, tenant=tenant, job=job_id))[0][0])


async def page_jobs(
    tx: Transaction,
    tenant: str,
    *,
    statuses: Sequence[str] | None = None,
    workflow: str | None = None,
    limit: int,
    offset: int = 0,
) -> list[tuple[View, int]]:
    """Jobs, newest first, each with the id of its definition."""
    rows = await tx.fetch(
        PAGE_JOBS,
        way=way_of(statuses, workflow, None),
        tenant=tenant,
        statuses=list(statuses or JOB_STATES),
        workflow=workflow,
        most=limit + offset,
        limit=limit,
        offset=offset,
    )
    return [(job_view(row), row[16]) for row in rows]


class Counts(NamedTuple):
    """How many jobs there are in each state, or so many at least: `is_cut` says that counting stopped."""

    by_status: dict[str, int]
    is_cut: bool

    def total(self, status: str | None = None) -> int:
        """Of this state, or of all."""
        return sum(self.by_status.values()) if status is None else self.by_status.get(status, 0)


async def count_jobs(
    tx: Transaction, tenant: str, workflow: str | None = None, most: int = MAX_COUNTED
) -> Counts:
    """Count up to so many jobs of each state, or of a workflow."""
    params = {"tenant": tenant, "workflow": workflow, "statuses": list(JOB_STATES)}
    return _counts(await tx.fetch(COUNT_JOBS, **params, most=most + 1), workflow, most)


async def count_shown_jobs(
    tx: Transaction, tenant: str, workflow: str | None = None, most: int = MAX_COUNTED
) -> Counts:
    """As `count_jobs`; those that wait for a person or a moment are `waiting`, and not pending or running."""
    params = {"tenant": tenant, "workflow": workflow, "statuses": list(JOB_STATES)}
    return _counts(await tx.fetch(COUNT_SHOWN_JOBS, **params, most=most + 1), workflow, most)


def _counts(rows: Sequence[tuple[str, int]], workflow: str | None, most: int) -> Counts:
    counts: dict[str, int] = dict(rows)
    largest = max(counts.values(), default=0) if workflow is None else sum(counts.values())
    return Counts({name: min(count, most) for name, count in counts.items()}, largest > most)


async def find_keyed(tx: Transaction, tenant: str, scopes: Sequence[str], key: str) -> str | None:
    """The id of the job that was submitted under this idempotency key."""
    rows = await tx.fetch(FIND_KEYED, tenant=tenant, scopes=list(scopes), key=key)
    return orjson.loads(rows[0][0]).get("job_id") if rows else None


async def recent_events(tx: Transaction, tenant: str, limit: int) -> list[View]:
    """What happened last in the newest jobs, latest first."""
    rows = await tx.fetch(RECENT_EVENTS, tenant=tenant, jobs=NEWEST_JOBS, limit=limit)
    return [event_view(row[0], row[1:]) for row in rows]


async def running_nodes(tx: Transaction, tenant: str, limit: int) -> list[View]:
    """Nodes that a worker has in its hands, the oldest first."""
    names = (
        "job_id",
        "node_id",
        "attempt",
        "task_id",
        "handler",
        "queue",
        "started_at",
        "deadline",
        "worker",
    )
    rows = await tx.fetch(RUNNING_NODES, tenant=tenant, limit=limit)
    return [
        dict(zip((*names, "workflow_id"), row, strict=True))
        | {"task_id": task_name(row[3], row[0]), "status": "running"}
        for row in rows
    ]


async def failed_nodes(tx: Transaction, tenant: str, limit: int) -> list[View]:
    """Nodes of the newest jobs that failed, the latest first."""
    names = (
        "job_id",
        "node_id",
        "attempt",
        "error",
        "started_at",
        "completed_at",
        "workflow_id",
        "job_status",
    )
    rows = await tx.fetch(FAILED_NODES, tenant=tenant, jobs=NEWEST_JOBS, limit=limit)
    return [
        dict(zip(names, row, strict=True))
        | {"error": None if row[3] is None else orjson.loads(row[3]), "status": "failed"}
        for row in rows
    ]


async def orphaned_jobs(tx: Transaction, tenant: str, seconds: float, limit: int) -> list[View]:
    """Jobs whose news or hour have waited for longer than this."""
    names = ("job_id", "workflow_id", "status", "wake_at", "news_since", "owner_id", "created_at")
    rows = await tx.fetch(ORPHANED_JOBS, tenant=tenant, seconds=float(seconds), limit=limit)
    return [dict(zip(names, row, strict=True)) for row in rows]
