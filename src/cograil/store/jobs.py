"""Jobs under their lock: locking, taking news, loading states, writing changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from cograil.model.ids import is_id
from cograil.model.job import (
    Changes,
    EventWrite,
    Happening,
    JobState,
    Late,
    Lost,
    More,
    NodeState,
    NodeWrite,
    Reported,
    Started,
    TaskWrite,
)
from cograil.model.outcome import Completed, Failed
from cograil.model.workflow import Json
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
CLOSE_NODES = statement("close_nodes")
WRITE_CHANGES = statement("write_changes")

DONE_CHANNEL = "cograil_done"
NEWS_CHANNEL = "cograil_news"
TASKS_CHANNEL = "cograil_tasks"
REVOKED_CHANNEL = "cograil_revoked"
IDS_PER_NOTICE = 200  # a payload holds at most 8,000 bytes
NO_LIMIT = 2**31 - 1
WINDOW = 4  # how many times the jobs one pass takes it looks at


@dataclass(slots=True)
class LockedJobs:
    """Jobs whose row lock is ours."""

    states: dict[str, JobState]
    taken: int = 0  # how many news of theirs were taken


async def lock_jobs_with_news(tx: Transaction, limit: int, aside: Iterable[str] = ()) -> LockedJobs:
    """Lock jobs that have news or are due; those locked by others or set aside are passed over."""
    params = {"limit": limit, "window": WINDOW * limit, "aside": array(aside)}
    return _locked(await tx.fetch(LOCK_JOBS_WITH_NEWS, **params))


async def lock_jobs(tx: Transaction, ids: Sequence[str]) -> LockedJobs:
    """Lock these jobs, waiting for their current writers. Unknown ids are simply not there."""
    return _locked(await tx.fetch(LOCK_JOBS, ids=array(id for id in ids if is_id(id))))


def array(ids: Iterable[str]) -> str:
    """An array of ids as text: the driver's own way with lists is slow, and ids need no quoting."""
    return "{" + ",".join(ids) + "}"


def _locked(rows: list[Row]) -> LockedJobs:
    return LockedJobs({row[0]: JobState(*row) for row in rows})


def text_array(values: Iterable[str | None]) -> str:
    """An array of any texts, quoted."""
    return "{" + ",".join("null" if value is None else _quoted(value) for value in values) + "}"


def _quoted(value: str) -> str:
    if "\\" in value:
        value = value.replace("\\", "\\\\")
    return '"' + value.replace('"', '\\"') + '"'


News = dict[str, list[Happening]]


async def take_inbox(tx: Transaction, jobs: LockedJobs, limit: int = NO_LIMIT) -> News:
    """Take the news of these jobs in the order they came; the nodes they are about become known."""
    news: News = {}
    rows = await tx.fetch(TAKE_INBOX, ids=array(jobs.states), limit=limit)
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
    raise ValueError(f"inbox row of unknown kind {kind!r}")


def _failed(error: dict[str, Json]) -> Failed:
    return Failed(error["code"], error["message"], error.get("retryable", True), error.get("details"))


def _state(node_id: str, columns: Row) -> NodeState:
    error = columns[13]
    return NodeState(node_id, *(*columns[:13], None if error is None else orjson.loads(error), *columns[14:]))


async def load_nodes(tx: Transaction, jobs: LockedJobs, ids: Sequence[str]) -> None:
    """Fill in the nodes of these jobs, without outputs."""
    for row in await tx.fetch(LOAD_NODES, ids=array(ids)):
        jobs.states[row[0]].nodes[row[1]] = _state(row[1], row[2:])


async def load_children_wake(tx: Transaction, states: Iterable[JobState]) -> None:
    """Fill in when the children that are not loaded want to be looked at."""
    by_id = {state.job_id: state for state in states}
    loaded = [
        (job_id, name) for job_id, state in by_id.items() for name, node in state.nodes.items() if node.parent
    ]
    params = {"loaded_jobs": array(job_id for job_id, _ in loaded), "loaded": [name for _, name in loaded]}
    for job_id, wake_at in await tx.fetch(LOAD_CHILDREN_WAKE, ids=array(by_id), **params):
        by_id[job_id].children_wake_at = wake_at


async def load_outputs(tx: Transaction, wanted: Sequence[tuple[str, str]]) -> list[Row]:
    """(job, node, output as JSON text) for these nodes."""
    return await tx.fetch(LOAD_OUTPUTS, jobs=[job for job, _ in wanted], nodes=[node for _, node in wanted])


async def load_children(tx: Transaction, wanted: Sequence[tuple[str, str]]) -> list[Row]:
    """(job, parent, node, status, output) of the children of these fan-outs, in their order."""
    return await tx.fetch(LOAD_CHILDREN, jobs=[job for job, _ in wanted], nodes=[node for _, node in wanted])


async def revoke_tasks(tx: Transaction, ids: Sequence[str]) -> set[int]:
    """Take away all tasks of these jobs; the workers that were running some. Take the inbox after this."""
    rows = await tx.fetch(REVOKE_TASKS, ids=array(ids))
    return {worker for _, worker in rows if worker is not None}


