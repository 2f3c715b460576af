"""Writing what was decided: all changes of a batch of jobs in one statement."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import orjson

from cograil.model.job import Changes, EventWrite, JobState, NodeWrite, TaskWrite
from cograil.model.workflow import Json
from cograil.store.columns import Columns, array, json, plain, text, times
from cograil.store.database import Transaction
from cograil.store.statements import statement

CLOSE_NODES = statement("close_nodes")
WRITE_CHANGES = statement("write_changes")

DONE_CHANNEL = "cograil_done"
NEWS_CHANNEL = "cograil_news"
TASKS_CHANNEL = "cograil_tasks"
REVOKED_CHANNEL = "cograil_revoked"
IDS_PER_NOTICE = 200  # a payload holds at most 8,000 bytes

JOBS = partial(
    Columns,
    "job_",
    id=plain,
    status=plain,
    seq=plain,
    result=json,
    error=json,
    wake_at=times,
    started_at=times,
    finished_at=times,
)
NODES = partial(
    Columns,
    "node_",
    job_id=plain,
    node_id=text,
    tenant_id=text,
    status=plain,
    attempt=plain,
    lost=plain,
    budget_from=plain,
    task_id=plain,
    parent=text,
    idx=plain,
    not_before=times,
    skip_reason=plain,
    taken_branch=text,
    total=plain,
    expanded=plain,
    ended=plain,
    failed=plain,
    input=json,
    output=json,
    error=json,
    started_at=times,
    finished_at=times,
)
TASKS = partial(
    Columns,
    "task_",
    tenant_id=text,
    job_id=plain,
    node_id=text,
    attempt=plain,
    queue=text,
    rank=plain,
    handler=text,
    params=json,
    timeout_seconds=plain,
    correlation_id=text,
    trace_parent=text,
)
EVENTS = partial(
    Columns,
    "event_",
    job_id=plain,
    seq=plain,
    tenant_id=text,
    type=plain,
    node_id=text,
    task_id=plain,
    data=json,
)


@dataclass(slots=True)
class Batch:
    """The rows of one write statement."""

    new_jobs: list[dict[str, Any]] = field(default_factory=list)
    jobs: Columns = field(default_factory=JOBS)
    nodes: Columns = field(default_factory=NODES)
    tasks: Columns = field(default_factory=TASKS)
    events: Columns = field(default_factory=EVENTS)
    more: list[dict[str, Any]] = field(default_factory=list)
    queues: set[str] = field(default_factory=set)
    closed: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    revoked_workers: set[int] = field(default_factory=set)
    wakes: bool = False
    wake_at: datetime | None = None  # the first moment at which one of the jobs wants to be looked at

    def add(self, state: JobState, changes: Changes, new: dict[str, Any] | None = None) -> None:
        """Add what was decided for one job; `new` has the other columns of a job that is being made."""
        if new is None:
            self.jobs.rows.append(_job_row(state, changes))
        else:
            self.new_jobs.append(new | _new_job_row(state, changes))
        self.nodes.rows += [_node_row(state, write) for write in changes.nodes]
        self.tasks.rows += [_task_row(state, task) for task in changes.tasks]
        self.events.rows += [_event_row(state, event) for event in changes.events]
        self.queues.update(task.queue for task in changes.tasks)
        for name in changes.more:
            self.more.append({"job_id": state.job_id, "tenant_id": state.tenant_id, "node_id": name})
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
        if self.queues:
            queues = ",".join(sorted(self.queues))
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


def _dumped(value: Json) -> bytes | None:
    return None if value is None else orjson.dumps(value)


def _job_row(state: JobState, changes: Changes) -> tuple[Any, ...]:
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


def _new_job_row(state: JobState, changes: Changes) -> dict[str, Any]:
    return {
        "id": state.job_id,
        "status": changes.status,
        "seq": changes.seq,
        "result": None if changes.result is None else orjson.Fragment(changes.result),
        "error": changes.error,
        "wake_at": changes.wake_at,
        "started_at": changes.started_at,
        "finished_at": changes.finished_at,
    }


def _node_row(job: JobState, write: NodeWrite) -> tuple[Any, ...]:
    state = write.state
    return (
        job.job_id,
        state.node_id,
        job.tenant_id,
        state.status,
        state.attempt,
        state.lost,
        state.budget_from,
        write.task_id,
        state.parent,
        state.index,
        state.not_before,
        state.skip_reason,
        state.taken_branch,
        state.total,
        state.expanded,
        state.ended,
        state.failed,
        write.input,
        write.output,
        _dumped(state.error),
        state.started_at,
        state.finished_at,
    )


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


def _event_row(job: JobState, event: EventWrite) -> tuple[Any, ...]:
    data = orjson.dumps(event.data)
    return (job.job_id, event.seq, job.tenant_id, event.type, event.node_id, event.task_id, data)


async def write_batch(tx: Transaction, batch: Batch, owner: int | None) -> None:
    """Write all of it in one statement; open children of jobs that were cut short are closed after."""
    await tx.execute(
        WRITE_CHANGES,
        owner=owner,
        new_jobs=orjson.dumps(batch.new_jobs).decode(),
        more=orjson.dumps(batch.more).decode(),
        notices=orjson.dumps(batch.notices(tx.now)).decode(),
        **batch.jobs.params(),
        **batch.nodes.params(),
        **batch.tasks.params(),
        **batch.events.params(),
    )
    if batch.closed:
        await tx.execute(CLOSE_NODES, ids=array(batch.closed))
