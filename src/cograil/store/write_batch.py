"""Writes the changes of a batch of jobs in one statement."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from cograil import tracing
from cograil.model.job import Changes, JobState, NodeState, NodeWrite, PreparedChildJob, TaskWrite
from cograil.model.workflow import Json
from cograil.store.array_params import Columns, jsonbs, texts, uuids
from cograil.store.database import Transaction
from cograil.store.statements import statement
from cograil.store.write_columns import (
    AUDIT,
    EVENTS,
    INBOX,
    NEW_JOBS,
    NEW_NODES,
    NOTIFICATIONS,
    OUTBOX,
    RESTRICTED_TASKS,
    TASKS,
    UPDATED_JOBS,
    UPDATED_NODES,
)

CLOSE_NODES = statement("close_nodes")
LINK_CHILDREN = statement("link_children")
REPORT_TO_PARENTS = statement("report_to_parents")
CANCEL_CHILDREN = statement("cancel_children")

DONE_CHANNEL = "cograil_done"
NEWS_CHANNEL = "cograil_news"
TASKS_CHANNEL = "cograil_tasks"
REVOKED_CHANNEL = "cograil_revoked"
ALONE_CHANNEL = "cograil_alone"  # an exclusive task waits for a worker
HELD_NEWS = "held"  # payload: a limit holds tasks or jobs back, check whether some may start
NO_LIMIT = (None, None, None, None)
RESUME_BOOST = 100  # a resumed task goes this far ahead; the rank of any other task is minus its priority
# The events that callbacks and subscriptions receive, and their public type names.
OUTBOX_TYPES = {
    "job_created": "cograil.job.created",
    "job_started": "cograil.job.started",
    "job_completed": "cograil.job.completed",
    "job_failed": "cograil.job.failed",
    "job_cancelled": "cograil.job.cancelled",
    "approval_requested": "cograil.job.approval_requested",
}
IDS_PER_NOTIFICATION = 200  # a payload holds at most 8,000 bytes


class NewJobRow(NamedTuple):
    """The row of a new job, as it is inserted."""

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

    @property
    def owner(self) -> None:
        """A new job has no owner."""


class JobAttributes(NamedTuple):
    """What the row of a new job holds beside its state."""

    workflow_id: str
    workflow_version: int
    labels: dict[str, str] | None = None
    callback: dict[str, Json] | None = None


@dataclass(slots=True)
class WriteBatch:
    """The rows of one write statement."""

    new_jobs: Columns = field(default_factory=NEW_JOBS)
    updated_jobs: Columns = field(default_factory=UPDATED_JOBS)
    new_nodes: Columns = field(default_factory=NEW_NODES)
    updated_nodes: Columns = field(default_factory=UPDATED_NODES)
    tasks: Columns = field(default_factory=TASKS)
    restricted_tasks: Columns = field(default_factory=RESTRICTED_TASKS)
    events: Columns = field(default_factory=EVENTS)
    outbox: Columns = field(default_factory=OUTBOX)
    inbox: Columns = field(default_factory=INBOX)
    audit: Columns = field(default_factory=AUDIT)
    queues: set[str] = field(default_factory=set)
    cut_short: list[str] = field(default_factory=list)  # jobs that ended with open nodes
    ended: list[str] = field(default_factory=list)
    child_links: list[tuple[str, str, str, bytes | None]] = field(
        default_factory=list
    )  # parent, node, child, keys
    ended_children: list[str] = field(default_factory=list)
    children_to_cancel: list[tuple[str, str | None]] = field(default_factory=list)  # parent, node (None: all)
    revoked_workers: set[int] = field(default_factory=set)
    held_jobs: list[JobState] = field(default_factory=list)  # new jobs under a limit of their workflow
    has_held: bool = False  # a limit holds tasks back
    has_exclusive: bool = False  # some of the tasks must run alone
    finished: list[tuple[JobState, Changes]] = field(default_factory=list)  # jobs that this batch ends
    traced: list[tuple[JobState, Changes, JobAttributes]] = field(
        default_factory=list
    )  # new jobs, for their spans
    wakes: bool = False  # an orchestrator has to look at one of the jobs again
    wake_at: datetime | None = None  # the earliest time at which one of the jobs is due

    def add_new(self, state: JobState, changes: Changes, attributes: JobAttributes) -> NewJobRow:
        """Add a new job and return its row."""
        row = _new_job_row(state, changes, attributes)
        self.new_jobs.rows.append(row)
        self.held_jobs += [state] if state.is_held else []
        if tracing.is_on():
            self.traced.append((state, changes, attributes))
        self._add(state, changes, has_callback=attributes.callback is not None)
        return row

    def add(self, state: JobState, changes: Changes) -> None:
        """Add the changes of an existing job."""
        self.updated_jobs.rows.append(_updated_job_row(state, changes))
        self._add(state, changes, has_callback=state.has_callback)

    def _add(self, state: JobState, changes: Changes, *, has_callback: bool) -> None:
        job_id, tenant_id = state.job_id, state.tenant_id
        for write in changes.nodes:
            if write.is_new:
                self.new_nodes.rows.append(_new_node_row(state, write))
            else:
                self.updated_nodes.rows.append(_updated_node_row(job_id, write))
        for task in changes.tasks:
            self._add_task(state, task, changes.seq)
        for event in changes.events:
            data = orjson.dumps(event.data)
            self.events.rows.append(
                (job_id, event.seq, tenant_id, event.type, event.node_id, event.task_id, data)
            )
            if event.type in OUTBOX_TYPES:
                out_type = OUTBOX_TYPES[event.type]
                self.outbox.rows.append((tenant_id, job_id, event.seq, out_type, has_callback))
        if changes.finished_at is not None:
            self._add_end(state, changes)
        self.children_to_cancel += [(job_id, node_id) for node_id in changes.stops_children]
        for child in changes.children:
            self._add_child(job_id, child)
        if changes.to_expand or changes.wake_at is not None:
            self._add_wake(state, changes)

    def _add_task(self, state: JobState, task: TaskWrite, seq: int) -> None:
        if task.limit is None and not task.is_exclusive and task.key_root is None:
            # An orchestrator ends a traced job, because it exports the span.
            is_last = task.is_last and state.trace_parent is None and not tracing.is_on()
            self.tasks.rows.append((*_task_row(state, task), seq if is_last else None))
            self.queues.add(task.queue)
        else:
            self._add_restricted_task(state, task)

    def _add_restricted_task(self, state: JobState, task: TaskWrite) -> None:
        limit = task.limit or NO_LIMIT
        self.restricted_tasks.rows.append((*_task_row(state, task), task.is_exclusive, *limit, task.key_root))
        if task.limit is not None:
            self.has_held = True
        elif task.is_exclusive:
            self.has_exclusive = True
        else:
            self.queues.add(task.queue)

    def _add_wake(self, state: JobState, changes: Changes) -> None:
        self.wakes = True
        for name in changes.to_expand:
            self.inbox.rows.append((state.tenant_id, state.job_id, name))
        if changes.wake_at is not None:
            self.wake_at = changes.wake_at if self.wake_at is None else min(self.wake_at, changes.wake_at)

    def _add_end(self, state: JobState, changes: Changes) -> None:
        self.ended.append(state.job_id)
        self.finished.append((state, changes))
        if state.parent_job is not None:
            self.ended_children.append(state.job_id)
        if changes.closes_nodes:
            self.cut_short.append(state.job_id)
            if changes.cancels_children:
                self.children_to_cancel.append((state.job_id, None))

    def _add_child(self, job_id: str, child: PreparedChildJob) -> None:
        self.child_links.append((job_id, child.node_id, child.state.job_id, child.state.key_roots))
        self.add_new(child.state, child.changes, JobAttributes(child.workflow_id, child.workflow_version))

    def parts(self) -> list[Columns]:
        """Return the parts of the statement that have rows."""
        all_parts = (
            self.new_jobs,
            self.updated_jobs,
            self.new_nodes,
            self.updated_nodes,
            self.tasks,
            self.restricted_tasks,
            self.events,
            self.outbox,
            self.inbox,
            self.audit,
        )
        return [part for part in all_parts if part.rows]

    def notifications(self, now: datetime) -> Columns:
        """Return the notifications to send: at most one per channel, except for long lists of job ids.

        The payload for orchestrators says in how many seconds the next job is due.
        """
        notifications = NOTIFICATIONS()
        add = notifications.rows.append
        if self.queues:
            queues = ",".join(sorted(self.queues))
            add((TASKS_CHANNEL, queues if len(queues) < 7000 else ""))
        if self.has_exclusive:
            add((ALONE_CHANNEL, ""))
        if self.has_held or self.held_jobs:
            add((NEWS_CHANNEL, HELD_NEWS))
        if self.wakes or self.ended_children or self.children_to_cancel:
            delay = "" if self.wake_at is None else f"{(self.wake_at - now).total_seconds():.3f}"
            add((NEWS_CHANNEL, delay))
        for start in range(0, len(self.ended), IDS_PER_NOTIFICATION):
            add((DONE_CHANNEL, ",".join(self.ended[start : start + IDS_PER_NOTIFICATION])))
        for worker in self.revoked_workers:
            add((REVOKED_CHANNEL, str(worker)))
        return notifications


def _dumps(value: Json) -> bytes | None:
    return None if value is None else orjson.dumps(value)


def _updated_job_row(state: JobState, changes: Changes) -> tuple[Any, ...]:
    return (
        state.job_id,
        changes.status,
        changes.seq,
        changes.result,
        _dumps(changes.error),
        changes.wake_at,
        changes.started_at,
        changes.finished_at,
        changes.waiting_for,
    )


def _new_job_row(state: JobState, changes: Changes, attributes: JobAttributes) -> NewJobRow:
    return NewJobRow(
        state.job_id,
        state.tenant_id,
        state.definition_id,
        attributes.workflow_id,
        attributes.workflow_version,
        changes.status,
        state.priority,
        changes.seq,
        state.input_text,
        changes.result,
        _dumps(changes.error),
        _dumps(attributes.labels),
        _dumps(attributes.callback),
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


def _new_node_row(job: JobState, write: NodeWrite) -> tuple[Any, ...]:
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


def _updated_node_row(job_id: str, write: NodeWrite) -> tuple[Any, ...]:
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


RARE_COLUMNS = (
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
    """Return the columns that few nodes use as JSON text; None when all of them have their defaults."""
    is_plain = not (
        state.lost or state.uncounted_attempts or state.skip_reason or state.taken_branch or state.error
    )
    if is_plain and state.total is None:
        return None
    rest = {name: value for name in RARE_COLUMNS if (value := state.__dict__[name])}
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
    """Prepare the two most common forms of the statement by writing nothing."""
    await _write(tx, [UPDATED_JOBS(), NEW_NODES(), UPDATED_NODES(), TASKS(), EVENTS()], NOTIFICATIONS(), None)
    await _write(tx, [UPDATED_JOBS(), UPDATED_NODES(), EVENTS(), OUTBOX()], NOTIFICATIONS(), None)


async def _write(tx: Transaction, parts: list[Columns], notifications: Columns, owner: int | None) -> None:
    params: dict[str, Any] = notifications.params()
    for part in parts:
        params |= part.params()
    await tx.execute(
        statement("write_changes", frozenset([part.name for part in parts])), owner=owner, **params
    )


async def write_batch(tx: Transaction, batch: WriteBatch, owner: int | None) -> None:
    """Write the batch in one statement, then run the statements that few batches need.

    These close the open children of jobs that ended early, cancel child jobs, link child jobs with their
    parents, and report ended child jobs to their parents.
    """
    await _write(tx, batch.parts(), batch.notifications(tx.now), owner)
    if batch.cut_short:
        await tx.execute(CLOSE_NODES, ids=uuids(batch.cut_short))
    if batch.children_to_cancel:  # before the same nodes get new children
        parents, nodes = zip(*batch.children_to_cancel, strict=True)
        await tx.execute(CANCEL_CHILDREN, parents=uuids(parents), nodes=texts(nodes))
    if batch.child_links:
        parents, nodes, children, roots = zip(*batch.child_links, strict=True)
        links = {"parents": uuids(parents), "nodes": texts(nodes), "children": uuids(children)}
        await tx.execute(LINK_CHILDREN, **links, roots=jsonbs(roots))
    if batch.ended_children:
        await tx.execute(REPORT_TO_PARENTS, ids=uuids(batch.ended_children))
