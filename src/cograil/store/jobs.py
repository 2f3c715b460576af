"""Jobs under their lock: locking, taking news, loading states. `writing.py` has the other half."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson

from cograil.model.ids import is_id
from cograil.model.job import (
    CancelAsked,
    ChildEnded,
    Happening,
    JobState,
    Late,
    Lost,
    More,
    NodeState,
    Reported,
    Resumed,
    Signalled,
    Started,
)
from cograil.model.outcome import Completed, Failed
from cograil.model.workflow import Json
from cograil.store.columns import uuids
from cograil.store.database import Row, Transaction
from cograil.store.statements import statement

LOCK_JOBS_WITH_NEWS = statement("lock_jobs_with_news")
LOCK_JOBS = statement("lock_jobs")
TAKE_INBOX = statement("take_inbox")
LOAD_NODES = statement("load_nodes")
LOAD_CHILDREN_WAKE = statement("load_children_wake")
LOAD_OUTPUTS = statement("load_outputs")
LOAD_CHILDREN = statement("load_children")
REVOKE_TASKS = statement("revoke_tasks")
COUNT_ANCESTORS = statement("count_ancestors")

NO_LIMIT = 2**31 - 1
WINDOW = 4  # how many times the jobs one pass takes it looks at


@dataclass(slots=True)
class LockedJobs:
    """Jobs whose row lock is ours."""

    states: dict[str, JobState]
    taken: int = 0  # how many news of theirs were taken


async def lock_jobs_with_news(tx: Transaction, limit: int, aside: Iterable[str] = ()) -> LockedJobs:
    """Lock jobs that have news or are due; those locked by others or set aside are passed over."""
    params = {"limit": limit, "window": WINDOW * limit, "aside": uuids(list(aside))}
    return _locked(await tx.fetch(LOCK_JOBS_WITH_NEWS, **params))


async def lock_jobs(tx: Transaction, ids: Sequence[str]) -> LockedJobs:
    """Lock these jobs, waiting for their current writers. Unknown ids are simply not there."""
    return _locked(await tx.fetch(LOCK_JOBS, ids=uuids([id for id in ids if is_id(id)])))


def _locked(rows: list[Row]) -> LockedJobs:
    return LockedJobs({row[0]: JobState(*row) for row in rows})


News = dict[str, list[Happening]]


async def take_inbox(tx: Transaction, jobs: LockedJobs, limit: int = NO_LIMIT) -> News:
    """Take the news of these jobs in the order they came; the nodes they are about become known."""
    news: News = {}
    rows = await tx.fetch(TAKE_INBOX, ids=uuids(list(jobs.states)), limit=limit)
    jobs.taken += len(rows)
    for row in rows:
        job_id, node_id = row[1], row[3]
        news.setdefault(job_id, []).append(_happening(row))
        nodes = jobs.states[job_id].nodes
        if row[10] is not None and node_id not in nodes:
            nodes[node_id] = _state(node_id, row[10:])
    return news


def _happening(row: Row) -> Happening:
    _, _, kind, node_id, attempt, task_id, worker, started_at, output, error = row[:10]
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
            return More(node_id)
        case "resumed":
            return Resumed()
        case "child":
            said = orjson.loads(error)
            return ChildEnded(node_id, attempt, said["child"], said["status"], output, said["error"])
        case "cancel":
            return CancelAsked(**orjson.loads(error))
        case "signal":
            return Signalled(node_id=node_id, **orjson.loads(output))
    raise ValueError(f"inbox row of unknown kind {kind!r}")


def _failed(error: dict[str, Json]) -> Failed:
    return Failed(error["code"], error["message"], error.get("retryable", True), error.get("details"))


def _state(node_id: str, columns: Row) -> NodeState:
    error = columns[13]
    return NodeState(node_id, *(*columns[:13], None if error is None else orjson.loads(error), *columns[14:]))


async def load_nodes(tx: Transaction, jobs: LockedJobs, ids: Sequence[str]) -> None:
    """Fill in the nodes of these jobs, without outputs."""
    for row in await tx.fetch(LOAD_NODES, ids=uuids(ids)):
        jobs.states[row[0]].nodes[row[1]] = _state(row[1], row[2:])


async def load_children_wake(tx: Transaction, states: Iterable[JobState]) -> None:
    """Fill in when the children that are not loaded want to be looked at."""
    by_id = {state.job_id: state for state in states}
    loaded = [
        (job_id, name) for job_id, state in by_id.items() for name, node in state.nodes.items() if node.parent
    ]
    params = {"loaded_jobs": uuids([job_id for job_id, _ in loaded]), "loaded": [name for _, name in loaded]}
    for job_id, wake_at in await tx.fetch(LOAD_CHILDREN_WAKE, ids=uuids(list(by_id)), **params):
        by_id[job_id].children_wake_at = wake_at


async def load_outputs(tx: Transaction, wanted: Sequence[tuple[str, str]]) -> list[Row]:
    """(job, node, output as JSON text) for these nodes."""
    return await tx.fetch(LOAD_OUTPUTS, jobs=[job for job, _ in wanted], nodes=[node for _, node in wanted])


async def load_children(tx: Transaction, wanted: Sequence[tuple[str, str]]) -> list[Row]:
    """(job, parent, node, status, output) of the children of these fan-outs, in their order."""
    return await tx.fetch(LOAD_CHILDREN, jobs=[job for job, _ in wanted], nodes=[node for _, node in wanted])


async def revoke_tasks(tx: Transaction, ids: Sequence[str]) -> set[int]:
    """Take away all tasks of these jobs; the workers that were running some. Take the inbox after this."""
    rows = await tx.fetch(REVOKE_TASKS, ids=uuids(ids))
    return {worker for _, worker in rows if worker is not None}


async def count_ancestors(tx: Transaction, job_id: str, most: int) -> int:
    """How many jobs a child of this one would have above it, counted up to one more than `most`."""
    return int((await tx.fetch(COUNT_ANCESTORS, job=job_id, most=most))[0][0])
