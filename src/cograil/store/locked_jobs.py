"""Locked jobs: locking, taking inbox rows, loading states. `write_batch.py` writes the changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from cograil.model.ids import is_id
from cograil.model.job import (
    CancelRequested,
    ChildEnded,
    ExpandMore,
    Input,
    JobState,
    Late,
    Lost,
    NodeState,
    Reported,
    Resumed,
    Signalled,
    Started,
    Submitted,
)
from cograil.model.outcome import Completed, Failed
from cograil.model.workflow import Json
from cograil.store.array_params import Columns, jsonbs, times, uuids
from cograil.store.database import Row, Transaction
from cograil.store.statements import statement

LOCK_JOBS_WITH_NEWS = statement("lock_jobs_with_news")
LOCK_JOBS = statement("lock_jobs")
FIND_DUE = statement("find_due")
LOAD_SUBMITTED = statement("load_submitted")
OPEN_JOBS = statement("open_jobs")
TAKE_INBOX = statement("take_inbox")
LOAD_NODES = statement("load_nodes")
LOAD_CHILDREN_WAKE = statement("load_children_wake")
LOAD_OUTPUTS = statement("load_outputs")
LOAD_CHILDREN = statement("load_children")
REVOKE_TASKS = statement("revoke_tasks")
COUNT_ANCESTORS = statement("count_ancestors")
ATTEMPTS_OF_CHILDREN = statement("attempts_of_children")

NO_LIMIT = 2**31 - 1
WINDOW = 4  # how many candidate jobs a pass reads for each one that it takes


@dataclass(slots=True)
class LockedJobs:
    """Jobs whose row lock this transaction holds."""

    states: dict[str, JobState]
    taken: int = 0  # number of inbox rows that were taken
    first: int | None = None  # the first of them
    new: list[str] = field(default_factory=list)  # submitted from SQL without validation


async def lock_jobs_with_news(
    tx: Transaction, limit: int, aside: Iterable[str] = (), first: int = 0
) -> LockedJobs:
    """Lock jobs that have inbox rows or are due; skip those locked by others or set aside.

    Inbox rows before `first` are not read.
    """
    params = {"limit": limit, "window": WINDOW * limit, "aside": uuids(list(aside)), "first": first}
    return _locked(await tx.fetch(LOCK_JOBS_WITH_NEWS, **params))


async def lock_jobs(tx: Transaction, ids: Sequence[str]) -> LockedJobs:
    """Lock these jobs, waiting for their current writers. Unknown ids are left out."""
    return _locked(await tx.fetch(LOCK_JOBS, ids=uuids([id for id in ids if is_id(id)])))


async def find_due(tx: Transaction, limit: int, aside: Iterable[str] = ()) -> list[str]:
    """Return the ids of the jobs that have inbox rows or are due. Reads nothing else of them."""
    params = {"limit": limit, "aside": uuids(list(aside))}
    return [job_id for (job_id,) in await tx.fetch(FIND_DUE, **params)]


def _locked(rows: list[Row]) -> LockedJobs:
    states = [JobState(*row) for row in rows]
    return LockedJobs({state.job_id: state for state in states})


News = dict[str, list[Input]]


@dataclass(slots=True)
class Revoked:
    """The jobs whose tasks were revoked, and the starts of these attempts to record in their histories."""

    workers: set[int] = field(default_factory=set)
    began: News = field(default_factory=dict)


async def take_inbox(tx: Transaction, jobs: LockedJobs, limit: int = NO_LIMIT) -> News:
    """Take the inbox rows of these jobs in order; loads the nodes they refer to.

    Advances the time of the transaction to that of the read, so that no delay begins before its cause.
    """
    news: News = {}
    rows = await tx.fetch(TAKE_INBOX, ids=uuids(list(jobs.states)), limit=limit)
    jobs.taken += len(rows)
    for row in rows:
        number, job_id, kind, node_id, attempt, task_id, worker, started_at, *payload, read_at = row
        output, error, node_status, *columns = payload
        tx.now = max(tx.now, read_at)
        if jobs.first is None:
            jobs.first = number
        if kind == "submitted":
            jobs.new.append(job_id)
        entry = _input(kind, node_id, attempt, task_id, worker, started_at, output, error)
        news.setdefault(job_id, []).append(entry)
        nodes = jobs.states[job_id].nodes
        if node_status is not None and node_id not in nodes:
            nodes[node_id] = node_state(node_id, node_status, *columns)
    return news


PLAIN: dict[str, Input] = {"resumed": Resumed(), "submitted": Submitted()}


def _input(
    kind: str,
    node_id: Any,
    attempt: Any,
    task_id: Any,
    worker: str | None,
    started_at: datetime | None,
    output: Any,
    error: Any,
) -> Input:
    """Return the engine's input for an inbox row; its kind determines which columns are set."""
    if kind in PLAIN:
        return PLAIN[kind]
    match kind:
        case "report":
            outcome = Completed(output) if error is None else _failed(orjson.loads(error))
            return Reported(node_id, attempt, task_id, outcome, worker, started_at)
        case "started":
            return Started(node_id, attempt, task_id, worker, started_at)
        case "lost":
            return Lost(node_id, attempt, task_id, orjson.loads(error)["code"], worker, started_at)
        case "late":
            what = "result" if error is None else orjson.loads(error)["what"]
            return Late(node_id, attempt, task_id, what, worker)
        case "more":
            return ExpandMore(node_id)
        case "child":
            child = orjson.loads(error)
            return ChildEnded(node_id, attempt, child["child"], child["status"], output, child["error"])
        case "cancel":
            return CancelRequested(**orjson.loads(error))
        case "signal":
            return Signalled(node_id=node_id, **orjson.loads(output))
    raise ValueError(f"inbox row of unknown kind {kind!r}")


