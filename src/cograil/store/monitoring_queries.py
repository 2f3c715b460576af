"""How all of it is doing: nodes and tasks across jobs, queues, and what became of the jobs of the last days.

Jobs of a period are found by their ids, which begin with a time, and by workflow, for which there is an
index. Whatever could be a million rows is read up to a bound, and the answer says so. A workflow is asked for
as a range of one name: with an equality, once there are statistics, the planner walks all jobs by their ids
in the hope of soon meeting one of that workflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import orjson

from cograil.model.ids import task_name
from cograil.model.workflow import Json
from cograil.store.database import Row, Transaction
from cograil.store.job_queries import View
from cograil.store.statements import statement

NODES_ACROSS = statement("nodes_across")
LAST_WORKERS = statement("last_workers")
LIVE_TASKS = statement("live_tasks")
RUNNING_TASKS = statement("running_tasks")
ENDED_TASKS = statement("ended_tasks")
ENDED_ATTEMPTS = statement("ended_attempts")
QUEUE_STATUS = statement("queue_status")
WORKFLOW_METRICS = statement("workflow_metrics")
WORKFLOW_FAILURES = statement("workflow_failures")
NODE_METRICS = statement("node_metrics")
FAILURE_METRICS = statement("failure_metrics")
THROUGHPUT_METRICS = statement("throughput_metrics")
HEALTH_WORK = statement("health_work")
OLDEST_JOBS = statement("oldest_jobs")

JOBS_LOOKED_THROUGH = 2_000
TASKS_LOOKED_THROUGH = 20_000
EVENTS_LOOKED_THROUGH = 300  # of each job, for who ran its nodes
TASKS_COUNTED = 50_000
JOBS_WITH_TASKS, EVENTS_OF_TASKS = 100, 200  # each of these jobs, by its last events
JOBS_COUNTED = 20_000  # of each workflow
JOBS_WITH_NODES = 5_000
FAILED_JOBS = 2_000
COMMON_FAILURES = 5
NODES_COUNTED = 200_000
NEWEST_JOB = str(UUID(int=2**128 - 1))
NEWEST_TASK = 2**63 - 1
JOBS_WITH_ATTEMPTS = 200
AFTER_ALL = "~"  # sorts after every id of a node

FAILURE_NAMES = (
    "workflow_id",
    "node_id",
    "error_code",
    "error_message",
    "occurrences",
    "jobs",
    "first_seen",
    "last_seen",
    "last_job_id",
)

NodePlace = tuple[str, str]  # job and node
EventPlace = tuple[str, int]  # job and number of the event


def first_id(moment: datetime) -> str:
    """The least id that a job of this moment or later can have."""
    return str(UUID(int=max(0, int(moment.timestamp() * 1000)) << 80))


async def nodes_across(
    tx: Transaction,
    tenant: str,
    *,
    workflow: str | None,
    status: str | None,
    after: NodePlace | None,
    limit: int,
    name: str | None = None,
    has_children: bool = True,
) -> tuple[list[View], NodePlace | None]:
    """Nodes of all jobs, newest jobs first, and where to go on; a page may be short or even empty.

    Children stand behind their fan-out in the order of their items; without `has_children` they are left out.
    `name` is a part of the name of a node.
    """
    job_id, node_id = after or (NEWEST_JOB, "")
    parent, index = _natural(node_id)
    rows = await tx.fetch(
        NODES_ACROSS,
        tenant=tenant,
        workflow=workflow,
        status=status,
        job=job_id,
        node=parent,
        idx=index,
        name=name,
        children=has_children,
        window=JOBS_LOOKED_THROUGH,
        limit=limit,
    )
    stopped_at = next(row[0] for row in rows if row[1] is None)
    found = sorted((row for row in rows if row[1] is not None), key=lambda row: _natural(row[2]))
    found.sort(key=lambda row: row[0], reverse=True)
    if len(found) == limit:
        return [_node_view(row) for row in found], (found[-1][0], found[-1][2])
    return [_node_view(row) for row in found], stopped_at and (stopped_at, AFTER_ALL)


def _natural(node_id: str) -> tuple[str, int]:
    """By which nodes are sorted: `cut__2` stands before `cut__10`, and behind `cut`."""
    parent, mark, index = node_id.rpartition("__")
    return (parent, int(index)) if mark and index.isdecimal() else (node_id, -1)


async def last_workers(tx: Transaction, tenant: str, jobs: Sequence[str]) -> dict[tuple[str, str], str]:
    """Which worker ran a node last, by job and node, as far as the last events of each job tell."""
    rows = await tx.fetch(LAST_WORKERS, tenant=tenant, jobs=list(jobs), window=EVENTS_LOOKED_THROUGH)
    return {(job_id, node_id): worker for job_id, node_id, worker in rows if worker}


def _node_view(row: Row) -> View:
    return {
        "job_id": row[0],
        "workflow_id": row[1],
        "node_id": row[2],
        "status": row[3],
        "attempt": row[4],
        "parent_node_id": row[5],
        "fan_out_index": row[6],
        "error": None if row[7] is None else orjson.loads(row[7]),
        "started_at": row[8],
        "completed_at": row[9],
        "task_id": None if row[10] is None else task_name(row[10], row[0]),
        "queue": row[11],
        "handler": row[12],
        "worker": row[13],
    }


async def live_tasks(
    tx: Transaction,
    tenant: str,
    *,
    state: str | None,
    queue: str | None,
    handler: str | None,
    worker: str | None,
    before: int | None,
    limit: int,
) -> tuple[list[View], int | None]:
    """Attempts that are due or running, newest first, and where to go on; a page may be short or empty.

    What a worker has is running: nobody has yet what is due.
    """
    asked = {"tenant": tenant, "queue": queue, "handler": handler, "before": before or NEWEST_TASK}
    stopped_at: int | None = None
    if state == "running" or (worker is not None and state is None):
        found = await tx.fetch(RUNNING_TASKS, limit=limit, worker=worker, **asked)
    elif worker is not None:
        found = []
    else:
        rows = await tx.fetch(LIVE_TASKS, state=state, limit=limit, window=TASKS_LOOKED_THROUGH, **asked)
        stopped_at = next(row[0] for row in rows if row[1] is None)
        found = sorted((row for row in rows if row[1] is not None), key=lambda row: row[0], reverse=True)
    views = [_task_view(row) for row in found]
    return views, found[-1][0] if len(found) == limit else stopped_at


def _task_view(row: Row) -> View:
    return {
        "task_id": task_name(row[0], row[1]),
        "job_id": row[1],
        "workflow_id": row[13],
        "node_id": row[2],
        "attempt": row[3],
        "state": row[4],
        "queue": row[5],
        "handler": row[6],
        "priority": row[7],
        "worker": row[8],
        "created_at": row[9],
        "started_at": row[10],
        "deadline": row[11],
        "age_seconds": round(row[12], 3),
    }


async def ended_tasks(tx: Transaction, tenant: str, worker: str | None, limit: int) -> list[View]:
    """Attempts of the newest jobs that have ended, of this worker or of all, the latest first."""
    names = (
        "job_id",
        "workflow_id",
        "node_id",
        "attempt",
        "worker",
        "started_at",
        "ended_at",
        "outcome",
        "error",
    )
    rows = await tx.fetch(
        ENDED_TASKS, tenant=tenant, worker=worker, jobs=JOBS_WITH_TASKS, events=EVENTS_OF_TASKS, limit=limit
    )
    return [dict(zip(names, row, strict=True)) for row in rows]


async def ended_attempts(
    tx: Transaction, tenant: str, *, worker: str | None, after: EventPlace | None, limit: int
) -> tuple[list[View], EventPlace | None]:
    """Attempts that have ended, newest jobs first, and where to go on; a page may be short or even empty."""
    job_id, seq = after or (NEWEST_JOB, 0)
    asked = {"tenant": tenant, "job": job_id, "seq": seq, "window": JOBS_WITH_ATTEMPTS, "limit": limit}
    rows = await tx.fetch(ENDED_ATTEMPTS, **asked)
    looked_until = next(row[0] for row in rows if row[2] is None)
    found = sorted(
        (row for row in rows if row[2] is not None), key=lambda row: (row[0], row[1]), reverse=True
    )
    views = [_attempt_view(row) for row in found]
    shown = [one for one in views if worker is None or one["worker"] == worker]
    if len(found) == limit:
        return shown, (found[-1][0], found[-1][1])
    return shown, looked_until and (looked_until, 0)


def _attempt_view(row: Row) -> View:
    return {
        "task_id": task_name(row[2], row[0]),
        "job_id": row[0],
        "workflow_id": row[3],
        "node_id": row[4],
        "attempt": row[5],
        "state": row[6],
        "worker": row[7],
        "started_at": row[8],
        "ended_at": row[9],
        "error": None if row[10] is None else {"code": row[10], "message": row[11]},
    }


async def queue_status(tx: Transaction, tenant: str) -> list[View]:
    """Each queue: what waits and since when, what runs, who serves it, and who paused it."""
    return [_queue_view(row) for row in await tx.fetch(QUEUE_STATUS, tenant=tenant, most=TASKS_COUNTED)]


def _queue_view(row: Row) -> View:
    paused = None if row[9] is None else {"by": row[7], "reason": row[8], "at": row[9]}
    return {
        "queue": row[0],
        "depth": row[1],
        "held": row[2],
        "running": row[3],
        "oldest_at": row[4],
        "oldest_seconds": _rounded(row[5]),
        "workers": row[6],
        "is_paused": paused is not None,
        "paused": paused,
        "is_depth_cut": row[10],
    }


# -- what became of jobs ------------------------------------------------------------------------------------


async def workflow_metrics(tx: Transaction, tenant: str, since: datetime, workflow: str | None) -> list[View]:
    """Each workflow: how many jobs, what became of them, how long they took, what they died of."""
    asked = {"tenant": tenant, "workflow": workflow, "low": first_id(since), "most": JOBS_COUNTED}
    rows = await tx.fetch(WORKFLOW_METRICS, **asked)
    died: dict[str, list[Json]] = {}
    for name, code, message, times in await tx.fetch(WORKFLOW_FAILURES, **asked, kinds=COMMON_FAILURES + 1):
        died.setdefault(name, []).append({"error_code": code, "error_message": message, "count": times})
    return [_workflow_view(row) | _common(died.get(row[0], [])) for row in rows]


def _common(died: list[Json]) -> View:
    return {"common_failures": died[:COMMON_FAILURES], "has_more_failures": len(died) > COMMON_FAILURES}


def _workflow_view(row: Row) -> View:
    return {
        "workflow_id": row[0],
        "total_jobs": row[1],
        "completed": row[2],
        "failed": row[3],
        "cancelled": row[4],
        "active": row[5],
        "success_rate": _share(row[2], row[3]),
        "avg_duration": _rounded(row[6]),
        "p50_duration": _rounded(row[7]),
        "p95_duration": _rounded(row[8]),
        "complete_since": row[9],
    }


async def node_metrics(tx: Transaction, tenant: str, since: datetime, workflow: str) -> list[View]:
    """Each node of a workflow, in its newest jobs."""
    rows = await tx.fetch(
        NODE_METRICS,
        tenant=tenant,
        workflow=workflow,
        low=first_id(since),
        most=JOBS_WITH_NODES,
        most_nodes=NODES_COUNTED,
    )
    return [
        {
            "node_id": row[0],
            "is_child": row[1],
            "total_executions": row[2],
            "completed": row[3],
            "failed": row[4],
            "skipped": row[5],
            "success_rate": _share(row[3], row[4]),
            "avg_duration": _rounded(row[6]),
            "total_retries": row[7],
            "jobs_seen": row[8],
            "is_cut": row[8] == JOBS_WITH_NODES or row[9],
        }
        for row in rows
    ]


async def failure_metrics(
    tx: Transaction, tenant: str, since: datetime, workflow: str | None, limit: int
) -> View:
    """What nodes of failed jobs died of, the most common first; and whether that is all of it.

    `has_more`: there are more kinds than the limit. `is_cut`: not all jobs of the period were read.
    """
    rows = await tx.fetch(
        FAILURE_METRICS,
        tenant=tenant,
        workflow=workflow,
        low=first_id(since),
        most=JOBS_COUNTED,
        most_failed=FAILED_JOBS,
        most_nodes=NODES_COUNTED,
        limit=limit + 1,
    )
    found = [dict(zip(FAILURE_NAMES, row[:-1], strict=True)) for row in rows if row[0] is not None]
    return {"failures": found[:limit], "has_more": len(found) > limit, "is_cut": rows[0][-1]}


async def throughput_metrics(
    tx: Transaction, tenant: str, first: datetime, width: timedelta, workflow: str | None
) -> list[View]:
    """A bucket for each stretch of time since then, the empty ones too."""
    rows = await tx.fetch(
        THROUGHPUT_METRICS,
        tenant=tenant,
        workflow=workflow,
        low=first_id(first - timedelta(days=1)),
        most=JOBS_COUNTED,
        first=first,
        width=width,
    )
    return [
        {
            "bucket_start": row[0],
            "jobs_submitted": row[1],
            "jobs_completed": row[2],
            "jobs_failed": row[3],
            "jobs_cancelled": row[4],
            "avg_duration": _rounded(row[5]),
            "is_complete": row[6] is None or row[0] >= row[6],
        }
        for row in rows
    ]


def _share(completed: int, failed: int) -> float | None:
    """Of those that ended by themselves; None when there is none."""
    return round(completed / (completed + failed), 4) if completed + failed else None


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(float(seconds), 6)


async def health_work(tx: Transaction, tenant: str) -> tuple[float | None, list[str]]:
    """For how many seconds the oldest news wait, and handlers that tasks wait for and nobody has."""
    ((seconds, handlers),) = await tx.fetch(HEALTH_WORK, tenant=tenant)
    return seconds, handlers


async def oldest_jobs(tx: Transaction, tenant: str, limit: int) -> list[View]:
    """The jobs that have not ended for the longest time."""
    names = ("job_id", "workflow_id", "status", "created_at")
    rows = await tx.fetch(OLDEST_JOBS, tenant=tenant, limit=limit)
    return [dict(zip(names, row, strict=True)) for row in rows]
