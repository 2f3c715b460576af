"""Writing what was decided: all changes of a batch of jobs in one statement."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from cograil.model.job import Changes, ChildJob, JobState, NodeState, NodeWrite, TaskWrite
from cograil.model.workflow import Json
from cograil.store.columns import Columns, texts, uuids
from cograil.store.database import Transaction
from cograil.store.parts import ASKED, BORN, EVENTED, HELD, MADE, MOVED, NODED, TASKED, TOLD
from cograil.store.statements import statement

CLOSE_NODES = statement("close_nodes")
LINK_CHILDREN = statement("link_children")
TELL_PARENTS = statement("tell_parents")
CANCEL_CHILDREN = statement("cancel_children")

DONE_CHANNEL = "cograil_done"
NEWS_CHANNEL = "cograil_news"
TASKS_CHANNEL = "cograil_tasks"
REVOKED_CHANNEL = "cograil_revoked"
HELD_NEWS = "held"  # a limit holds something back: see whether it may go
IDS_PER_NOTICE = 200  # a payload holds at most 8,000 bytes


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
    held: Columns = field(default_factory=HELD)
    evented: Columns = field(default_factory=EVENTED)
    asked: Columns = field(default_factory=ASKED)
    queues: set[str] = field(default_factory=set)
    closed: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    links: list[tuple[str, str, str]] = field(default_factory=list)  # parent, node, child
    ended_children: list[str] = field(default_factory=list)
    orphaning: list[str] = field(default_factory=list)  # jobs whose children are told to stop
    revoked_workers: set[int] = field(default_factory=set)
    held_jobs: list[JobState] = field(default_factory=list)  # new ones under a limit of their workflow
    wakes: bool = False
    wake_at: datetime | None = None  # the first moment at which one of the jobs wants to be looked at

    def add(self, state: JobState, changes: Changes, new: NewJob | None = None) -> None:
        """Add what was decided for one job; `new` has the other columns of a job that is being made."""
        job_id, tenant_id = state.job_id, state.tenant_id
        if new is None:
            self.moved.rows.append(_moved_row(state, changes))
        else:
            self.made.rows.append(_made_row(state, changes, new))
            self.held_jobs += [state] if state.is_held else []
        for write in changes.nodes:
            if write.is_new:
                self.born.rows.append(_born_row(state, write))
            else:
                self.noded.rows.append(_noded_row(job_id, write))
        for task in changes.tasks:
            self._add_task(state, task)
        for event in changes.events:
            data = orjson.dumps(event.data)
            self.evented.rows.append(
                (job_id, event.seq, tenant_id, event.type, event.node_id, event.task_id, data)
            )
        if changes.finished_at is not None:
            self._add_end(state, changes)
        for child in changes.children:
            self._add_child(job_id, child)
        if changes.more or changes.wake_at is not None:
            self._add_wake(state, changes)

    def _add_task(self, state: JobState, task: TaskWrite) -> None:
        if task.limit is None:
            self.tasked.rows.append(_task_row(state, task))
            self.queues.add(task.queue)
        else:
            self.held.rows.append((*_task_row(state, task), *task.limit))

    def _add_wake(self, state: JobState, changes: Changes) -> None:
        self.wakes = True
        for name in changes.more:
            self.asked.rows.append((state.tenant_id, state.job_id, name))
        if changes.wake_at is not None:
            self.wake_at = changes.wake_at if self.wake_at is None else min(self.wake_at, changes.wake_at)

    def _add_end(self, state: JobState, changes: Changes) -> None:
        self.ended.append(state.job_id)
        if state.parent_job is not None:
            self.ended_children.append(state.job_id)
        if changes.closes_nodes:
            self.closed.append(state.job_id)
            if changes.cancels_children:
                self.orphaning.append(state.job_id)

    def _add_child(self, job_id: str, child: ChildJob) -> None:
        self.links.append((job_id, child.node_id, child.state.job_id))
        self.add(child.state, child.changes, NewJob(child.workflow_id, child.workflow_version))

    def parts(self) -> list[Columns]:
        """What there is to write."""
        all_parts = (
            self.made,
            self.moved,
            self.born,
            self.noded,
            self.tasked,
            self.held,
            self.evented,
            self.asked,
        )
        return [part for part in all_parts if part.rows]

    def told(self, now: datetime) -> Columns:
        """Whom to wake: at most one notice per kind and commit, but for long lists of ids.

        Orchestrators are told in how many seconds they are needed, for nobody else will tell them.
        """
        told = TOLD()
        if self.queues:
            queues = ",".join(sorted(self.queues))
            told.rows.append((TASKS_CHANNEL, queues if len(queues) < 7000 else ""))
        if self.held.rows or self.held_jobs:
            told.rows.append((NEWS_CHANNEL, HELD_NEWS))
        if self.wakes or self.ended_children or self.orphaning:
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
    """Write all of it in one statement; what few jobs need comes after.

    Open children of jobs that were cut short are closed. Child jobs and their parents learn of each other,
    and tell each other of their ends.
    """
    parts = batch.parts()
    params: dict[str, Any] = batch.told(tx.now).params()
    for part in parts:
        params |= part.params()
    await tx.execute(
        statement("write_changes", frozenset([part.name for part in parts])), owner=owner, **params
    )
    if batch.closed:
        await tx.execute(CLOSE_NODES, ids=uuids(batch.closed))
    if batch.links:
        parents, nodes, children = zip(*batch.links, strict=True)
        await tx.execute(LINK_CHILDREN, parents=uuids(parents), nodes=texts(nodes), children=uuids(children))
    if batch.ended_children:
        await tx.execute(TELL_PARENTS, ids=uuids(batch.ended_children))
    if batch.orphaning:
        await tx.execute(CANCEL_CHILDREN, ids=uuids(batch.orphaning))
