"""Reading for people: jobs, nodes, events, processes, as the objects that CLI and API show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import orjson

from cograil.model.ids import is_id, task_name
from cograil.model.workflow import Json, Workflow
from cograil.store.columns import uuids
from cograil.store.database import Row, Transaction
from cograil.store.statements import statement
from cograil.store.writing import MadeRow

SAMPLE_METRICS = statement("sample_metrics")
WORKFLOWS_OF_JOBS = statement("workflows_of_jobs")
FIND_JOB = statement("find_job")
FIND_JOBS = statement("find_jobs")
LIST_JOBS = statement("list_jobs")
LIST_NODES = statement("list_nodes")
MOST_NODE_BYTES = 32 * 1024 * 1024  # of what the nodes of one list took and returned
LIST_EVENTS = statement("list_events")
LIST_PROCESSES = statement("list_processes")
LIST_FAILURES = statement("list_failures")
STATUS_OF_JOBS = statement("status_of_jobs")
FIND_TRACEBACK = statement("find_traceback")

View = dict[str, Json]
ANY_BYTES = 2**62
MOST_PAGE_BYTES = 32 * 1024 * 1024  # of the inputs and results of the jobs of one page
STATUSES = ("pending", "running", "completed", "failed", "cancelled")
SHOWN_STATUSES = ("pending", "running", "waiting", "completed", "failed", "cancelled")  # in lists for people
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"  # sorts after any other

EVENT_STATUS = {
    "job_failed": "failure",
    "node_failed": "failure",
    "task_failed": "failure",
    "node_timeout": "failure",
    "job_cancelled": "warning",
    "node_retry": "warning",
    "warning": "warning",
    "job_completed": "success",
    "node_completed": "success",
}


def _parse(text: bytes | None) -> Json:
    return None if text is None else orjson.loads(text)


def job_view(row: Row) -> View:
    """A job as people see it, from the columns of `find_job`."""
    result, error = _parse(row[5]), _parse(row[6])
    return {
        "job_id": row[0],
        "workflow_id": row[1],
        "workflow_version": row[2],
        "status": row[3],
        "input_params": _parse(row[4]),
        "result": result,
        "error": error,
        "created_at": row[7],
        "started_at": row[8],
        "completed_at": row[9],
        "submitted_by": row[10],
        "correlation_id": row[11],
        "priority": row[12],
        "labels": _parse(row[13]) or {},
        "owner_id": row[14],
        "retry_of": row[15],
        "not_before": row[17],
        "deadline": row[18],
        "waiting_for": row[20],
        "result_data": result,
        "error_message": error,
    }


def shown_status(job: View) -> str:
    """The state of a job as people see it: `waiting` while no worker has anything of it."""
    return job["status"] if job["waiting_for"] is None else "waiting"


def made_view(row: MadeRow) -> View:
    """A job that was just made, as `find_job` would show it. Nobody owns it yet."""
    shown = (row.job_id, row.workflow_id, row.workflow_version, row.status, row.input, row.result, row.error)
    times = (row.created_at, row.started_at, row.finished_at)
    words = (row.submitted_by, row.correlation_id, row.priority, row.labels, None, row.retry_of)
    rest = (row.definition_id, row.not_before, row.deadline, row.wake_at, row.waiting_for)
    return job_view((*shown, *times, *words, *rest)) | {"owner_heartbeat_at": None}


async def find_job(tx: Transaction, job_id: str, tenant: str = "default") -> tuple[View, int] | None:
    """The job and the id of its definition, or None."""
    if not is_id(job_id):
        return None
    rows = await tx.fetch(FIND_JOB, tenant=tenant, job=job_id)
    return (job_view(rows[0]) | {"owner_heartbeat_at": rows[0][21]}, rows[0][16]) if rows else None


async def find_jobs(tx: Transaction, ids: Sequence[str], tenant: str = "default") -> dict[str, View]:
    """Those of these jobs that there are, by their ids."""
    rows = await tx.fetch(FIND_JOBS, tenant=tenant, ids=uuids(ids))
    return {row[0]: job_view(row) for row in rows}


class Page(list[View]):
    """Some of many."""

    def __init__(self, views: Iterable[View], *, has_more: bool) -> None:
        super().__init__(views)
        self.has_more = has_more  # or there may be


async def list_jobs(
    tx: Transaction,
    *,
    tenant: str = "default",
    statuses: Sequence[str] | None = None,
    workflow: str | None = None,
    correlation: str | None = None,
    before: str | None = None,
    limit: int = 50,
    most_bytes: int = ANY_BYTES,
    is_apart: bool = False,
) -> Page:
    """Jobs, newest first; no more of them than these bytes of inputs and results, but one at least.

    Beside the states of the engine `statuses` may hold `waiting`: jobs that wait for a person or a moment.
    With `is_apart` these are not listed as pending or running, as people see it.
    """
    rows = await tx.fetch(
        LIST_JOBS,
        way=way_of(statuses, workflow, correlation),
        tenant=tenant,
        statuses=list(statuses or (SHOWN_STATUSES if is_apart else STATUSES)),
        is_apart=is_apart,
        workflow=workflow,
        correlation=correlation,
        before=before or LAST_ID,
        limit=limit,
        most_bytes=most_bytes,
    )
    found = rows[0][21] if rows else 0
    return Page([job_view(row) for row in rows], has_more=found >= limit or len(rows) < found)


def way_of(statuses: Sequence[str] | None, workflow: str | None, correlation: str | None) -> str:
    """By what few jobs are found: most jobs of a workflow are completed, few of any are in another state."""
    if correlation is not None:
        return "correlation"
    is_common = not statuses or "completed" in statuses
    return "workflow" if workflow is not None and is_common else "status"


def node_view(job_id: str, row: Row) -> View:
    """A node as people see it, from the columns of `list_nodes`."""
    return {
        "node_id": row[0],
        "status": row[1],
        "attempt": row[2],
        "task_id": None if row[3] is None else task_name(row[3], job_id),
        "parent_node_id": row[4],
        "fan_out_index": row[5],
        "input": _parse(row[6]),
        "output": _parse(row[7]),
        "error": _parse(row[8]),
        "started_at": row[9],
        "completed_at": row[10],
        "not_before": row[11],
        "skip_reason": row[12],
        "children": _children_view(row),
        "progress": _progress_view(row),
        "queue": row[20],
        "handler": row[21],
        "task_state": row[22],
        "worker": row[23],
        "child_job": None if row[24] is None else {"job_id": row[24], "status": row[25]},
        "is_left_out": bool(row[26]),
    }


def _children_view(row: Row) -> View | None:
    if row[13] is None:
        return None
    return {"total": row[13], "expanded": row[14], "ended": row[15], "failed": row[16]}


def _progress_view(row: Row) -> View | None:
    if row[17] is None and row[19] is None:
        return None
    return {"current": row[17], "total": row[18], "message": row[19]}


async def list_nodes(
    tx: Transaction,
    job_id: str,
    workflow: Workflow,
    *,
    tenant: str = "default",
    children: bool = True,
    only: str | None = None,
) -> list[View]:
    """The nodes in the workflow's order, each fan-out followed by its children; pending ones included.

    What would be too much for one list is left out of its last ones; of `only` one node it is all there.
    """
    params = {"children": children, "only": only, "most_bytes": MOST_NODE_BYTES}
    found = await tx.fetch(LIST_NODES, tenant=tenant, job=job_id, **params)
    rows = [node_view(job_id, row) for row in found]
    known = {view["node_id"]: view for view in rows if view["parent_node_id"] is None}
    offspring: dict[str, list[View]] = {}
    for view in rows:
        if view["parent_node_id"] is not None:
            offspring.setdefault(view["parent_node_id"], []).append(view)
    views: list[View] = []
    for name, node in workflow.nodes.items():
        view = known.get(name) or pending_view(name)
        views.append(view | {"type": node.type.value, "handler": view["handler"] or node.handler or None})
        views.extend(child | {"type": "task"} for child in offspring.get(name, ()))
    return views if only is None else [view for view in views if view["node_id"] == only]


async def list_failures(
    tx: Transaction, job_id: str, *, tenant: str = "default", limit: int = 100
) -> list[View]:
    """The nodes and children that failed, the first to fail first."""
    rows = await tx.fetch(LIST_FAILURES, tenant=tenant, job=job_id, limit=limit)
    return [{"node_id": row[0], "attempt": row[1], "error": _parse(row[2])} for row in rows]


def pending_view(name: str) -> View:
    """A node that has no row yet."""
    return node_view("", (name, "pending", 0, *[None] * 24))


def event_view(job_id: str, row: Row) -> View:
    """An event as people see it, from (seq, type, node, task, data, at)."""
    seq, kind, node_id, task_id, data, at = row
    values: Mapping[str, Json] = _parse(data) or {}
    return {
        "event_id": f"{job_id}:{seq}",
        "job_id": job_id,
        "seq": seq,
        "event_type": kind,
        "event_status": EVENT_STATUS.get(kind, "info"),
        "node_id": node_id,
        "task_id": None if task_id is None else task_name(task_id, job_id),
        "data": values,
        "created_at": at,
    }


async def list_events(
    tx: Transaction,
    job_id: str,
    *,
    tenant: str = "default",
    after: int = 0,
    limit: int = 10_000,
    node: str | None = None,
) -> list[View]:
    """The job's events after this number, in order; only those of a node, if one is named."""
    rows = await tx.fetch(LIST_EVENTS, tenant=tenant, job=job_id, after=after, limit=limit, node=node)
    return [event_view(job_id, row) for row in rows]


