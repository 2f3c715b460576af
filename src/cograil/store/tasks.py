"""Tasks and the processes that hold them: claim, report, pulse, release, checkpoint, steps, progress."""

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
from cograil.model.outcome import Completed, Failed, WorkItem
from cograil.model.telling import Event
from cograil.store.columns import Columns, bigints, ints, jsons, texts, uuids
from cograil.store.database import Transaction
from cograil.store.places import ClaimPlaces
from cograil.store.statements import statement

CLAIM_TASKS = statement("claim_tasks")
CLAIM_ALONE = statement("claim_alone")
REPORT_TASKS = statement("report_tasks")
END_JOBS = statement("end_jobs")
FIND_REPORTED = statement("find_reported")
RELEASE_TASKS = statement("release_tasks")
PULSE_WORKER = statement("pulse_worker")
SAVE_CHECKPOINT = statement("save_checkpoint")
TELL_OF_ATTEMPT = statement("tell_of_attempt")
SAVE_PROGRESS = statement("save_progress")
SAVE_STEPS = statement("save_steps")
REPORT_HERE = statement("report_here")
AWAIT_TASK = statement("await_task")
REGISTER_PROCESS = statement("register_process")
LEAVE_PROCESS = statement("leave_process")
NOTE_WORKER_ERROR = statement("note_worker_error")
TICK_ORCHESTRATOR = statement("tick_orchestrator")

LAST = partial(Columns, "last", id=bigints, fence=ints, output=jsons)
GIVEN = partial(
    Columns,
    "given",
    id=bigints,
    fence=ints,
    job_id=uuids,
    node_id=texts,
    attempt=ints,
    output=jsons,
    error=jsons,
)
GIVEN_STEPS = partial(
    Columns,
    "given",
    id=bigints,
    fence=ints,
    job_id=uuids,
    node_id=texts,
    attempt=ints,
    step=texts,
    output=jsons,
)


@dataclass(frozen=True, slots=True)
class Lanes:
    """What a worker can take now: handlers and free slots, for coroutines, threads and child processes."""

    async_handlers: list[str]
    thread_handlers: list[str]
    async_slots: int
    thread_slots: int
    queues: list[str] | None = None
    process_handlers: list[str] = field(default_factory=list)
    process_slots: int = 0
    async_most: list[int | None] = field(
        default_factory=list
    )  # of each of those handlers, where that is fewer

    @property
    def handlers(self) -> list[str]:
        """Those of all lanes."""
        return [*self.async_handlers, *self.thread_handlers, *self.process_handlers]

    def each(self) -> tuple[tuple[str, list[str], int], ...]:
        """Every lane with its handlers and free slots."""
        return (
            ("async", self.async_handlers, self.async_slots),
            ("thread", self.thread_handlers, self.thread_slots),
            ("process", self.process_handlers, self.process_slots),
        )

    @property
    def slots(self) -> int:
        """All that are free."""
        return self.async_slots + self.thread_slots + self.process_slots


class Step(NamedTuple):
    """One step of an attempt that is done; `output` is JSON text."""

    item: WorkItem
    name: str
    output: bytes


class Report(NamedTuple):
    """The end of one attempt, as a worker tells it."""

    item: WorkItem
    outcome: Completed | Failed


class Ended(NamedTuple):
    """A job that ended with its last task: how long it had to wait, if that is known, and how long it ran."""

    task_id: int
    wait_seconds: float | None
    run_seconds: float


@dataclass(frozen=True, slots=True)
class Pulse:
    """What the database knows of a worker."""

    is_alive: bool
    fences: Mapping[int, int]  # of the tasks it runs, by their id
    has_ready_tasks: bool
    has_alone_tasks: bool = False  # that this worker can run, once it holds nothing
    makes_room: bool = False  # for one of them: whoever is busy claims nothing until it is empty

    @property
    def task_ids(self) -> frozenset[int]:
        """The tasks it runs."""
        return frozenset(self.fences)


@dataclass(frozen=True, slots=True)
class Tick:
    """What an orchestrator learns when nothing happens."""

    rescued: int
    has_news: bool
    wake_at: datetime | None
    now: datetime
    has_held: bool = False  # a limit holds something back
    dead: int = 0  # processes whose lease ended without a word
    epoch: int = 0  # which a restore or a promotion changes

    @property
    def has_work(self) -> bool:
        """Whether some job has news or is due."""
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
    """A fresh id for this start of a process."""
    params = {"kind": kind, "name": name, "lease": lease_seconds, "queues": queues, "handlers": handlers}
    rows = await tx.fetch(REGISTER_PROCESS, **params, info=orjson.dumps(info or {}).decode())
    return int(rows[0][0])