def _failed(error: dict[str, Json]) -> Failed:
    is_retryable = error.get("retryable", True)
    return Failed(error["code"], error["message"], is_retryable, error.get("details"), error.get("after"))


def node_state(*columns: Any) -> NodeState:
    """Return the node of a row with the columns of `NodeState` in their order, with its error as JSON text."""
    node = NodeState(*columns)
    if node.error is not None:
        node.error = orjson.loads(node.error)
    return node


async def load_nodes(tx: Transaction, jobs: LockedJobs, ids: Sequence[str]) -> None:
    """Load the nodes of these jobs, without outputs."""
    for job_id, node_id, *columns in await tx.fetch(LOAD_NODES, ids=uuids(ids)):
        jobs.states[job_id].nodes[node_id] = node_state(node_id, *columns)


async def load_children_wake(tx: Transaction, states: Iterable[JobState]) -> None:
    """Load the wake-up times of the children that are not loaded."""
    by_id = {state.job_id: state for state in states}
    loaded = [
        (job_id, name) for job_id, state in by_id.items() for name, node in state.nodes.items() if node.parent
    ]
    params = {"loaded_jobs": uuids([job_id for job_id, _ in loaded]), "loaded": [name for _, name in loaded]}
    for job_id, wake_at, sleeping in await tx.fetch(LOAD_CHILDREN_WAKE, ids=uuids(list(by_id)), **params):
        by_id[job_id].children_wake_at = wake_at
        by_id[job_id].children_sleeping = sleeping


async def load_outputs(tx: Transaction, wanted: Sequence[tuple[str, str]]) -> list[Row]:
    """Return (job, node, output as JSON text) for these nodes."""
    return await tx.fetch(LOAD_OUTPUTS, jobs=[job for job, _ in wanted], nodes=[node for _, node in wanted])


async def load_children(tx: Transaction, wanted: Sequence[tuple[str, str]]) -> list[Row]:
    """Return (job, parent, node, status, output) of the children of these fan-outs, in their order."""
    return await tx.fetch(LOAD_CHILDREN, jobs=[job for job, _ in wanted], nodes=[node for _, node in wanted])


async def revoke_tasks(tx: Transaction, jobs: LockedJobs, ids: Sequence[str]) -> Revoked:
    """Revoke all tasks of these jobs and load the running ones. Take the inbox after this."""
    revoked = Revoked()
    for row in await tx.fetch(REVOKE_TASKS, ids=uuids(ids)):
        worker_id, job_id, node_id, attempt, task_id, worker, started_at, *columns = row
        revoked.workers.add(worker_id)
        started = Started(node_id, attempt, task_id, worker, started_at)
        revoked.began.setdefault(job_id, []).append(started)
        jobs.states[job_id].nodes.setdefault(node_id, node_state(node_id, *columns))
    return revoked


async def count_ancestors(tx: Transaction, job_id: str, most: int) -> int:
    """Return how many ancestors a child of this job would have, counted up to one more than `most`."""
    return int(await tx.fetch_value(COUNT_ANCESTORS, job=job_id, most=most))


async def load_submitted(tx: Transaction, ids: Sequence[str]) -> list[Row]:
    """Return (job, labels, callback) of these jobs, as unvalidated JSON text."""
    return await tx.fetch(LOAD_SUBMITTED, ids=uuids(ids))


async def open_jobs(tx: Transaction, states: Sequence[JobState]) -> None:
    """Store the validated attributes of these jobs."""
    opened = Columns("opened", id=uuids, input=jsonbs, deadline=times)
    opened.rows = [(state.job_id, state.input_text, state.deadline) for state in states]
    await tx.execute(OPEN_JOBS, **opened.params())


async def attempts_of_children(
    tx: Transaction, job_id: str, fan_outs: Sequence[str], limit: int
) -> list[tuple[str, int]]:
    """Return the first children of these fan-outs and the numbers of their last attempts."""
    params = {"job": job_id, "parents": list(fan_outs), "limit": limit}
    return [(node_id, attempt) for node_id, attempt in await tx.fetch(ATTEMPTS_OF_CHILDREN, **params)]
