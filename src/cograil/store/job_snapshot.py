"""A job as a board: its nodes at a glance, one node from close by, its children counted, and how it once was.

Whoever looks at a job looks often, and at jobs with ten thousand children; so each statement here reads a
bounded number of rows or counts them in the database, and none waits for anybody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

import orjson

from cograil.model.ids import is_id
from cograil.model.states import DISPLAY_STATUSES, JOB_STATES
from cograil.model.workflow import Json
from cograil.store.database import Transaction
from cograil.store.job_queries import LAST_ID, View, event_view, job_view, node_view
from cograil.store.retention_queries import FIRST_ID
from cograil.store.statements import statement

JOB_BOARD = statement("job_board")
SHOW_NODE = statement("show_node")
NEWEST_LOGS = statement("newest_logs")
NEWEST_EVENTS = statement("newest_events")
NEWEST_NODE_EVENTS = statement("newest_node_events")
EVENT_MOMENT = statement("event_moment")
LIST_CHILDREN = statement("list_children")
STRIP_OF_CHILDREN = statement("strip_of_children")
SPREAD_OF_CHILDREN = statement("spread_of_children")
CHILDREN_AT = statement("children_at")
STRIP_AT = statement("strip_at")
SEARCH_JOBS = statement("search_jobs")
WAITING_NODES = statement("waiting_nodes")
COUNT_WAITING_JOBS = statement("count_waiting_jobs")

EVENTS_LOOKED_THROUGH = 2_000
JOBS_LOOKED_THROUGH = 5_000
JobSort = Literal["newest", "oldest", "longest"]


class JobWindow(NamedTuple):
    """Which jobs are looked through, and in which order: ids bound the time of submission too."""

    before: str = LAST_ID
    after: str = FIRST_ID
    sort: JobSort = "newest"


WHOLE = JobWindow()


LOG_ROWS = 200
CHECKPOINT = ("attempt", "number", "phase", "data", "saved_at")


@dataclass(frozen=True, slots=True)
class NodeCard:
    """One node on the board. `children` counts those of a fan-out by their states."""

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


@dataclass(frozen=True, slots=True)
class Board:
    """A job at one moment; `seq` numbers its last event. Nodes that are not here are pending."""

    seq: int
    status: str
    started_at: datetime | None
    finished_at: datetime | None
    paused_at: datetime | None
    now: datetime
    definition_id: int
    nodes: Mapping[str, NodeCard]


async def job_board(tx: Transaction, job_id: str, tenant: str) -> Board | None:
    """The job as it is now, in one snapshot; None when there is none of this id."""
    rows = await tx.fetch(JOB_BOARD, tenant=tenant, job=job_id) if is_id(job_id) else []
    if not rows:
        return None
    nodes = {}
    for row in rows:
        if row[7] is not None:
            children = _children(row[15], row[16], row[26], row[27])
            nodes[row[7]] = NodeCard(*(*row[7:16], *row[17:26], children))
    return Board(*(*rows[0][:7], nodes))


def _children(total: int | None, expanded: int, counts: bytes | None, running: int) -> dict[str, int]:
    """How many are in which state. A task that runs is not yet known to its node."""
    if total is None:
        return {}
    found: dict[str, int] = {} if counts is None else orjson.loads(counts)
    if running:
        found["running"] = found.get("running", 0) + running
        found["dispatched"] = max(0, found.get("dispatched", 0) - running)
    found["pending"] = found.get("pending", 0) + max(0, total - expanded)
    return {status: number for status, number in found.items() if number}


async def show_node(tx: Transaction, job_id: str, node_id: str, tenant: str) -> View | None:
    """A node or a child with what it took and returned, and its last checkpoint; None while it is pending."""
    rows = await tx.fetch(SHOW_NODE, tenant=tenant, job=job_id, node=node_id)
    if not rows:
        return None
    checkpoint = None if rows[0][27] is None else dict(zip(CHECKPOINT, rows[0][27:], strict=True))
    if checkpoint is not None and checkpoint["data"] is not None:
        checkpoint["data"] = orjson.loads(checkpoint["data"])
    earlier = [orjson.loads(one) for one in rows[0][26] or ()]
    view = node_view(job_id, (*rows[0][:26], False))
    return view | {"earlier_inputs": earlier, "checkpoint": checkpoint}


async def newest_logs(tx: Transaction, job_id: str, node_id: str, tenant: str) -> list[View]:
    """What a node logged last, in order."""
    rows = await tx.fetch(NEWEST_LOGS, tenant=tenant, job=job_id, node=node_id, limit=LOG_ROWS)
    return [{"attempt": row[1], **line} for row in rows for line in orjson.loads(row[2])]


async def newest_node_events(
    tx: Transaction, job_id: str, node_id: str, tenant: str, limit: int
) -> list[View]:
    """The last events of a node or a child, in order."""
    rows = await tx.fetch(NEWEST_NODE_EVENTS, tenant=tenant, job=job_id, node=node_id, limit=limit)
    return [event_view(job_id, row) for row in reversed(rows)]


async def event_moment(tx: Transaction, job_id: str, tenant: str, seq: int) -> datetime | None:
    """When this event happened; None when there is none of this number."""
    rows = await tx.fetch(EVENT_MOMENT, tenant=tenant, job=job_id, seq=seq)
    return rows[0][0] if rows else None


async def newest_events(tx: Transaction, job_id: str, tenant: str, limit: int) -> list[View]:
    """The last events of a job but those of children, newest first."""
    rows = await tx.fetch(NEWEST_EVENTS, tenant=tenant, job=job_id, window=EVENTS_LOOKED_THROUGH, limit=limit)
    return [event_view(job_id, row) for row in rows]


async def list_children(
    tx: Transaction, job_id: str, parent: str, tenant: str, *, status: str | None, after: int, limit: int
) -> list[View]:
    """A page of the children of a fan-out."""
    rows = await tx.fetch(
        LIST_CHILDREN, tenant=tenant, job=job_id, parent=parent, status=status, after=after, limit=limit
    )
    names = ("node_id", "index", "status", "attempt", "started_at", "completed_at", "error_message")
    return [dict(zip(names, row, strict=True)) for row in rows]


async def strip_of_children(
    tx: Transaction, job_id: str, parent: str, tenant: str
) -> tuple[str, list[float]]:
    """The states of all children, a letter each; and how long each took that ended."""
    ((letters, seconds),) = await tx.fetch(STRIP_OF_CHILDREN, tenant=tenant, job=job_id, parent=parent)
    return letters, seconds or []


async def spread_of_children(
    tx: Transaction, job_id: str, tenant: str, first: datetime, last: datetime, buckets: int
) -> dict[str, dict[int, tuple[int, int]]]:
    """When children ended: for each fan-out and stretch of time how many well, and how many not."""
    rows = await tx.fetch(
        SPREAD_OF_CHILDREN,
        tenant=tenant,
        job=job_id,
        first=first.timestamp(),
        last=max(last.timestamp(), first.timestamp() + 0.001),
        buckets=buckets,
    )
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for parent, bucket, well, not_well in rows:
        found.setdefault(parent, {})[min(max(bucket, 1), buckets) - 1] = (well, not_well)
    return found


async def children_at(tx: Transaction, job_id: str, tenant: str, seq: int) -> dict[str, dict[str, int]]:
    """For each fan-out, how many children had which event as their last one when the job was there."""
    found: dict[str, dict[str, int]] = {}
    for parent, kind, number in await tx.fetch(CHILDREN_AT, tenant=tenant, job=job_id, seq=seq):
        found.setdefault(parent, {})[kind] = number
    return found


async def strip_at(tx: Transaction, job_id: str, parent: str, tenant: str, seq: int) -> dict[int, str]:
    """The kind of the last event of each child when the job was there, by the place of its item."""
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
    """Jobs by label and by what is in their input, and where to go on; a page may be short.

    A label without a value is asked for by its name. `statuses` and `is_apart` as in `list_jobs`. Jobs sorted
    by duration are one page, taken from the newest that were looked through.
    """
    valued = {name: value for name, value in labels.items() if value is not None}
    named = [name for name, value in labels.items() if value is None]
    rows = await tx.fetch(
        SEARCH_JOBS,
        tenant=tenant,
        statuses=list(statuses or (DISPLAY_STATUSES if is_apart else JOB_STATES)),
        workflow=workflow,
        labels=orjson.dumps(valued).decode() if valued else None,
        keys=named or None,
        text=text,
        is_apart=is_apart,
        **window._asdict(),
        window=JOBS_LOOKED_THROUGH,
        limit=limit,
    )
    sort = window.sort
    stopped_at = next(row[21] for row in rows if row[0] is None)
    found = [job_view(row) for row in rows if row[0] is not None]
    found.sort(key=lambda job: job["job_id"], reverse=sort != "oldest")
    if sort == "longest":
        found.sort(key=lambda job: _duration(job, tx.now), reverse=True)
        return found, None
    return found, found[-1]["job_id"] if len(found) == limit else stopped_at


def _duration(job: View, now: datetime) -> float:
    """The seconds that a job ran, or has run until now; -1 for one that has not started."""
    if job["started_at"] is None:
        return -1.0
    return float(((job["completed_at"] or now) - job["started_at"]).total_seconds())


async def count_waiting_jobs(tx: Transaction, tenant: str, most: int) -> dict[str, int]:
    """How many jobs of each workflow wait for a person or a time, as people see it."""
    return dict(await tx.fetch(COUNT_WAITING_JOBS, tenant=tenant, most=most))


async def waiting_nodes(tx: Transaction, tenant: str, limit: int) -> list[View]:
    """Approvals that wait for somebody's answer, the oldest first."""
    rows = await tx.fetch(WAITING_NODES, tenant=tenant, window=JOBS_LOOKED_THROUGH, limit=limit)
    return [_waiting(row) for row in rows]


def _waiting(row: Sequence[Json]) -> View:
    asked = orjson.loads(row[3])
    return {
        "job_id": row[0],
        "workflow_id": row[1],
        "node_id": row[2],
        "message": asked.get("message"),
        "approvers": asked.get("approvers") or [],
        "form": asked.get("form"),
        "asked_at": row[4],
        "deadline": row[5],
        "labels": None if row[6] is None else orjson.loads(row[6]),
        "submitted_by": row[7],
    }