async def leave_process(tx: Transaction, process: int, state: str) -> None:
    """Say that this process drains or has stopped."""
    await tx.execute(LEAVE_PROCESS, process=process, state=state)


async def note_worker_error(tx: Transaction, process: int, error: str | None) -> None:
    """Say why the worker beside this orchestrator could not start; None when it runs."""
    await tx.execute(NOTE_WORKER_ERROR, process=process, error=error)


async def tick_orchestrator(
    tx: Transaction,
    process: int,
    lease_seconds: float,
    grace_seconds: float,
    aside: Sequence[str] = (),
    *,
    is_steady: bool = True,
) -> Tick:
    """Pulse, rescue what dead workers held, and say whether there is something to do.

    Jobs that are set aside are due without anything to do. With `is_steady` False nobody is taken for dead:
    the database was out of reach a short while ago, for them perhaps as well.
    """
    params = {"process": process, "lease": lease_seconds, "grace": grace_seconds, "is_steady": is_steady}
    asked_at = time.monotonic()
    rows = await tx.fetch(
        TICK_ORCHESTRATOR, **params, aside=uuids(list(aside)), offset=clock.offset_seconds()
    )
    tick = Tick(*rows[0][:7])
    clock.note(tick.now, asked_at)
    return tick


async def claim_tasks(
    tx: Transaction, worker: int, lanes: Lanes, places: ClaimPlaces | None = None
) -> list[WorkItem]:
    """Take due tasks for this worker, behind these places; none when its lease was lost."""
    places = places or ClaimPlaces()
    after = {lane: places.after(lane) for lane in ("async", "thread", "process")}
    rows = await tx.fetch(
        CLAIM_TASKS,
        worker=worker,
        queues=lanes.queues,
        async_handlers=lanes.async_handlers,
        async_most=lanes.async_most,
        thread_handlers=lanes.thread_handlers,
        async_slots=lanes.async_slots,
        thread_slots=lanes.thread_slots,
        process_handlers=lanes.process_handlers,
        process_slots=lanes.process_slots,
        **{f"{lane}_rank": rank for lane, (rank, _) in after.items()},
        **{f"{lane}_id": task for lane, (_, task) in after.items()},
    )
    for lane, handlers, slots in lanes.each():
        places.note(lane, slots, [(row[-1], row[0]) for row in rows if row[5] in handlers])
    return [_work_item(row[:-1]) for row in rows]


async def claim_alone(tx: Transaction, worker: int, lanes: Lanes) -> list[WorkItem]:
    """Take one task that must run alone; none when this worker runs something, or its lease was lost."""
    rows = await tx.fetch(CLAIM_ALONE, worker=worker, queues=lanes.queues, handlers=lanes.handlers)
    return [_work_item(row) for row in rows]


def _work_item(row: tuple[Any, ...]) -> WorkItem:
    task, fence, job, node, attempt, handler, params, timeout, checkpoint, *rest, steps, is_last, root = row
    data = None if checkpoint is None else orjson.loads(checkpoint)
    rest += (None if steps is None else orjson.loads(steps), is_last, root)
    return WorkItem(task, fence, job, node, attempt, handler, orjson.loads(params), timeout, data, *rest)


async def report_tasks(tx: Transaction, worker: int, name: str, reports: Sequence[Report]) -> set[int]:
    """Record these outcomes; the task ids that counted. The others were late."""
    given = GIVEN()
    given.rows = [_given_row(report) for report in reports]
    rows = await tx.fetch(REPORT_TASKS, worker=worker, name=name, **given.params())
    return {row[0] for row in rows}


async def end_jobs(
    tx: Transaction, worker: int, name: str, done: Sequence[tuple[WorkItem, bytes]]
) -> list[Ended]:
    """Record the outputs of these last tasks, and with each the end of its job; those that could be.

    The others are as they were, and want an ordinary report.
    """
    last = LAST()
    last.rows = [(item.task_id, item.fence, output) for item, output in done]
    return [Ended(*row) for row in await tx.fetch(END_JOBS, worker=worker, name=name, **last.params())]