# -- writing ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class EventColumns:
    """Events as columns. They are most of what is written, and PostgreSQL reads arrays faster than JSON."""

    jobs: list[str] = field(default_factory=list)
    tenants: list[str] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    nodes: list[str | None] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    data: list[str | None] = field(default_factory=list)

    def add(self, state: JobState, events: Sequence[EventWrite]) -> None:
        """Add the events of one job."""
        self.jobs += [state.job_id] * len(events)
        self.tenants += [state.tenant_id] * len(events)
        for event in events:
            self.numbers.append(str(event.seq))
            self.types.append(event.type)
            self.nodes.append(event.node_id)
            self.tasks.append("null" if event.task_id is None else str(event.task_id))
            self.data.append(orjson.dumps(event.data).decode())

    def params(self) -> dict[str, str]:
        """The parameters of the statement."""
        return {
            "event_jobs": array(self.jobs),
            "event_tenants": text_array(self.tenants),
            "event_numbers": array(self.numbers),
            "event_types": array(self.types),
            "event_nodes": text_array(self.nodes),
            "event_tasks": array(self.tasks),
            "event_data": text_array(self.data),
        }


@dataclass(slots=True)
class Batch:
    """The rows of one write statement."""

    new_jobs: list[dict[str, Any]] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    tasks: list[dict[str, Any]] = field(default_factory=list)
    events: EventColumns = field(default_factory=lambda: EventColumns())
    more: list[dict[str, Any]] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    revoked_workers: set[int] = field(default_factory=set)
    wakes: bool = False
    wake_at: datetime | None = None  # the first moment at which one of the jobs wants to be looked at

    def add(self, state: JobState, changes: Changes, new: dict[str, Any] | None = None) -> None:
        """Add what was decided for one job; `new` has the other columns of a job that is being made."""
        job = _job_row(state, changes)
        if new is None:
            self.jobs.append(job)
        else:
            self.new_jobs.append(new | job)
        base = {"job_id": state.job_id, "tenant_id": state.tenant_id}
        self.nodes.extend(base | _node_row(write) for write in changes.nodes)
        self.tasks.extend(base | _task_row(state, task) for task in changes.tasks)
        self.events.add(state, changes.events)
        self.more.extend(base | {"node_id": name} for name in changes.more)
        if changes.closes_nodes:
            self.closed.append(state.job_id)
        if changes.finished_at is not None:
            self.ended.append(state.job_id)
        self.wakes = self.wakes or bool(changes.more) or changes.wake_at is not None
        if changes.wake_at is not None:
            self.wake_at = changes.wake_at if self.wake_at is None else min(self.wake_at, changes.wake_at)

    def notices(self, now: datetime) -> list[dict[str, str]]:
        """Whom to wake: at most one notice per kind and commit, but for long lists of ids.

        Orchestrators are told in how many seconds they are needed, for nobody else will tell them.
        """
        notices = []
        if self.tasks:
            queues = ",".join(sorted({task["queue"] for task in self.tasks}))
            notices.append({"channel": TASKS_CHANNEL, "payload": queues if len(queues) < 7000 else ""})
        if self.wakes:
            pause = "" if self.wake_at is None else f"{(self.wake_at - now).total_seconds():.3f}"
            notices.append({"channel": NEWS_CHANNEL, "payload": pause})
        for start in range(0, len(self.ended), IDS_PER_NOTICE):
            ids = self.ended[start : start + IDS_PER_NOTICE]
            notices.append({"channel": DONE_CHANNEL, "payload": ",".join(ids)})
        for worker in self.revoked_workers:
            notices.append({"channel": REVOKED_CHANNEL, "payload": str(worker)})
        return notices


def _fragment(text: bytes | None) -> Any:
    return None if text is None else orjson.Fragment(text)


def _job_row(state: JobState, changes: Changes) -> dict[str, Any]:
    return {
        "id": state.job_id,
        "status": changes.status,
        "seq": changes.seq,
        "wake_at": changes.wake_at,
        "started_at": changes.started_at,
        "finished_at": changes.finished_at,
        "result": _fragment(changes.result),
        "error": changes.error,
    }


def _node_row(write: NodeWrite) -> dict[str, Any]:
    state = write.state
    row: dict[str, Any] = {
        "node_id": state.node_id,
        "status": state.status,
        "attempt": state.attempt,
        "started_at": state.started_at,
        "finished_at": state.finished_at,
        "task_id": write.task_id,
        "input": _fragment(write.input),
        "output": _fragment(write.output),
    }
    for column, value in (
        ("lost", state.lost),
        ("budget_from", state.budget_from),
        ("parent", state.parent),
        ("idx", state.index),
        ("not_before", state.not_before),
        ("skip_reason", state.skip_reason),
        ("taken_branch", state.taken_branch),
        ("error", state.error),
    ):
        if value is not None:
            row[column] = value
    if state.total is not None:
        row |= {
            "total": state.total,
            "expanded": state.expanded,
            "ended": state.ended,
            "failed": state.failed,
        }
    return row


def _task_row(state: JobState, task: TaskWrite) -> dict[str, Any]:
    return {
        "node_id": task.node_id,
        "attempt": task.attempt,
        "queue": task.queue,
        "rank": -state.priority,
        "handler": task.handler,
        "params": _fragment(task.params),
        "timeout_seconds": task.timeout_seconds,
        "correlation_id": state.correlation_id,
        "trace_parent": state.trace_parent,
    }


def _json(rows: list[Any]) -> str:
    return orjson.dumps(rows).decode()


async def write_batch(tx: Transaction, batch: Batch, owner: int | None) -> None:
    """Write all of it in one statement; open children of jobs that were cut short are closed after."""
    await tx.execute(
        WRITE_CHANGES,
        owner=owner,
        new_jobs=_json(batch.new_jobs),
        jobs=_json(batch.jobs),
        nodes=_json(batch.nodes),
        tasks=_json(batch.tasks),
        **batch.events.params(),
        more=_json(batch.more),
        notices=_json(batch.notices(tx.now)),
    )
    if batch.closed:
        await tx.execute(CLOSE_NODES, ids=array(batch.closed))
