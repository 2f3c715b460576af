"""Snapshots of a job for its web page: its nodes, one node in detail, counts of children, earlier states.

A page polls often, and a job may have ten thousand children. So each statement reads a bounded number of rows
or counts them in the database, and none waits for a lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Literal, NamedTuple

import orjson

from cograil.model.ids import is_id
from cograil.model.states import DISPLAY_STATUSES, JOB_STATES
from cograil.store.database import Transaction
from cograil.store.job_queries import LAST_ID, View, event_view, job_view, node_view
from cograil.store.retention_queries import FIRST_ID
from cograil.store.statements import statement

LOAD_JOB_SNAPSHOT = statement("load_job_snapshot")
SHOW_NODE = statement("show_node")
NEWEST_LOGS = statement("newest_logs")
NEWEST_EVENTS = statement("newest_events")
NEWEST_NODE_EVENTS = statement("newest_node_events")
FIND_EVENT_TIME = statement("find_event_time")
LIST_CHILDREN = statement("list_children")
STRIP_OF_CHILDREN = statement("strip_of_children")
SPREAD_OF_CHILDREN = statement("spread_of_children")
CHILDREN_AT = statement("children_at")
STRIP_AT = statement("strip_at")
SEARCH_JOBS = statement("search_jobs")
WAITING_NODES = statement("waiting_nodes")
COUNT_WAITING_JOBS = statement("count_waiting_jobs")

MAX_EVENTS_SCANNED = 2_000
MAX_JOBS_SCANNED = 5_000
JobSort = Literal["newest", "oldest", "longest"]


class JobWindow(NamedTuple):
    """The range of jobs to search and its order. Ids begin with the time of submission, so they bound it too."""

    before: str = LAST_ID
    after: str = FIRST_ID
    sort: JobSort = "newest"


WHOLE = JobWindow()


LOG_ROWS = 200


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """One node of a snapshot. `children` counts the children of a fan-out by status."""

    node_id: str
    status: str = "pending"
    attempt: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    not_before: datetime | None = None
    skip_reason: str | None = None
    taken_branch: str | None = None
    total: int | None = None
    current: float | None = None
    out_of: float | None = None
    message: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    queue: str = ""
    worker: str = ""
    child_job: str | None = None
    child_status: str | None = None
    children: Mapping[str, int] = field(default_factory=dict)


NODE_COLUMNS = [column.name for column in fields(NodeSnapshot) if column.name != "children"]


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """A job at one time; `seq` is the number of its last event. Nodes that are missing are pending."""

    seq: int
    status: str
    started_at: datetime | None
    finished_at: datetime | None
    paused_at: datetime | None
    now: datetime
    definition_id: int
    nodes: Mapping[str, NodeSnapshot]


async def load_job_snapshot(tx: Transaction, job_id: str, tenant: str) -> JobSnapshot | None:
    """Return the current state of the job and its nodes; None when no job has this id."""
    rows = await tx.fetch_named(LOAD_JOB_SNAPSHOT, tenant=tenant, job=job_id) if is_id(job_id) else []
    if not rows:
        return None
    job = rows[0]
    return JobSnapshot(
        seq=job.seq,
        status=job.job_status,
        started_at=job.job_started_at,
        finished_at=job.job_finished_at,
        paused_at=job.paused_at,
        now=job.now,
        definition_id=job.definition_id,
        nodes={row.node_id: _node_snapshot(row) for row in rows if row.node_id is not None},
    )


def _node_snapshot(row: Any) -> NodeSnapshot:
    children = _children(row.total, row.expanded, row.child_counts, row.running_children)
    columns = {name: getattr(row, name) for name in NODE_COLUMNS}
    return NodeSnapshot(**columns, children=children)


def _children(total: int | None, expanded: int, counts: bytes | None, running: int) -> dict[str, int]:
    """Return the number of children by status. Running tasks are still `dispatched` in their nodes."""
    if total is None:
        return {}
    by_status: dict[str, int] = {} if counts is None else orjson.loads(counts)
    if running:
        by_status["running"] = by_status.get("running", 0) + running
        by_status["dispatched"] = max(0, by_status.get("dispatched", 0) - running)
    by_status["pending"] = by_status.get("pending", 0) + max(0, total - expanded)
    return {status: number for status, number in by_status.items() if number}


async def show_node(tx: Transaction, job_id: str, node_id: str, tenant: str) -> View | None:
    """Return a node or child with input, output and last checkpoint; None while it is pending."""
    for row in await tx.fetch_named(SHOW_NODE, tenant=tenant, job=job_id, node=node_id):
        earlier = [orjson.loads(entry) for entry in row.earlier_inputs or ()]
        return node_view(job_id, row) | {"earlier_inputs": earlier, "checkpoint": _checkpoint_view(row)}
    return None


def _checkpoint_view(row: Any) -> View | None:
    if row.checkpoint_attempt is None:
        return None
    return {
        "attempt": row.checkpoint_attempt,
        "number": row.checkpoint_number,
        "phase": row.checkpoint_phase,
        "data": None if row.checkpoint_data is None else orjson.loads(row.checkpoint_data),
        "saved_at": row.checkpoint_saved_at,
    }


async def newest_logs(tx: Transaction, job_id: str, node_id: str, tenant: str) -> list[View]:
    """Return the newest log lines of a node, in order."""
    rows = await tx.fetch(NEWEST_LOGS, tenant=tenant, job=job_id, node=node_id, limit=LOG_ROWS)
    return [{"attempt": attempt, **line} for _, attempt, lines, _ in rows for line in orjson.loads(lines)]


async def newest_node_events(
    tx: Transaction, job_id: str, node_id: str, tenant: str, limit: int
) -> list[View]:
    """Return the newest events of a node or child, in order."""
    rows = await tx.fetch(NEWEST_NODE_EVENTS, tenant=tenant, job=job_id, node=node_id, limit=limit)
    return [event_view(job_id, row) for row in reversed(rows)]


async def find_event_time(tx: Transaction, job_id: str, tenant: str, seq: int) -> datetime | None:
    """Return the time of this event; None when the job has no event of this number."""
    rows: list[tuple[datetime]] = await tx.fetch(FIND_EVENT_TIME, tenant=tenant, job=job_id, seq=seq)
    return next((at for (at,) in rows), None)


async def newest_events(tx: Transaction, job_id: str, tenant: str, limit: int) -> list[View]:
    """Return the newest events of a job without those of children, newest first."""
    rows = await tx.fetch(NEWEST_EVENTS, tenant=tenant, job=job_id, window=MAX_EVENTS_SCANNED, limit=limit)
    return [event_view(job_id, row) for row in rows]


async def list_children(
    tx: Transaction, job_id: str, parent: str, tenant: str, *, status: str | None, after: int, limit: int
) -> list[View]:
    """Return a page of the children of a fan-out."""
    return await tx.fetch_dicts(
        LIST_CHILDREN, tenant=tenant, job=job_id, parent=parent, status=status, after=after, limit=limit
    )


async def strip_of_children(
    tx: Transaction, job_id: str, parent: str, tenant: str
) -> tuple[str, list[float]]:
    """Return the states of all children, one letter each, and the durations of those that ended."""
    ((letters, seconds),) = await tx.fetch(STRIP_OF_CHILDREN, tenant=tenant, job=job_id, parent=parent)
    return letters, seconds or []


async def spread_of_children(
    tx: Transaction, job_id: str, tenant: str, first: datetime, last: datetime, buckets: int
) -> dict[str, dict[int, tuple[int, int]]]:
    """Return (completed, not completed) children for each fan-out and time bucket."""
    rows = await tx.fetch(
        SPREAD_OF_CHILDREN,
        tenant=tenant,
        job=job_id,
        first=first.timestamp(),
        last=max(last.timestamp(), first.timestamp() + 0.001),
        buckets=buckets,
    )
    counts: dict[str, dict[int, tuple[int, int]]] = {}
    for parent, bucket, completed, others in rows:
        counts.setdefault(parent, {})[min(max(bucket, 1), buckets) - 1] = (completed, others)
    return counts


async def children_at(tx: Transaction, job_id: str, tenant: str, seq: int) -> dict[str, dict[str, int]]:
    """Return, for each fan-out, the number of children by the type of their last event up to this seq."""
    counts: dict[str, dict[str, int]] = {}
    for parent, kind, number in await tx.fetch(CHILDREN_AT, tenant=tenant, job=job_id, seq=seq):
        counts.setdefault(parent, {})[kind] = number
    return counts


async def strip_at(tx: Transaction, job_id: str, parent: str, tenant: str, seq: int) -> dict[int, str]:
    """Return the type of the last event of each child up to this seq, by item index."""
    return dict(await tx.fetch(STRIP_AT, tenant=tenant, job=job_id, parent=parent, seq=seq))


async def search_jobs(
    tx: Transaction,
    tenant: str,
    *,
    statuses: Sequence[str] | None,
    workflow: str | None,
    labels: Mapping[str, str | None],
    text: str | None,
    limit: int,
    window: JobWindow = WHOLE,
    is_apart: bool = False,
) -> tuple[list[View], str | None]:
    """Return jobs by label and text, and the cursor of the next page; a page may be short.

    A label without a value matches by its name. `statuses` and `is_apart` work as in `list_jobs`. Jobs sorted by
    duration are one page, taken from the newest jobs of the scan.
    """
    valued = {name: value for name, value in labels.items() if value is not None}
    named = [name for name, value in labels.items() if value is None]
    rows = await tx.fetch_named(
        SEARCH_JOBS,
        tenant=tenant,
        statuses=list(statuses or (DISPLAY_STATUSES if is_apart else JOB_STATES)),
        workflow=workflow,
        labels=orjson.dumps(valued).decode() if valued else None,
        keys=named or None,
        text=text,
        is_apart=is_apart,
        **window._asdict(),
        window=MAX_JOBS_SCANNED,
        limit=limit,
    )
    sort = window.sort
    stopped_at = next(row.stopped_at for row in rows if row.job_id is None)
    jobs = [job_view(row) for row in rows if row.job_id is not None]
    jobs.sort(key=lambda job: job["job_id"], reverse=sort != "oldest")
    if sort == "longest":
        jobs.sort(key=lambda job: _duration(job, tx.now), reverse=True)
        return jobs, None
    return jobs, jobs[-1]["job_id"] if len(jobs) == limit else stopped_at


def _duration(job: View, now: datetime) -> float:
    """Return the run time of a job in seconds, up to now for a running job; -1 for one that has not started."""
    if job["started_at"] is None:
        return -1.0
    return float(((job["completed_at"] or now) - job["started_at"]).total_seconds())


async def count_waiting_jobs(tx: Transaction, tenant: str, max_rows: int) -> dict[str, int]:
    """Return the number of jobs of each workflow that wait for a person or a time, counted up to `max_rows`."""
    return dict(await tx.fetch(COUNT_WAITING_JOBS, tenant=tenant, max_rows=max_rows))


async def waiting_nodes(tx: Transaction, tenant: str, limit: int) -> list[View]:
    """Return the approvals that wait for a decision, the oldest first."""
    rows = await tx.fetch_named(WAITING_NODES, tenant=tenant, window=MAX_JOBS_SCANNED, limit=limit)
    return [_approval_view(row) for row in rows]


def _approval_view(row: Any) -> View:
    approval = orjson.loads(row.input)
    return {
        "job_id": row.job_id,
        "workflow_id": row.workflow_id,
        "node_id": row.node_id,
        "message": approval.get("message"),
        "approvers": approval.get("approvers") or [],
        "form": approval.get("form"),
        "asked_at": row.started_at,
        "deadline": row.not_before,
        "labels": None if row.labels is None else orjson.loads(row.labels),
        "submitted_by": row.submitted_by,
    }
