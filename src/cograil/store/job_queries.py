"""Jobs, nodes, events and processes as the CLI, the API and the web pages show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from cograil.model.ids import is_id, task_name
from cograil.model.states import DISPLAY_STATUSES, JOB_STATES
from cograil.model.workflow import Json, Workflow
from cograil.store.array_params import uuids
from cograil.store.database import Transaction
from cograil.store.statements import statement
from cograil.store.write_batch import NewJobRow

SAMPLE_METRICS = statement("sample_metrics")
WORKFLOWS_OF_JOBS = statement("workflows_of_jobs")
FIND_JOB = statement("find_job")
FIND_JOBS = statement("find_jobs")
LIST_JOBS = statement("list_jobs")
LIST_NODES = statement("list_nodes")
MAX_NODE_BYTES = 32 * 1024 * 1024  # of the inputs and outputs in one list of nodes
LIST_EVENTS = statement("list_events")
LIST_PROCESSES = statement("list_processes")
LIST_FAILURES = statement("list_failures")
STATUS_OF_JOBS = statement("status_of_jobs")
FIND_TRACEBACK = statement("find_traceback")

View = dict[str, Json]
ANY_BYTES = 2**62
MAX_PAGE_BYTES = 32 * 1024 * 1024  # of the inputs and results of the jobs of one page
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


def job_view(row: Any) -> View:
    """Return a job as the API shows it, from a row with the columns of `find_job`."""
    result, error = _parse(row.result), _parse(row.error)
    return {
        "job_id": row.job_id,
        "workflow_id": row.workflow_id,
        "workflow_version": row.workflow_version,
        "status": row.status,
        "input_params": _parse(row.input),
        "result": result,
        "error": error,
        "created_at": row.created_at,
        "started_at": row.started_at,
        "completed_at": row.finished_at,
        "submitted_by": row.submitted_by,
        "correlation_id": row.correlation_id,
        "priority": row.priority,
        "labels": _parse(row.labels) or {},
        "owner_id": row.owner,
        "retry_of": row.retry_of,
        "not_before": row.not_before,
        "deadline": row.deadline,
        "waiting_for": row.waiting_for,
        "result_data": result,
        "error_message": error,
    }


def shown_status(job: View) -> str:
    """Return the display status of a job: `waiting` when it waits for a person or a time."""
    return job["status"] if job["waiting_for"] is None else "waiting"


def new_job_view(row: NewJobRow) -> View:
    """Return a job that was just created, as `find_job` would. It has no owner yet."""
    return job_view(row) | {"owner_heartbeat_at": None}


async def find_job(tx: Transaction, job_id: str, tenant: str = "default") -> tuple[View, int] | None:
    """Return the job and the id of its definition, or None."""
    if not is_id(job_id):
        return None
    for row in await tx.fetch_named(FIND_JOB, tenant=tenant, job=job_id):
        return job_view(row) | {"owner_heartbeat_at": row.owner_heartbeat_at}, row.definition_id
    return None


async def find_jobs(tx: Transaction, ids: Sequence[str], tenant: str = "default") -> dict[str, View]:
    """Return the jobs that exist among these ids, by id."""
    rows = await tx.fetch_named(FIND_JOBS, tenant=tenant, ids=uuids(ids))
    return {row.job_id: job_view(row) for row in rows}


class ViewPage(list[View]):
    """One page of a longer list."""

    def __init__(self, views: Iterable[View], *, has_more: bool) -> None:
        super().__init__(views)
        self.has_more = has_more  # True also when that is not certain


async def list_jobs(
    tx: Transaction,
    *,
    tenant: str = "default",
    statuses: Sequence[str] | None = None,
    workflow: str | None = None,
    correlation: str | None = None,
    before: str | None = None,
    limit: int = 50,
    max_bytes: int = ANY_BYTES,
    is_apart: bool = False,
) -> ViewPage:
    """Return jobs, newest first: at least one, and no more once their inputs and results exceed `max_bytes`.

    Beside the states of the engine `statuses` may contain `waiting`: jobs that wait for a person or a time. With
    `is_apart` these are not listed as pending or running.
    """
    rows = await tx.fetch_named(
        LIST_JOBS,
        index_name=job_index(statuses, workflow, correlation),
        tenant=tenant,
        statuses=list(statuses or (DISPLAY_STATUSES if is_apart else JOB_STATES)),
        is_apart=is_apart,
        workflow=workflow,
        correlation=correlation,
        before=before or LAST_ID,
        limit=limit,
        max_bytes=max_bytes,
    )
    matches = rows[0].matches if rows else 0
    return ViewPage([job_view(row) for row in rows], has_more=matches >= limit or len(rows) < matches)


def job_index(statuses: Sequence[str] | None, workflow: str | None, correlation: str | None) -> str:
    """Return the index that selects the fewest rows.

    Most jobs of a workflow are completed; few jobs of any workflow have another status.
    """
    if correlation is not None:
        return "correlation"
    is_common = not statuses or "completed" in statuses
    return "workflow" if workflow is not None and is_common else "status"


def node_view(job_id: str, row: Any) -> View:
    """Return a node as the API shows it, from a row with the columns of `list_nodes`."""
    return {
        "node_id": row.node_id,
        "status": row.status,
        "attempt": row.attempt,
        "task_id": None if row.task_id is None else task_name(row.task_id, job_id),
        "parent_node_id": row.parent,
        "fan_out_index": row.idx,
        "input": _parse(row.input),
        "output": _parse(row.output),
        "error": _parse(row.error),
        "started_at": row.started_at,
        "completed_at": row.finished_at,
        "not_before": row.not_before,
        "skip_reason": row.skip_reason,
        "children": _children_view(row),
        "progress": _progress_view(row),
        "queue": row.queue,
        "handler": row.handler,
        "task_state": row.task_state,
        "worker": row.worker,
        "child_job": None if row.child_job is None else {"job_id": row.child_job, "status": row.child_status},
        "payload_omitted": bool(getattr(row, "payload_omitted", False)),
    }


def _children_view(row: Any) -> View | None:
    if row.total is None:
        return None
    return {"total": row.total, "expanded": row.expanded, "ended": row.ended, "failed": row.failed}


def _progress_view(row: Any) -> View | None:
    if row.current is None and row.message is None:
        return None
    return {"current": row.current, "total": row.out_of, "message": row.message}


async def list_nodes(
    tx: Transaction,
    job_id: str,
    workflow: Workflow,
    *,
    tenant: str = "default",
    children: bool = True,
    only: str | None = None,
) -> list[View]:
    """Return the nodes in workflow order, each fan-out followed by its children, pending nodes included.

    The last nodes of a large list come without input and output (`payload_omitted`). `only` selects one node, which
    is always complete.
    """
    params = {"children": children, "only": only, "max_bytes": MAX_NODE_BYTES}
    rows = await tx.fetch_named(LIST_NODES, tenant=tenant, job=job_id, **params)
    parents: dict[str, View] = {}
    children_of: dict[str, list[View]] = {}
    for row in rows:
        if row.parent is None:
            parents[row.node_id] = node_view(job_id, row)
        else:
            children_of.setdefault(row.parent, []).append(node_view(job_id, row))
    views: list[View] = []
    for name, node in workflow.nodes.items():
        view = parents.get(name) or pending_view(name)
        views.append(view | {"type": node.type.value, "handler": view["handler"] or node.handler or None})
        views.extend(child | {"type": "task"} for child in children_of.get(name, ()))
    return views if only is None else [view for view in views if view["node_id"] == only]


async def list_failures(
    tx: Transaction, job_id: str, *, tenant: str = "default", limit: int = 100
) -> list[View]:
    """Return the failed nodes and children, the first to fail first."""
    rows = await tx.fetch(LIST_FAILURES, tenant=tenant, job=job_id, limit=limit)
    return [
        {"node_id": node_id, "attempt": attempt, "error": _parse(error)} for node_id, attempt, error in rows
    ]


def pending_view(name: str) -> View:
    """Return the view of a node that has no row yet."""
    return {
        "node_id": name,
        "status": "pending",
        "attempt": 0,
        "task_id": None,
        "parent_node_id": None,
        "fan_out_index": None,
        "input": None,
        "output": None,
        "error": None,
        "started_at": None,
        "completed_at": None,
        "not_before": None,
        "skip_reason": None,
        "children": None,
        "progress": None,
        "queue": None,
        "handler": None,
        "task_state": None,
        "worker": None,
        "child_job": None,
        "payload_omitted": False,
    }


def event_view(job_id: str, row: Sequence[Any]) -> View:
    """Return an event as the API shows it, from (seq, type, node_id, task_id, data, at)."""
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
    """Return the events of the job after this seq, in order; with `node` only the events of that node."""
    rows = await tx.fetch(LIST_EVENTS, tenant=tenant, job=job_id, after=after, limit=limit, node=node)
    return [event_view(job_id, row) for row in rows]


async def list_processes(tx: Transaction) -> list[View]:
    """Return the orchestrators and workers that have not stopped."""
    rows = await tx.fetch_dicts(LIST_PROCESSES)
    return [row | {"info": _parse(row["info"])} for row in rows]


async def status_of_jobs(tx: Transaction, ids: Sequence[str], tenant: str = "default") -> dict[str, str]:
    """Return the status of each of these jobs that exists."""
    return dict(await tx.fetch(STATUS_OF_JOBS, tenant=tenant, ids=list(ids)))


class Traceback(NamedTuple):
    """The traceback of an attempt, with its job and node."""

    text: str
    job_id: str
    node_id: str


async def find_traceback(tx: Transaction, job_id: str, node_id: str) -> Traceback | None:
    """Return the traceback of the last failed attempt of this node; None if it did not raise.

    For a subworkflow it is the traceback of the failed node in its child job.
    """
    rows = await tx.fetch(FIND_TRACEBACK, job=job_id, node=node_id)
    return Traceback(*rows[0]) if rows else None


async def sample_metrics(tx: Transaction) -> list[tuple[str, str, str, float]]:
    """Return the database samples of /metrics: (name, first label, second label, value)."""
    return [(name, first, second, value) for name, first, second, value in await tx.fetch(SAMPLE_METRICS)]


async def workflows_of(tx: Transaction, ids: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Return the workflow name and version of each of these jobs."""
    rows = await tx.fetch(WORKFLOWS_OF_JOBS, ids=list(ids))
    return {job_id: (name, version) for job_id, name, version in rows}