def _given_row(report: Report) -> tuple[Any, ...]:
    item, outcome = report.item, report.outcome
    output = error = None
    if isinstance(outcome, Completed):
        output = outcome.output
    else:
        said = {"code": outcome.code, "message": outcome.message, "retryable": outcome.retryable}
        if outcome.after_seconds is not None:
            said["after"] = outcome.after_seconds
        error = orjson.dumps(said | {"details": outcome.details})
    return (item.task_id, item.fence, item.job_id, item.node_id, item.attempt, output, error)


async def report_here(tx: Transaction, worker: int, name: str, item: WorkItem, output: bytes) -> bool:
    """Record this result in the transaction of the handler; False when the attempt is no longer ours."""
    params = {"task": item.task_id, "fence": item.fence, "worker": worker, "name": name}
    return bool((await tx.fetch(REPORT_HERE, **params, output=output.decode()))[0][0])


async def await_task(tx: Transaction, worker: int, item: WorkItem) -> bool:
    """Whether this attempt is still ours, when whoever has it locked is through."""
    return bool(await tx.fetch(AWAIT_TASK, task=item.task_id, fence=item.fence, worker=worker))


async def find_reported(tx: Transaction, reports: Sequence[Report]) -> set[int]:
    """Which of these reports are recorded already; asked after a commit whose answer was lost."""
    outcomes = [{"id": r.item.task_id, "fence": r.item.fence, "job_id": r.item.job_id} for r in reports]
    return {row[0] for row in await tx.fetch(FIND_REPORTED, outcomes=orjson.dumps(outcomes).decode())}


async def release_tasks(tx: Transaction, worker: int, fences: Mapping[int, int]) -> set[int]:
    """Hand these tasks back unfinished, if they still have these fences; those that were still ours."""
    ids, numbers = list(fences), list(fences.values())
    return {row[0] for row in await tx.fetch(RELEASE_TASKS, worker=worker, ids=ids, fences=numbers)}


async def pulse_worker(
    tx: Transaction,
    worker: int,
    name: str,
    lease_seconds: float,
    info: dict[str, Any],
    handlers: Sequence[str] | None = None,
) -> Pulse:
    """Extend the lease. `is_alive` False: it was lost, everything this worker runs is someone else's.

    `handlers`: those it has now, where some came after its start.
    """
    params = {"worker": worker, "name": name, "lease": lease_seconds, "info": orjson.dumps(info).decode()}
    params["handlers"] = None if handlers is None else list(handlers)
    asked_at = time.monotonic()
    row = (await tx.fetch(PULSE_WORKER, **params))[0]
    clock.note(row[6], asked_at)
    return Pulse(row[0], dict(zip(row[1], row[2], strict=True)), *row[3:6])


def _whose(worker: int, name: str, item: WorkItem) -> dict[str, Any]:
    """The attempt, and the worker that says it is its own: what a fence is checked against."""
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
    """Keep this checkpoint for the next attempt; False when this attempt is no longer ours.

    Raises CheckpointOutOfOrder when there is one of a later phase.
    """
    rows = await tx.fetch(
        SAVE_CHECKPOINT,
        **_whose(worker, name, item),
        phase=phase,
        phase_index=phase_index,
        data=data.decode(),
    )
    if rows and rows[0][0] is None:
        raise CheckpointOutOfOrder(phase_index)
    return bool(rows)


async def tell_of_attempt(tx: Transaction, worker: int, name: str, item: WorkItem, event: Event) -> bool:
    """Put this event into the outbox with its checkpoint; False when this attempt is no longer ours."""
    rows = await tx.fetch(
        TELL_OF_ATTEMPT,
        **_whose(worker, name, item),
        mark=event.mark,
        type=event.type,
        subject=event.subject,
        data=event.data.decode(),
        checkpoint=None if event.checkpoint is None else event.checkpoint.decode(),
        phase=event.phase,
    )
    return bool(rows)


async def save_steps(tx: Transaction, worker: int, name: str, steps: Sequence[Step]) -> set[int]:
    """Keep these for later attempts; the places of those that count. The others' attempts were lost."""
    given = GIVEN_STEPS()
    given.rows = [
        (item.task_id, item.fence, item.job_id, item.node_id, item.attempt, step, output)
        for item, step, output in steps
    ]
    return {row[0] for row in await tx.fetch(SAVE_STEPS, worker=worker, name=name, **given.params())}


async def save_progress(tx: Transaction, worker: int, notes: Sequence[dict[str, Any]]) -> None:
    """Write down how far attempts are, and their log lines."""
    await tx.execute(SAVE_PROGRESS, worker=worker, notes=orjson.dumps(list(notes)).decode())
