"""The protocol of workers: claim, heartbeat, progress, checkpoint, result; enough to work in any language.

A task id is opaque to its worker; it names the task and its job. The fence that came with it is sent with
everything that is said of the task: whoever lost it meanwhile is told 409.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from functools import partial
from typing import Annotated, Literal, NamedTuple

from pydantic import Field
from starlette.responses import Response

from cograil import strict_json, tracing
from cograil.api_schemas import job_schemas
from cograil.errors import AlreadyTerminal, StaleAttempt
from cograil.http.server.dispatcher import Call, reply
from cograil.http.server.problem_details import Refusal
from cograil.http.server.request_parsing import Body
from cograil.http.server.routing import Router
from cograil.http.server.timeouts import wait_for_disconnect
from cograil.model.ids import is_id, task_name
from cograil.model.outcome import Completed, Failed, WorkItem
from cograil.model.roles import Role
from cograil.model.workflow import Json
from cograil.store import task_queries as store
from cograil.store.database import Transaction
from cograil.store.http_worker_queries import HeldTask
from cograil.verbs import http_workers

workers = Router("workers")
WORKING: tuple[Role, ...] = ("worker", "admin")  # while there are no keys, anybody is an admin
RESULT_BODY = 5 * 1024 * 1024

Name = Annotated[str, Field(min_length=1, max_length=64)]
HandlerName = Annotated[str, Field(min_length=1, max_length=200)]
TaskId = Annotated[str, Field(min_length=1, max_length=128)]
Fence = Annotated[int, Field(ge=1, le=2**31 - 1)]
Usage = Annotated[float, Field(strict=False, ge=0, allow_inf_nan=False)]  # in MB; taken, and not kept


class Claim(Body):
    """What a worker can take."""

    worker_id: Name
    queues: Annotated[list[Name], Field(max_length=100)] | None = None
    handlers: (
        Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=1000)] | None
    ) = None
    max: Annotated[int, Field(ge=1, le=100)] = 1
    wait_seconds: Annotated[float, Field(ge=0, le=30, strict=False)] = 0


class HeartbeatBody(Body):
    """Still at it."""

    fence: Fence | None = None


class OfTask(Body):
    """Which attempt is spoken of. Its task id names it alone; the fence is checked where it is sent."""

    task_id: TaskId
    fence: Fence | None = None
    job_id: str | None = None
    node_id: str | None = None
    worker_id: Name | None = None


class TaskResult(OfTask):
    """How it goes, or how it ended."""

    status: Literal["received", "running", "completed", "failed"]
    output: dict[str, Json] | None = None
    error_message: Annotated[str, Field(max_length=2000)] | None = None
    error_code: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")] | None = None
    retryable: bool = True
    execution_duration_ms: Annotated[int, Field(ge=0)] | None = None
    checkpoint_id: str | None = None
    memory_usage_mb: Usage | None = None
    disk_usage_mb: Usage | None = None
    progress_current: Annotated[float, Field(strict=False, allow_inf_nan=False)] | None = None
    progress_total: Annotated[float, Field(strict=False, allow_inf_nan=False)] | None = None
    progress_message: Annotated[str, Field(max_length=256)] | None = None


class TaskProgress(OfTask):
    """How far it is."""

    progress_current: Annotated[float, Field(strict=False, allow_inf_nan=False)] | None = None
    progress_total: Annotated[float, Field(strict=False, allow_inf_nan=False)] | None = None
    progress_percent: Annotated[float, Field(strict=False, ge=0, le=100)] | None = None
    progress_message: Annotated[str, Field(max_length=256)] | None = None
    memory_usage_mb: Usage | None = None
    disk_usage_mb: Usage | None = None


class Checkpoint(OfTask):
    """What the next attempt gets back."""

    phase_name: Annotated[str, Field(max_length=64)] = ""
    phase_index: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    total_phases: Annotated[int, Field(ge=1)] = 1
    progress: Annotated[float, Field(strict=False, ge=0, le=100)] | None = None
    state_data: Json = None
    artifacts_completed: list[str] = Field(default_factory=list)
    memory_mb: Annotated[float, Field(strict=False, ge=0)] | None = None
    disk_mb: Annotated[float, Field(strict=False, ge=0)] | None = None
    memory_usage_mb: Usage | None = None
    disk_usage_mb: Usage | None = None
    error_count: Annotated[int, Field(ge=0)] = 0
    is_final: bool = False


class Place(NamedTuple):
    """What a task id names."""

    task_id: int
    job_id: str


def id_of(item: WorkItem) -> str:
    """The task id that a worker is given."""
    return task_name(item.task_id, item.job_id)


def place_of(text: str) -> Place:
    """What a task id names. Raises StaleAttempt for one that was never given out."""
    place = _read_place(text)
    if place is None:
        raise StaleAttempt(text[:80])
    return place


def _read_place(text: str) -> Place | None:
    number, _, job_id = text.partition(".")
    is_ours = number.isascii() and number.isdecimal() and len(number) < 19 and is_id(job_id)
    return Place(int(number), job_id) if is_ours else None


@workers.post(
    "/tasks/claim",
    *WORKING,
    body=Claim,
    responses={200: "the tasks that are this worker's now"},
    response_model=job_schemas.Tasks,
)
async def claim(call: Call) -> Response:
    """Claim tasks, waiting for some if there are none."""
    asked: Claim = call.body
    until = time.monotonic() + asked.wait_seconds
    leaving = asyncio.create_task(wait_for_disconnect(call.receive))
    try:
        while not (items := await _claimed(call)):
            left = until - time.monotonic()
            if left <= 0 or not await call.context.job_end_listener.wait_for_tasks(left) or leaving.done():
                break  # for who has gone nothing is claimed: nobody would do it until its lease ends
    finally:
        leaving.cancel()
    return reply({"tasks": [_view(item, call.context.settings.lease.seconds) for item in items]})


async def _claimed(call: Call) -> list[WorkItem]:
    asked: Claim = call.body
    async with call.transaction("claim") as tx:
        return await http_workers.claim(
            tx,
            call.caller.tenant,
            asked.worker_id,
            most=asked.max,
            lease_seconds=call.context.settings.lease.seconds,
            queues=asked.queues,
            handlers=asked.handlers,
        )


def _view(item: WorkItem, lease_seconds: float) -> dict[str, Json]:
    return {
        "task_id": id_of(item),
        "fence": item.fence,
        "job_id": item.job_id,
        "node_id": item.node_id,
        "handler": item.handler,
        "params": item.params,
        "timeout_seconds": item.timeout_seconds,
        "retry_count": item.attempt - 1,
        "checkpoint": item.checkpoint,
        "correlation_id": item.correlation_id,
        "trace_parent": tracing.job_traceparent(item.job_id, item.trace_parent),
        "idempotency_key": item.idempotency_key,
        "dispatched_at": item.claimed_at,
        "lease_seconds": lease_seconds,
    }


@workers.post(
    "/tasks/{task_id}/pulse",
    *WORKING,
    body=HeartbeatBody,
    responses={200: "whether its job was cancelled", 409: "it is not this worker's any more"},
    response_model=job_schemas.Heartbeat,
)
async def heartbeat(call: Call) -> Response:
    """Keep a task: without a heartbeat it goes to another worker when the lease ends."""
    place = place_of(call.path["task_id"])
    lease = call.context.settings.lease.seconds
    async with call.transaction("heartbeat") as tx:
        is_kept = await http_workers.heartbeat(
            tx, call.caller.tenant, place.job_id, place.task_id, call.body.fence, lease
        )
    return reply({"cancelled": not is_kept, "lease_seconds": lease})


@workers.post(
    "/callbacks/task-result",
    *WORKING,
    body=TaskResult,
    max_body=RESULT_BODY,
    responses={202: "it counts", 200: "it was reported before, and counts", 409: "it came too late"},
    response_model=job_schemas.Accepted,
)
async def take_result(call: Call) -> Response:
    """Take the result of an attempt. A caller that did not get the answer sends the same again."""
    given: TaskResult = call.body
    outcome = _outcome(call, given)
    if outcome is not None:
        await call.context.progress_throttle.finish(_attempt(call, given))  # its last word on how far it was
    accepted = {"status": "accepted", "task_id": given.task_id}
    try:
        async with call.transaction("report") as tx:
            held = await _held(call, tx, given)
            if outcome is not None:
                await http_workers.report(tx, held, outcome)
    except (StaleAttempt, AlreadyTerminal) as error:
        if not await _was_said(call, given, outcome, is_late=isinstance(error, StaleAttempt)):
            raise
        return reply(accepted, 200)
    return reply(accepted, 202)


async def _was_said(
    call: Call, given: TaskResult, outcome: Completed | Failed | None, *, is_late: bool
) -> bool:
    """Whether the same was reported before. If not, the job is told of what came too late."""
    place = _read_place(given.task_id)
    if place is None:
        return False
    attempt = (call.caller.tenant, place.job_id, place.task_id, given.fence)
    async with call.transaction("report") as tx:
        if outcome is not None and await http_workers.is_repeated(tx, *attempt, outcome, given.worker_id):
            return True
        if is_late:
            await http_workers.note_late(tx, *attempt)
    return False


def _outcome(call: Call, given: TaskResult) -> Completed | Failed | None:
    if given.status == "completed":
        most = call.context.settings.limits.output_bytes
        return Completed(strict_json.write(given.output or {}, max_bytes=most))
    if given.status == "failed":
        code, message = (
            given.error_code or "handler_error",
            given.error_message or "the worker says it failed",
        )
        return Failed(code, message, given.retryable)
    return None


@workers.post(
    "/callbacks/task-progress",
    *WORKING,
    body=TaskProgress,
    responses={202: "noted", 409: "too late"},
    response_model=job_schemas.Accepted,
)
async def take_progress(call: Call) -> Response:
    """Take how far an attempt is."""
    given: TaskProgress = call.body
    if call.context.progress_throttle.try_now(_attempt(call, given)):
        await _save_progress(call, given)
    else:
        call.context.progress_throttle.defer(_attempt(call, given), partial(_save_progress, call, given))
    return reply({"status": "accepted", "task_id": given.task_id}, 202)


def _attempt(call: Call, given: OfTask) -> str:
    """The name of an attempt, whoever speaks of it: nobody else's word takes the place of its worker's."""
    return f"{call.caller.tenant} {given.task_id} {given.fence}"


async def _save_progress(call: Call, given: TaskProgress, age: float = 0.0) -> None:
    """Write it down, as of so many seconds ago. Raises what `_held` raises."""
    async with call.transaction("progress") as tx:
        held = await _held(call, tx, given)
        await store.save_progress(tx, held.worker, [_note(held, given, age)])


def _note(held: HeldTask, given: TaskProgress, age: float) -> dict[str, Json]:
    current, total = given.progress_current, given.progress_total
    if current is None and given.progress_percent is not None:
        current, total = given.progress_percent, 100.0
    return {
        "id": held.item.task_id,
        "fence": held.item.fence,
        "current": current,
        "total": total,
        "message": given.progress_message,
        "age": age,
    }


@workers.post(
    "/callbacks/checkpoint",
    *WORKING,
    body=Checkpoint,
    max_body=2 * 1024 * 1024,
    responses={202: "kept for the next attempt", 409: "too late, or there is one of a later phase"},
    response_model=job_schemas.AcceptedCheckpoint,
)
async def take_checkpoint(call: Call) -> Response:
    """Keep a checkpoint: the next attempt gets its state back. Phases do not go back."""
    given: Checkpoint = call.body
    most = call.context.settings.limits.checkpoint_bytes
    data = strict_json.write(given.state_data, max_bytes=most)
    async with call.transaction("checkpoint") as tx:
        held = await _held(call, tx, given)
        phase = f"{given.phase_index}/{given.total_phases} {given.phase_name}".strip()
        by = (held.worker, held.worker_name, held.item)
        if not await store.save_checkpoint(tx, *by, phase, data, given.phase_index):
            raise StaleAttempt(given.task_id)
    checkpoint_id = f"{held.item.job_id}/{held.item.node_id}/{given.phase_index}"
    return reply({"status": "accepted", "checkpoint_id": checkpoint_id}, 202)


async def _held(call: Call, tx: Transaction, given: OfTask) -> HeldTask:
    """The attempt that is spoken of. Raises what `remote.held_task` raises, and Refusal for a mix-up."""
    place = place_of(given.task_id)
    lease = call.context.settings.lease.seconds
    held = await http_workers.held_task(
        tx, call.caller.tenant, place.job_id, place.task_id, given.fence, lease
    )
    if given.worker_id not in (None, held.worker_name):
        raise StaleAttempt(given.task_id)  # another worker's
    for name, said, known in _said(given, held):
        if said is not None and said != known:
            raise Refusal(422, "not_this_task", f"{name} is not that of the task", f"/{name}")
    return held


def _said(given: OfTask, held: HeldTask) -> Iterable[tuple[str, str | None, str]]:
    yield "job_id", given.job_id, held.item.job_id
    yield "node_id", given.node_id, held.item.node_id
