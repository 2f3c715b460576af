"""Writing what was decided: all changes of a batch of jobs in one statement."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from cograil import tracing
from cograil.model.job import Changes, ChildJob, JobState, NodeState, NodeWrite, TaskWrite
from cograil.model.workflow import Json
from cograil.store.array_params import Columns, jsonbs, texts, uuids
from cograil.store.database import Transaction
from cograil.store.statements import statement
from cograil.store.write_columns import (
    ASKED,
    AUDITED,
    BORN,
    EVENTED,
    MADE,
    MARKED,
    MOVED,
    NODED,
    OUTED,
    TASKED,
    TOLD,
)

CLOSE_NODES = statement("close_nodes")
LINK_CHILDREN = statement("link_children")
TELL_PARENTS = statement("tell_parents")
CANCEL_CHILDREN = statement("cancel_children")

DONE_CHANNEL = "cograil_done"
NEWS_CHANNEL = "cograil_news"
TASKS_CHANNEL = "cograil_tasks"
REVOKED_CHANNEL = "cograil_revoked"
ALONE_CHANNEL = "cograil_alone"  # a task that must run alone waits for a worker
HELD_NEWS = "held"  # a limit holds something back: see whether it may go
NO_LIMIT = (None, None, None, None)
RESUME_BOOST = 100  # by which such a task comes before others; a rank without it is minus the priority
# The events that are told to the world, and what they are called there.
OUT_TYPES = {
    "job_created": "cograil.job.created",
    "job_started": "cograil.job.started",
    "job_completed": "cograil.job.completed",
    "job_failed": "cograil.job.failed",
    "job_cancelled": "cograil.job.cancelled",
    "approval_requested": "cograil.job.approval_requested",
}
IDS_PER_NOTICE = 200  # a payload holds at most 8,000 bytes


class MadeRow(NamedTuple):
    """The row of a job that is being made."""

    job_id: str
    tenant_id: str
    definition_id: int
    workflow_id: str
    workflow_version: int
    status: str
    priority: int
    seq: int
    input: bytes
    result: bytes | None
    error: bytes | None
    labels: bytes | None
    callback: bytes | None
    correlation_id: str | None
    submitted_by: str | None
    trace_parent: str | None
    retry_of: str | None
    not_before: datetime | None
    deadline: datetime | None
    wake_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    waiting_for: str | None


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
    marked: Columns = field(default_factory=MARKED)
    evented: Columns = field(default_factory=EVENTED)
    outed: Columns = field(default_factory=OUTED)
    asked: Columns = field(default_factory=ASKED)
    audited: Columns = field(default_factory=AUDITED)
    queues: set[str] = field(default_factory=set)
    closed: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    links: list[tuple[str, str, str, bytes | None]] = field(default_factory=list)  # parent, node, child, keys
    ended_children: list[str] = field(default_factory=list)
    stopping: list[tuple[str, str | None]] = field(default_factory=list)  # parent, node (None: all of them)
    revoked_workers: set[int] = field(default_factory=set)
    held_jobs: list[JobState] = field(default_factory=list)  # new ones under a limit of their workflow
    has_held: bool = False  # a limit holds tasks back
    has_alone: bool = False
    over: list[tuple[JobState, Changes]] = field(default_factory=list)  # jobs that end here
    told_of: list[tuple[JobState, Changes, NewJob]] = field(default_factory=list)  # new ones, for traces
    wakes: bool = False
    wake_at: datetime | None = None  # the first moment at which one of the jobs wants to be looked at

    def add_new(self, state: JobState, changes: Changes, new: NewJob) -> MadeRow:
        """Add a job that is being made; its row."""
        row = _made_row(state, changes, new)
        self.made.rows.append(row)
        self.held_jobs += [state] if state.is_held else []
        if tracing.is_on():
            self.told_of.append((state, changes, new))
        self._add(state, changes, has_callback=new.callback is not None)
        return row

    def add(self, state: JobState, changes: Changes) -> None:
        """Add what was decided for one job."""
        self.moved.rows.append(_moved_row(state, changes))
        self._add(state, changes, has_callback=state.has_callback)

    def _add(self, state: JobState, changes: Changes, *, has_callback: bool) -> None:
        job_id, tenant_id = state.job_id, state.tenant_id
        for write in changes.nodes:
            if write.is_new:
                self.born.rows.append(_born_row(state, write))
            else:
                self.noded.rows.append(_noded_row(job_id, write))
        for task in changes.tasks:
            self._add_task(state, task, changes.seq)
        for event in changes.events:
            data = orjson.dumps(event.data)
            self.evented.rows.append(
                (job_id, event.seq, tenant_id, event.type, event.node_id, event.task_id, data)
            )
            if event.type in OUT_TYPES:
                out_type = OUT_TYPES[event.type]
                self.outed.rows.append((tenant_id, job_id, event.seq, out_type, has_callback))
        if changes.finished_at is not None:
            self._add_end(state, changes)
        self.stopping += [(job_id, node_id) for node_id in changes.stops_children]
        for child in changes.children:
            self._add_child(job_id, child)
        if changes.to_expand or changes.wake_at is not None:
            self._add_wake(state, changes)

    def _add_task(self, state: JobState, task: TaskWrite, seq: int) -> None:
        if task.limit is None and not task.is_exclusive and task.key_root is None:
            # The end of a job that is traced is told by an orchestrator.
            is_last = task.is_last and state.trace_parent is None and not tracing.is_on()
            self.tasked.rows.append((*_task_row(state, task), seq if is_last else None))
            self.queues.add(task.queue)
        else:
            self._add_marked_task(state, task)

    def _add_marked_task(self, state: JobState, task: TaskWrite) -> None:
        limit = task.limit or NO_LIMIT
        self.marked.rows.append((*_task_row(state, task), task.is_exclusive, *limit, task.key_root))
        if task.limit is not None:
            self.has_held = True
        elif task.is_exclusive:
            self.has_alone = True
        else:
            self.queues.add(task.queue)

    def _add_wake(self, state: JobState, changes: Changes) -> None:
        self.wakes = True
        for name in changes.to_expand:
            self.asked.rows.append((state.tenant_id, state.job_id, name))
        if changes.wake_at is not None:
            self.wake_at = changes.wake_at if self.wake_at is None else min(self.wake_at, changes.wake_at)

    def _add_end(self, state: JobState, changes: Changes) -> None:
        self.ended.append(state.job_id)
        self.over.append((state, changes))
        if state.parent_job is not None:
            self.ended_children.append(state.job_id)
        if changes.closes_nodes:
            self.closed.append(state.job_id)
            if changes.cancels_children:
                self.stopping.append((state.job_id, None))

    def _add_child(self, job_id: str, child: ChildJob) -> None:
        self.links.append((job_id, child.node_id, child.state.job_id, child.state.key_roots))
        self.add_new(child.state, child.changes, NewJob(child.workflow_id, child.workflow_version))

    def parts(self) -> list[Columns]:
        """What there is to write."""
        all_parts = (
            self.made,
            self.moved,
            self.born,
            self.noded,
            self.tasked,
            self.marked,
            self.evented,
            self.outed,
            self.asked,
            self.audited,
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
        if self.has_alone:
            told.rows.append((ALONE_CHANNEL, ""))
        if self.has_held or self.held_jobs:
            told.rows.append((NEWS_CHANNEL, HELD_NEWS))
        if self.wakes or self.ended_children or self.stopping:
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
        changes.waiting_for,
    )


def _made_row(state: JobState, changes: Changes, new: NewJob) -> MadeRow:
    return MadeRow(
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
        changes.waiting_for,
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


REST = (
    "lost",
    "uncounted_attempts",
    "skip_reason",
    "taken_branch",
    "total",
    "expanded",
    "ended",
    "failed",
    "error",
)


def _rest(state: NodeState) -> bytes | None:
    """What few nodes have."""
    is_plain = not (
        state.lost or state.uncounted_attempts or state.skip_reason or state.taken_branch or state.error
    )
    if is_plain and state.total is None:
        return None
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
        -job.priority - RESUME_BOOST * task.is_resumed,
        task.handler,
        task.params,
        task.timeout_seconds,
        job.correlation_id,
        job.trace_parent,
    )


async def rehearse(tx: Transaction) -> None:
    """Write nothing, in the ways in which most passes write."""
    await _write(tx, [MOVED(), BORN(), NODED(), TASKED(), EVENTED()], TOLD(), None)
    await _write(tx, [MOVED(), NODED(), EVENTED(), OUTED()], TOLD(), None)


async def _write(tx: Transaction, parts: list[Columns], told: Columns, owner: int | None) -> None:
    params: dict[str, Any] = told.params()
    for part in parts:
        params |= part.params()
    await tx.execute(
        statement("write_changes", frozenset([part.name for part in parts])), owner=owner, **params
    )


async def write_batch(tx: Transaction, batch: Batch, owner: int | None) -> None:
    """Write all of it in one statement; what few jobs need comes after.

    Open children of jobs that were cut short are closed. Child jobs and their parents learn of each other,
    and tell each other of their ends.
    """
    await _write(tx, batch.parts(), batch.told(tx.now), owner)
    if batch.closed:
        await tx.execute(CLOSE_NODES, ids=uuids(batch.closed))
    if batch.stopping:  # before their nodes have new ones
        stopped, places = zip(*batch.stopping, strict=True)
        await tx.execute(CANCEL_CHILDREN, parents=uuids(stopped), nodes=texts(places))
    if batch.links:
        parents, nodes, children, roots = zip(*batch.links, strict=True)
        links = {"parents": uuids(parents), "nodes": texts(nodes), "children": uuids(children)}
        await tx.execute(LINK_CHILDREN, **links, roots=jsonbs(roots))
    if batch.ended_children:
        await tx.execute(TELL_PARENTS, ids=uuids(batch.ended_children))
