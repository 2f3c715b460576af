"""Monitoring across jobs: nodes, tasks, queues, and the outcomes of recent jobs.

Jobs of a period are selected by their ids, which begin with a time, and by workflow, which has an index. Every
scan is bounded, and the result says when it was truncated. Statements compare the workflow as a range of one
name: with an equality, once there are statistics, the planner scans all jobs by id instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson

from cograil.model.ids import task_name
from cograil.model.workflow import Json
from cograil.store.database import Transaction
from cograil.store.job_queries import View
from cograil.store.retention_queries import first_id_at
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

MAX_JOBS_SCANNED = 2_000
MAX_TASKS_SCANNED = 20_000
MAX_EVENTS_SCANNED = 300  # per job, to find the workers of its nodes
MAX_TASKS_COUNTED = 50_000
MAX_JOBS_WITH_TASKS, MAX_EVENTS_OF_TASKS = 100, 200  # of the newest jobs, and of the newest events of each
MAX_JOBS_COUNTED = 20_000  # per workflow
MAX_JOBS_WITH_NODES = 5_000
MAX_FAILED_JOBS = 2_000
COMMON_FAILURES = 5
MAX_NODES_COUNTED = 200_000
NEWEST_JOB = str(UUID(int=2**128 - 1))
NEWEST_TASK = 2**63 - 1
MAX_JOBS_WITH_ATTEMPTS = 200
AFTER_ALL = "~"  # sorts after every id of a node

NodeCursor = tuple[str, str]  # job and node
EventCursor = tuple[str, int]  # job and number of the event


async def nodes_across(
    tx: Transaction,
    tenant: str,
    *,
    workflow: str | None,
    status: str | None,
    after: NodeCursor | None,
    limit: int,
    name: str | None = None,
    has_children: bool = True,
) -> tuple[list[View], NodeCursor | None]:
    """Return nodes of all jobs, newest jobs first, and the cursor of the next page; a page may be short or empty.

    Children follow their fan-out in item order; without `has_children` they are left out. `name` is a part of a
    node's name.
    """
    job_id, node_id = after or (NEWEST_JOB, "")
    parent, index = _natural(node_id)
    rows = await tx.fetch_dicts(
        NODES_ACROSS,
        tenant=tenant,
        workflow=workflow,
        status=status,
        job=job_id,
        node=parent,
        idx=index,
        name=name,
        children=has_children,
        window=MAX_JOBS_SCANNED,
        limit=limit,
    )
    stopped_at = next(row["job_id"] for row in rows if row["workflow_id"] is None)
    nodes = sorted(
        (row for row in rows if row["workflow_id"] is not None), key=lambda row: _natural(row["node_id"])
    )
    nodes.sort(key=lambda row: row["job_id"], reverse=True)
    views = [_node_view(row) for row in nodes]
    if len(nodes) == limit:
        return views, (nodes[-1]["job_id"], nodes[-1]["node_id"])
    return views, stopped_at and (stopped_at, AFTER_ALL)


def _natural(node_id: str) -> tuple[str, int]:
    """Return the sort key of a node: `cut__2` sorts before `cut__10` and after `cut`."""
    parent, mark, index = node_id.rpartition("__")
    return (parent, int(index)) if mark and index.isdecimal() else (node_id, -1)


async def last_workers(tx: Transaction, tenant: str, jobs: Sequence[str]) -> dict[tuple[str, str], str]:
    """Return the last worker of each node, by job and node, from the newest events of each job."""
    rows = await tx.fetch(LAST_WORKERS, tenant=tenant, jobs=list(jobs), window=MAX_EVENTS_SCANNED)
    return {(job_id, node_id): worker for job_id, node_id, worker in rows if worker}


def _node_view(row: View) -> View:
    task_id = row["task_id"]
    return row | {
        "error": None if row["error"] is None else orjson.loads(row["error"]),
        "task_id": None if task_id is None else task_name(task_id, row["job_id"]),
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
    """Return due and running tasks, newest first, and the cursor of the next page; a page may be short or empty.

    Only running tasks have a worker.
    """
    params = {"tenant": tenant, "queue": queue, "handler": handler, "before": before or NEWEST_TASK}
    stopped_at: int | None = None
    tasks: list[View] = []
    if state == "running" or (worker is not None and state is None):
        tasks = await tx.fetch_dicts(RUNNING_TASKS, limit=limit, worker=worker, **params)
    elif worker is None:
        rows = await tx.fetch_dicts(LIVE_TASKS, state=state, limit=limit, window=MAX_TASKS_SCANNED, **params)
        stopped_at = next(row["task_id"] for row in rows if row["job_id"] is None)
        tasks = [row for row in rows if row["job_id"] is not None]
        tasks.sort(key=lambda row: row["task_id"], reverse=True)
    views = [_task_view(row) for row in tasks]
    return views, tasks[-1]["task_id"] if len(tasks) == limit else stopped_at


def _task_view(row: View) -> View:
    task_id = task_name(row["task_id"], row["job_id"])
    return row | {"task_id": task_id, "age_seconds": round(row["age_seconds"], 3)}


async def ended_tasks(tx: Transaction, tenant: str, worker: str | None, limit: int) -> list[View]:
    """Return the ended attempts of the newest jobs, of this worker or of all, the latest first."""
    params = {"jobs": MAX_JOBS_WITH_TASKS, "events": MAX_EVENTS_OF_TASKS, "limit": limit}
    return await tx.fetch_dicts(ENDED_TASKS, tenant=tenant, worker=worker, **params)


async def ended_attempts(
    tx: Transaction, tenant: str, *, worker: str | None, after: EventCursor | None, limit: int
) -> tuple[list[View], EventCursor | None]:
    """Return ended attempts, newest jobs first, and the cursor of the next page; a page may be short or empty."""
    job_id, seq = after or (NEWEST_JOB, 0)
    params = {"tenant": tenant, "job": job_id, "seq": seq, "window": MAX_JOBS_WITH_ATTEMPTS, "limit": limit}
    rows = await tx.fetch_named(ENDED_ATTEMPTS, **params)
    stopped_at = next(row.job_id for row in rows if row.task_id is None)
    attempts = [row for row in rows if row.task_id is not None]
    attempts.sort(key=lambda row: (row.job_id, row.seq), reverse=True)
    views = [_attempt_view(row) for row in attempts if worker is None or row.worker == worker]
    if len(attempts) == limit:
        return views, (attempts[-1].job_id, attempts[-1].seq)
    return views, stopped_at and (stopped_at, 0)


def _attempt_view(row: Any) -> View:
    error = None if row.error_code is None else {"code": row.error_code, "message": row.error_message}
    return {
        "task_id": task_name(row.task_id, row.job_id),
        "job_id": row.job_id,
        "workflow_id": row.workflow_id,
        "node_id": row.node_id,
        "attempt": row.attempt,
        "state": row.state,
        "worker": row.worker,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
        "error": error,
    }


async def queue_status(tx: Transaction, tenant: str) -> list[View]:
    """Return each queue: its waiting and running tasks, its workers, and its pause."""
    rows = await tx.fetch_named(QUEUE_STATUS, tenant=tenant, max_tasks=MAX_TASKS_COUNTED)
    return [_queue_view(row) for row in rows]


def _queue_view(row: Any) -> View:
    pause = {"by": row.paused_by, "reason": row.pause_reason, "at": row.paused_at}
    is_paused = row.paused_at is not None
    return {
        "queue": row.queue,
        "depth": row.depth,
        "held": row.held,
        "running": row.running,
        "oldest_at": row.oldest_at,
        "oldest_seconds": _rounded(row.oldest_seconds),
        "workers": row.workers,
        "is_paused": is_paused,
        "paused": pause if is_paused else None,
        "depth_truncated": row.depth_truncated,
    }


# -- outcomes of jobs ---------------------------------------------------------------------------------------


async def workflow_metrics(tx: Transaction, tenant: str, since: datetime, workflow: str | None) -> list[View]:
    """Return the number of jobs, outcomes, durations and common errors of each workflow."""
    params = {"tenant": tenant, "workflow": workflow, "low": first_id_at(since), "max_jobs": MAX_JOBS_COUNTED}
    rows = await tx.fetch_named(WORKFLOW_METRICS, **params)
    errors: dict[str, list[Json]] = {}
    for name, code, message, count in await tx.fetch(WORKFLOW_FAILURES, **params, kinds=COMMON_FAILURES + 1):
        errors.setdefault(name, []).append({"error_code": code, "error_message": message, "count": count})
    return [_workflow_view(row) | _common_failures(errors.get(row.workflow_id, [])) for row in rows]


def _common_failures(errors: list[Json]) -> View:
    return {"common_failures": errors[:COMMON_FAILURES], "has_more_failures": len(errors) > COMMON_FAILURES}


def _workflow_view(row: Any) -> View:
    return {
        "workflow_id": row.workflow_id,
        "total_jobs": row.total_jobs,
        "completed": row.completed,
        "failed": row.failed,
        "cancelled": row.cancelled,
        "active": row.active,
        "success_rate": _success_rate(row.completed, row.failed),
        "avg_duration": _rounded(row.avg_duration),
        "p50_duration": _rounded(row.p50_duration),
        "p95_duration": _rounded(row.p95_duration),
        "complete_since": row.complete_since,
    }


async def node_metrics(tx: Transaction, tenant: str, since: datetime, workflow: str) -> list[View]:
    """Return the outcomes of each node of a workflow in its newest jobs."""
    rows = await tx.fetch_named(
        NODE_METRICS,
        tenant=tenant,
        workflow=workflow,
        low=first_id_at(since),
        max_jobs=MAX_JOBS_WITH_NODES,
        max_nodes=MAX_NODES_COUNTED,
    )
    return [
        {
            "node_id": row.node_id,
            "is_child": row.is_child,
            "total_executions": row.total_executions,
            "completed": row.completed,
            "failed": row.failed,
            "skipped": row.skipped,
            "success_rate": _success_rate(row.completed, row.failed),
            "avg_duration": _rounded(row.avg_duration),
            "total_retries": row.total_retries,
            "jobs_seen": row.jobs_seen,
            "truncated": row.jobs_seen == MAX_JOBS_WITH_NODES or row.truncated,
        }
        for row in rows
    ]


async def failure_metrics(
    tx: Transaction, tenant: str, since: datetime, workflow: str | None, limit: int
) -> View:
    """Return the errors of the nodes of failed jobs, the most common first.

    `has_more` says that there are more kinds of errors than the limit, `truncated` that not all jobs of the period
    were read.
    """
    rows = await tx.fetch_dicts(
        FAILURE_METRICS,
        tenant=tenant,
        workflow=workflow,
        low=first_id_at(since),
        max_jobs=MAX_JOBS_COUNTED,
        max_failed=MAX_FAILED_JOBS,
        max_nodes=MAX_NODES_COUNTED,
        limit=limit + 1,
    )
    (truncated,) = {row.pop("truncated") for row in rows}
    failures = [row for row in rows if row["workflow_id"] is not None]
    return {"failures": failures[:limit], "has_more": len(failures) > limit, "truncated": truncated}


async def throughput_metrics(
    tx: Transaction, tenant: str, first: datetime, width: timedelta, workflow: str | None
) -> list[View]:
    """Return one bucket for each interval since `first`, empty ones included."""
    rows = await tx.fetch_named(
        THROUGHPUT_METRICS,
        tenant=tenant,
        workflow=workflow,
        low=first_id_at(first - timedelta(days=1)),
        max_jobs=MAX_JOBS_COUNTED,
        first=first,
        width=width,
    )
    return [
        {
            "bucket_start": row.bucket_start,
            "jobs_submitted": row.jobs_submitted,
            "jobs_completed": row.jobs_completed,
            "jobs_failed": row.jobs_failed,
            "jobs_cancelled": row.jobs_cancelled,
            "avg_duration": _rounded(row.avg_duration),
            "is_complete": row.complete_since is None or row.bucket_start >= row.complete_since,
        }
        for row in rows
    ]


def _success_rate(completed: int, failed: int) -> float | None:
    """Return the share of completed jobs; None when no job completed or failed."""
    return round(completed / (completed + failed), 4) if completed + failed else None


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(float(seconds), 6)


async def health_work(tx: Transaction, tenant: str) -> tuple[float | None, list[str]]:
    """Return the age of the oldest inbox row in seconds, and the handlers of waiting tasks that no worker has."""
    ((seconds, handlers),) = await tx.fetch(HEALTH_WORK, tenant=tenant)
    return seconds, handlers


async def oldest_jobs(tx: Transaction, tenant: str, limit: int) -> list[View]:
    """Return the oldest unfinished jobs."""
    return await tx.fetch_dicts(OLDEST_JOBS, tenant=tenant, limit=limit)