async def list_processes(tx: Transaction) -> list[View]:
    """Orchestrators and workers that have not said good-bye."""
    names = ("id", "kind", "name", "state", "queues", "handlers", "info", "started_at", "pulsed_at")
    rows = await tx.fetch(LIST_PROCESSES)
    return [
        dict(zip(names, row[:9], strict=True)) | {"info": _parse(row[6]), "is_live": row[10]} for row in rows
    ]


async def status_of_jobs(tx: Transaction, ids: Sequence[str], tenant: str = "default") -> dict[str, str]:
    """The status of each of these jobs that exists."""
    return dict(await tx.fetch(STATUS_OF_JOBS, tenant=tenant, ids=list(ids)))


class Traceback(NamedTuple):
    """Where an attempt broke, and of which node of which job it is."""

    text: str
    job_id: str
    node_id: str


async def find_traceback(tx: Transaction, job_id: str, node_id: str) -> Traceback | None:
    """Where the last failed attempt of this node broke, if it was an exception.

    For a subworkflow it is the traceback of the node that failed in its child job.
    """
    rows = await tx.fetch(FIND_TRACEBACK, job=job_id, node=node_id)
    return Traceback(*rows[0]) if rows else None


async def sample_metrics(tx: Transaction) -> list[tuple[str, str, str, float]]:
    """What the database knows for /metrics: (name, label, label, value)."""
    return [(name, first, second, value) for name, first, second, value in await tx.fetch(SAMPLE_METRICS)]


async def workflows_of(tx: Transaction, ids: Iterable[str]) -> dict[str, tuple[str, int]]:
    """The names and versions of the workflows of these jobs."""
    rows = await tx.fetch(WORKFLOWS_OF_JOBS, ids=list(ids))
    return {job_id: (name, version) for job_id, name, version in rows}
