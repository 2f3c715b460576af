"""Tasks and the processes that hold them: claim, report, heartbeat, release, checkpoint, steps, progress."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import orjson

from cograil import clock
from cograil.errors import CheckpointOutOfOrder
from cograil.model.app_events import AppEvent
from cograil.model.outcome import Completed, Failed, WorkItem
from cograil.store.array_params import Columns, bigints, ints, jsons, texts, uuids
from cograil.store.database import Transaction
from cograil.store.scan_cursors import ClaimCursors
from cograil.store.statements import statement

CLAIM_TASKS = statement("claim_tasks")
CLAIM_ALONE = statement("claim_alone")
REPORT_TASKS = statement("report_tasks")
END_JOBS = statement("end_jobs")
FIND_REPORTED = statement("find_reported")
RELEASE_TASKS = statement("release_tasks")
HEARTBEAT_WORKER = statement("heartbeat_worker")
SAVE_CHECKPOINT = statement("save_checkpoint")
ADD_ATTEMPT_EVENT = statement("add_attempt_event")
SAVE_PROGRESS = statement("save_progress")
SAVE_STEPS = statement("save_steps")
REPORT_IN_TRANSACTION = statement("report_in_transaction")
AWAIT_TASK = statement("await_task")
REGISTER_PROCESS = statement("register_process")
LEAVE_PROCESS = statement("leave_process")
NOTE_WORKER_ERROR = statement("note_worker_error")
TICK_ORCHESTRATOR = statement("tick_orchestrator")

LAST_TASKS = partial(Columns, "last", id=bigints, fence=ints, output=jsons)
REPORTS = partial(
    Columns,
    "report",
    id=bigints,
    fence=ints,
    job_id=uuids,
    node_id=texts,
    attempt=ints,
    output=jsons,
    error=jsons,
)
STEPS = partial(
    Columns,
    "step",
    id=bigints,
    fence=ints,
    job_id=uuids,
    node_id=texts,
    attempt=ints,
    name=texts,
    output=jsons,
)


@dataclass(frozen=True, slots=True)
class Slots:
    """The handlers and free slots of a worker, for coroutines, threads and child processes."""

    async_handlers: list[str]
    thread_handlers: list[str]
    async_slots: int
    thread_slots: int
    queues: list[str] | None = None
    process_handlers: list[str] = field(default_factory=list)
    process_slots: int = 0
    async_max: list[int | None] = field(
        default_factory=list
    )  # per async handler, where it is less than the slots

    @property
    def handlers(self) -> list[str]:
        """Handlers of every kind."""
        return [*self.async_handlers, *self.thread_handlers, *self.process_handlers]

    def each(self) -> tuple[tuple[str, list[str], int], ...]:
        """Each kind with its handlers and free slots."""
        return (
            ("async", self.async_handlers, self.async_slots),
            ("thread", self.thread_handlers, self.thread_slots),
            ("process", self.process_handlers, self.process_slots),
        )

    @property
    def total(self) -> int:
        """Number of free slots of every kind."""
        return self.async_slots + self.thread_slots + self.process_slots


class Step(NamedTuple):
    """One completed step of an attempt; `output` is JSON text."""

    item: WorkItem
    name: str
    output: bytes


class Report(NamedTuple):
    """The outcome of one attempt, as its worker reports it."""

    item: WorkItem
    outcome: Completed | Failed


class EndedJob(NamedTuple):
    """A job that ended with its last task. `wait_seconds` is None when the task was not the first attempt."""

    task_id: int
    wait_seconds: float | None
    run_seconds: float


@dataclass(frozen=True, slots=True)
class WorkerHeartbeat:
    """The state of a worker according to the database."""

    is_alive: bool
    fences: Mapping[int, int]  # fence by task id, of the tasks it runs
    has_ready_tasks: bool
    has_alone_tasks: bool = False  # exclusive tasks that this worker can run once it is idle
    makes_room: bool = False  # this worker must drain for one of them: it claims nothing until it is idle

    @property
    def task_ids(self) -> frozenset[int]:
        """The tasks it runs."""
        return frozenset(self.fences)


@dataclass(frozen=True, slots=True)
class Tick:
    """The result of the periodic statement of an orchestrator."""

    rescued: int
    has_news: bool
    wake_at: datetime | None
    now: datetime
    has_held: bool = False  # a limit holds tasks or jobs back
    dead: int = 0  # processes whose lease ended
    epoch: int = 0  # changes with a restore or a promotion of the server

    @property
    def has_work(self) -> bool:
        """Whether some job has inbox rows or is due."""
        return self.has_news or (self.wake_at is not None and self.wake_at <= self.now)


async def register_process(
    tx: Transaction,
    kind: str,
    name: str,
    lease_seconds: float,
    *,
    queues: list[str] | None = None,
    handlers: list[str] | None = None,
    info: dict[str, Any] | None = None,
) -> int:
    """Register this start of a process and return its id."""
    params = {"kind": kind, "name": name, "lease": lease_seconds, "queues": queues, "handlers": handlers}
    rows = await tx.fetch(REGISTER_PROCESS, **params, info=orjson.dumps(info or {}).decode())
    ((process_id,),) = rows
    return int(process_id)


async def leave_process(tx: Transaction, process: int, state: str) -> None:
    """Record that this process is draining or has stopped."""
    await tx.execute(LEAVE_PROCESS, process=process, state=state)


async def note_worker_error(tx: Transaction, process: int, error: str | None) -> None:
    """Store why the worker beside this orchestrator could not start; None when it runs."""
    await tx.execute(NOTE_WORKER_ERROR, process=process, error=error)


async def tick_orchestrator(
    tx: Transaction,
    process: int,
    lease_seconds: float,
    grace_seconds: float,
    excluded: Sequence[str] = (),
    *,
    is_steady: bool = True,
) -> Tick:
    """Renew the lease of the orchestrator, rescue the tasks of dead workers, and report whether there is work.

    `excluded` jobs do not count as work. With `is_steady` False no process is declared dead: the database was
    unreachable a short while ago, perhaps for the other processes too.
    """
    params = {"process": process, "lease": lease_seconds, "grace": grace_seconds, "is_steady": is_steady}
    sent_at = time.monotonic()
    (row,) = await tx.fetch_named(
        TICK_ORCHESTRATOR, **params, excluded=uuids(list(excluded)), offset=clock.offset_seconds()
    )
    clock.synchronize(row.now, sent_at)
    return Tick(row.rescued, row.has_news, row.wake_at, row.now, row.has_held, row.dead, row.epoch)


async def claim_tasks(
    tx: Transaction, worker: int, slots: Slots, cursors: ClaimCursors | None = None
) -> list[WorkItem]:
    """Claim due tasks after these cursors; return nothing when the lease of the worker was lost."""
    cursors = cursors or ClaimCursors()
    after = {kind: cursors.after(kind) for kind in ("async", "thread", "process")}
    rows = await tx.fetch(
        CLAIM_TASKS,
        worker=worker,
        queues=slots.queues,
        async_handlers=slots.async_handlers,
        async_max=slots.async_max,
        thread_handlers=slots.thread_handlers,
        async_slots=slots.async_slots,
        thread_slots=slots.thread_slots,
        process_handlers=slots.process_handlers,
        process_slots=slots.process_slots,
        **{f"{kind}_rank": rank for kind, (rank, _) in after.items()},
        **{f"{kind}_id": task_id for kind, (_, task_id) in after.items()},
    )
    claims = [(rank, _work_item(columns)) for *columns, rank in rows]
    for kind, handlers, free in slots.each():
        positions = [(rank, item.task_id) for rank, item in claims if item.handler in handlers]
        cursors.record(kind, free, positions)
    return [item for _, item in claims]


async def claim_exclusive(tx: Transaction, worker: int, slots: Slots) -> list[WorkItem]:
    """Claim one exclusive task; return nothing when this worker runs a task, or its lease was lost."""
    rows = await tx.fetch(CLAIM_ALONE, worker=worker, queues=slots.queues, handlers=slots.handlers)
    return [_work_item(row) for row in rows]


def _work_item(row: Sequence[Any]) -> WorkItem:
    """Build the item from a row of `claim_tasks`; its columns are in the order of the fields."""
    task, fence, job, node, attempt, handler, params, timeout, checkpoint, *rest, steps, is_last, root = row
    data = None if checkpoint is None else orjson.loads(checkpoint)
    rest += (None if steps is None else orjson.loads(steps), is_last, root)
    return WorkItem(task, fence, job, node, attempt, handler, orjson.loads(params), timeout, data, *rest)


async def report_tasks(tx: Transaction, worker: int, name: str, reports: Sequence[Report]) -> set[int]:
    """Record these outcomes and return the task ids that counted. The others were late."""
    columns = REPORTS()
    columns.rows = [_report_row(report) for report in reports]
    rows = await tx.fetch(REPORT_TASKS, worker=worker, name=name, **columns.params())
    return {task_id for (task_id,) in rows}


async def end_jobs(
    tx: Transaction, worker: int, name: str, done: Sequence[tuple[WorkItem, bytes]]
) -> list[EndedJob]:
    """Record the outputs of these last tasks and end their jobs; return the jobs that ended.

    The other tasks are unchanged: report them with `report_tasks`.
    """
    last = LAST_TASKS()
    last.rows = [(item.task_id, item.fence, output) for item, output in done]
    return [EndedJob(*row) for row in await tx.fetch(END_JOBS, worker=worker, name=name, **last.params())]


def _report_row(report: Report) -> tuple[Any, ...]:
    item, outcome = report.item, report.outcome
    output = error = None
    if isinstance(outcome, Completed):
        output = outcome.output
    else:
        fields = {"code": outcome.code, "message": outcome.message, "retryable": outcome.retryable}
        if outcome.after_seconds is not None:
            fields["after"] = outcome.after_seconds
        error = orjson.dumps(fields | {"details": outcome.details})
    return (item.task_id, item.fence, item.job_id, item.node_id, item.attempt, output, error)


async def report_in_transaction(
    tx: Transaction, worker: int, name: str, item: WorkItem, output: bytes
) -> bool:
    """Record this result in the transaction of the handler; return False when the attempt was lost."""
    params = {"task": item.task_id, "fence": item.fence, "worker": worker, "name": name}
    ((is_counted,),) = await tx.fetch(REPORT_IN_TRANSACTION, **params, output=output.decode())
    return bool(is_counted)


async def await_task(tx: Transaction, worker: int, item: WorkItem) -> bool:
    """Wait for the lock of the task; return whether this worker still holds the attempt."""
    return bool(await tx.fetch(AWAIT_TASK, task=item.task_id, fence=item.fence, worker=worker))


async def find_reported(tx: Transaction, reports: Sequence[Report]) -> set[int]:
    """Return the task ids whose report is already recorded, after a commit whose answer was lost."""
    keys = [{"id": item.task_id, "fence": item.fence, "job_id": item.job_id} for item, _ in reports]
    return {task_id for (task_id,) in await tx.fetch(FIND_REPORTED, reports=orjson.dumps(keys).decode())}


async def release_tasks(tx: Transaction, worker: int, fences: Mapping[int, int]) -> set[int]:
    """Return these tasks unfinished if they still have these fences; return the ids that this worker held."""
    ids, numbers = list(fences), list(fences.values())
    rows = await tx.fetch(RELEASE_TASKS, worker=worker, ids=ids, fences=numbers)
    return {task_id for task_id, _ in rows}


async def heartbeat_worker(
    tx: Transaction,
    worker: int,
    name: str,
    lease_seconds: float,
    info: dict[str, Any],
    handlers: Sequence[str] | None = None,
) -> WorkerHeartbeat:
    """Extend the lease. When `is_alive` is False the lease was lost, and with it every attempt of this worker.

    `handlers` are its current handlers, when some were added after its start.
    """
    params = {"worker": worker, "name": name, "lease": lease_seconds, "info": orjson.dumps(info).decode()}
    params["handlers"] = None if handlers is None else list(handlers)
    sent_at = time.monotonic()
    (row,) = await tx.fetch_named(HEARTBEAT_WORKER, **params)
    clock.synchronize(row.now, sent_at)
    fences = dict(zip(row.task_ids, row.fences, strict=True))
    return WorkerHeartbeat(row.is_alive, fences, row.has_ready_tasks, row.has_alone_tasks, row.makes_room)


def _attempt_params(worker: int, name: str, item: WorkItem) -> dict[str, Any]:
    """Return the parameters that identify the attempt and the worker that claims to hold it."""
    return {
        "worker": worker,
        "name": name,
        "task": item.task_id,
        "fence": item.fence,
        "job": item.job_id,
        "node": item.node_id,
        "attempt": item.attempt,
    }


async def save_checkpoint(
    tx: Transaction,
    worker: int,
    name: str,
    item: WorkItem,
    phase: str,
    data: bytes,
    phase_index: int | None = None,
) -> bool:
    """Save this checkpoint for the next attempt; return False when the attempt was lost.

    Raises CheckpointOutOfOrder when the stored checkpoint is of a later phase.
    """
    rows = await tx.fetch(
        SAVE_CHECKPOINT,
        **_attempt_params(worker, name, item),
        phase=phase,
        phase_index=phase_index,
        data=data.decode(),
    )
    for (number,) in rows:
        if number is None:
            raise CheckpointOutOfOrder(phase_index)
    return bool(rows)


async def add_attempt_event(tx: Transaction, worker: int, name: str, item: WorkItem, event: AppEvent) -> bool:
    """Write this event to the outbox with its checkpoint; return False when the attempt was lost."""
    rows = await tx.fetch(
        ADD_ATTEMPT_EVENT,
        **_attempt_params(worker, name, item),
        mark=event.mark,
        type=event.type,
        subject=event.subject,
        data=event.data.decode(),
        checkpoint=None if event.checkpoint is None else event.checkpoint.decode(),
        phase=event.phase,
    )
    return bool(rows)


async def save_steps(tx: Transaction, worker: int, name: str, steps: Sequence[Step]) -> set[int]:
    """Save these steps for later attempts; return the positions that count. The others' attempts were lost."""
    columns = STEPS()
    columns.rows = [
        (item.task_id, item.fence, item.job_id, item.node_id, item.attempt, step, output)
        for item, step, output in steps
    ]
    rows = await tx.fetch(SAVE_STEPS, worker=worker, name=name, **columns.params())
    return {position for (position,) in rows}


async def save_progress(tx: Transaction, worker: int, updates: Sequence[dict[str, Any]]) -> None:
    """Store the progress of attempts and their log lines."""
    await tx.execute(SAVE_PROGRESS, worker=worker, updates=orjson.dumps(list(updates)).decode())
