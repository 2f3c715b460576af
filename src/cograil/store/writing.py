"""Writing what was decided: all changes of a batch of jobs in one statement."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import orjson

from cograil.model.job import Changes, JobState, NodeState, NodeWrite, TaskWrite
from cograil.model.workflow import Json
from cograil.store.columns import (
    Columns,
    bigints,
    floats,
    ints,
    jsonbs,
    jsons,
    smallints,
    texts,
    times,
    uuids,
)
from cograil.store.database import Transaction
from cograil.store.statements import statement

CLOSE_NODES = statement("close_nodes")

DONE_CHANNEL = "cograil_done"
NEWS_CHANNEL = "cograil_news"
TASKS_CHANNEL = "cograil_tasks"
REVOKED_CHANNEL = "cograil_revoked"
IDS_PER_NOTICE = 200  # a payload holds at most 8,000 bytes

# The parts of write_changes.sql and their columns.
MADE = partial(
    Columns,
    "made",
    id=uuids,
    tenant_id=texts,
    definition_id=bigints,
    workflow_id=texts,
    workflow_version=ints,
    status=texts,
    priority=smallints,
    seq=ints,
    input=jsonbs,
    result=jsons,
    error=jsons,
    labels=jsonbs,
    callback=jsonbs,
    correlation_id=texts,
    submitted_by=texts,
    trace_parent=texts,
    retry_of=uuids,
    not_before=times,
    deadline=times,
    wake_at=times,
    created_at=times,
    started_at=times,
    finished_at=times,
)
MOVED = partial(
    Columns,
    "moved",
    id=uuids,
    status=texts,
    seq=ints,
    result=jsons,
    error=jsons,
    wake_at=times,
    started_at=times,
    finished_at=times,
)
BORN = partial(
    Columns,
    "born",
    job_id=uuids,
    node_id=texts,
    tenant_id=texts,
    status=texts,
    attempt=ints,
    parent=texts,
    idx=ints,
    not_before=times,
    input=jsons,
    output=jsons,
    started_at=times,
    finished_at=times,
    rest=jsonbs,
)
NODED = partial(
    Columns,
    "noded",
    job_id=uuids,
    node_id=texts,
    status=texts,
    attempt=ints,
    task_id=bigints,
    not_before=times,
    input=jsons,
    output=jsons,
    started_at=times,
    finished_at=times,
    rest=jsonbs,
)
TASKED = partial(
    Columns,
    "tasked",
    tenant_id=texts,
    job_id=uuids,
    node_id=texts,
    attempt=ints,
    queue=texts,
    rank=smallints,
    handler=texts,
    params=jsons,
    timeout_seconds=floats,
    correlation_id=texts,
    trace_parent=texts,
)
EVENTED = partial(
    Columns,
    "evented",
    job_id=uuids,
    seq=ints,
    tenant_id=texts,
    type=texts,
    node_id=texts,
    task_id=bigints,
    data=jsons,
)
ASKED = partial(Columns, "asked", tenant_id=texts, job_id=uuids, node_id=texts)
TOLD = partial(Columns, "told", channel=texts, payload=texts)


class NewJob(NamedTuple):
    """What the row of a new job has beside its state."""

    workflow_id: str
    workflow_version: int
    labels: dict[str, str] | None = None
    callback: dict[str, Json] | None = None


@dataclass(slots=True)
class Batch:
    """The rows of one write statement."""

    made: Columns = field(default_factory=MADE)
    moved: Columns = field(default_factory=MOVED)
    born: Columns = field(default_factory=BORN)
    noded: Columns = field(default_factory=NODED)
    tasked: Columns = field(default_factory=TASKED)
    evented: Columns = field(default_factory=EVENTED)
    asked: Columns = field(default_factory=ASKED)
    queues: set[str] = field(default_factory=set)
    closed: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    revoked_workers: set[int] = field(default_factory=set)
    wakes: bool = False
    wake_at: datetime | None = None  # the first moment at which one of the jobs wants to be looked at

    def add(self, state: JobState, changes: Changes, new: NewJob | None = None) -> None:
        """Add what was decided for one job; `new` has the other columns of a job that is being made."""
        job_id, tenant_id = state.job_id, state.tenant_id
        if new is None:
            self.moved.rows.append(_moved_row(state, changes))
        else:
            self.made.rows.append(_made_row(state, changes, new))
        for write in changes.nodes:
            if write.is_new:
                self.born.rows.append(_born_row(state, write))
            else:
                self.noded.rows.append(_noded_row(job_id, write))
        for task in changes.tasks:
            self.tasked.rows.append(_task_row(state, task))
            self.queues.add(task.queue)
        for event in changes.events:
            data = orjson.dumps(event.data)
            self.evented.rows.append(
                (job_id, event.seq, tenant_id, event.type, event.node_id, event.task_id, data)
            )
        for name in changes.more:
            self.asked.rows.append((tenant_id, job_id, name))
        if changes.closes_nodes:
            self.closed.append(job_id)
        if changes.finished_at is not None:
            self.ended.append(job_id)
        self.wakes = self.wakes or bool(changes.more) or changes.wake_at is not None
        if changes.wake_at is not None:
            self.wake_at = changes.wake_at if self.wake_at is None else min(self.wake_at, changes.wake_at)

    def parts(self) -> list[Columns]:
        """What there is to write."""
        all_parts = (self.made, self.moved, self.born, self.noded, self.tasked, self.evented, self.asked)
        return [part for part in all_parts if part.rows]

    def told(self, now: datetime) -> Columns:
        """Whom to wake: at most one notice per kind and commit, but for long lists of ids.

        Orchestrators are told in how many seconds they are needed, for nobody else will tell them.
        """
        told = TOLD()
        if self.queues:
            queues = ",".join(sorted(self.queues))
            told.rows.append((TASKS_CHANNEL, queues if len(queues) < 7000 else ""))
        if self.wakes:
            pause = "" if self.wake_at is None else f"{(self.wake_at - now).total_seconds():.3f}"
            told.rows.append((NEWS_CHANNEL, pause))
        for start in range(0, len(self.ended), IDS_PER_NOTICE):
            told.rows.append((DONE_CHANNEL, ",".join(self.ended[start : start + IDS_PER_NOTICE])))
        for worker in self.revoked_workers:
            told.rows.append((REVOKED_CHANNEL, str(worker)))
        return told


def _dumped(value: Json) -> bytes | None:
    return None if value is None else orjson.dumps(value)


def _moved_row(state: JobState, changes: Changes) -> tuple[Any, ...]:
    return (
        state.job_id,
        changes.status,
        changes.seq,
        changes.result,
        _dumped(changes.error),
        changes.wake_at,
        changes.started_at,
        changes.finished_at,
    )


def _made_row(state: JobState, changes: Changes, new: NewJob) -> tuple[Any, ...]:
    return (
        state.job_id,
        state.tenant_id,
        state.definition_id,
        new.workflow_id,
        new.workflow_version,
        changes.status,
        state.priority,
        changes.seq,
        state.input_text,
        changes.result,
        _dumped(changes.error),
        _dumped(new.labels),
        _dumped(new.callback),
        state.correlation_id,
        state.submitted_by,
        state.trace_parent,
        state.retry_of,
        state.not_before,
        state.deadline,
        changes.wake_at,
        state.created_at,
        changes.started_at,
        changes.finished_at,
    )


def _born_row(job: JobState, write: NodeWrite) -> tuple[Any, ...]:
    state = write.state
    return (
        job.job_id,
        state.node_id,
        job.tenant_id,
        state.status,
        state.attempt,
        state.parent,
        state.index,
        state.not_before,
        write.input,
        write.output,
        state.started_at,
        state.finished_at,
        _rest(state),
    )


def _noded_row(job_id: str, write: NodeWrite) -> tuple[Any, ...]:
    state = write.state
    return (
        job_id,
        state.node_id,
        state.status,
        state.attempt,
        write.task_id,
        state.not_before,
        write.input,
        write.output,
        state.started_at,
        state.finished_at,
        _rest(state),
    )


REST = ("lost", "budget_from", "skip_reason", "taken_branch", "total", "expanded", "ended", "failed", "error")


def _rest(state: NodeState) -> bytes | None:
    """What few nodes have."""
    rest = {name: value for name in REST if (value := state.__dict__[name])}
    if state.total is not None:
        rest["total"] = state.total
    return orjson.dumps(rest) if rest else None


def _task_row(job: JobState, task: TaskWrite) -> tuple[Any, ...]:
    return (
        job.tenant_id,
        job.job_id,
        task.node_id,
        task.attempt,
        task.queue,
        -job.priority,
        task.handler,
        task.params,
        task.timeout_seconds,
        job.correlation_id,
        job.trace_parent,
    )


async def write_batch(tx: Transaction, batch: Batch, owner: int | None) -> None:
    """Write all of it in one statement; open children of jobs that were cut short are closed after."""
    parts = batch.parts()
    params: dict[str, Any] = batch.told(tx.now).params()
    for part in parts:
        params |= part.params()
    await tx.execute(
        statement("write_changes", frozenset([part.name for part in parts])), owner=owner, **params
    )
    if batch.closed:
        await tx.execute(CLOSE_NODES, ids=uuids(batch.closed))
