"""The worker protocol: claim, heartbeat, progress, checkpoint, result; for workers in any language.

A task id is opaque to its worker; it contains the ids of the task and its job. A worker sends the fence of the
task with every report: a worker that has lost the task gets 409.
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
WORKING: tuple[Role, ...] = ("worker", "admin")  # while no key exists, every local caller is an admin
RESULT_BODY = 5 * 1024 * 1024

Name = Annotated[str, Field(min_length=1, max_length=64)]
HandlerName = Annotated[str, Field(min_length=1, max_length=200)]
TaskId = Annotated[str, Field(min_length=1, max_length=128)]
Fence = Annotated[int, Field(ge=1, le=2**31 - 1)]
Usage = Annotated[float, Field(strict=False, ge=0, allow_inf_nan=False)]  # in MB; accepted and ignored


class Claim(Body):
    """The tasks that a worker can run."""

    worker_id: Name
    queues: Annotated[list[Name], Field(max_length=100)] | None = None
    handlers: (
        Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=1000)] | None
    ) = None
    max: Annotated[int, Field(ge=1, le=100)] = 1
    wait_seconds: Annotated[float, Field(ge=0, le=30, strict=False)] = 0


class HeartbeatBody(Body):
    """The heartbeat of an attempt."""

    fence: Fence | None = None


class TaskReport(Body):
    """The attempt of a report. The task id identifies it; the fence is checked if it is sent."""

    task_id: TaskId
    fence: Fence | None = None
    job_id: str | None = None
    node_id: str | None = None
    worker_id: Name | None = None


class TaskResult(TaskReport):
    """The state or the result of an attempt."""

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


class TaskProgress(TaskReport):
    """The progress of an attempt."""

    progress_current: Annotated[float, Field(strict=False, allow_inf_nan=False)] | None = None
    progress_total: Annotated[float, Field(strict=False, allow_inf_nan=False)] | None = None
    progress_percent: Annotated[float, Field(strict=False, ge=0, le=100)] | None = None
    progress_message: Annotated[str, Field(max_length=256)] | None = None
    memory_usage_mb: Usage | None = None
    disk_usage_mb: Usage | None = None


class Checkpoint(TaskReport):
    """A checkpoint: the state that the next attempt gets."""

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


class TaskAddress(NamedTuple):
    """The task and the job of a task id."""

    task_id: int
    job_id: str


def id_of(item: WorkItem) -> str:
    """Return the task id for a worker."""
    return task_name(item.task_id, item.job_id)


def parse_task_id(text: str) -> TaskAddress:
    """Parse a task id. Raises StaleAttempt for an invalid one."""
    address = _parse_task_id(text)
    if address is None:
        raise StaleAttempt(text[:80])
    return address


def _parse_task_id(text: str) -> TaskAddress | None:
    number, _, job_id = text.partition(".")
    is_ours = number.isascii() and number.isdecimal() and len(number) < 19 and is_id(job_id)
    return TaskAddress(int(number), job_id) if is_ours else None


@workers.post(
    "/tasks/claim",
    *WORKING,
    body=Claim,
    responses={200: "the claimed tasks"},
    response_model=job_schemas.Tasks,
)
async def claim(call: Call) -> Response:
    """Claim tasks, waiting for some if there are none."""
    body: Claim = call.body
    until = time.monotonic() + body.wait_seconds
    leaving = asyncio.create_task(wait_for_disconnect(call.receive))
    try:
        while not (items := await _claimed(call)):
            remaining = until - time.monotonic()
            if (
                remaining <= 0
                or not await call.context.job_end_listener.wait_for_tasks(remaining)
                or leaving.done()
            ):
                break  # a client that disconnected must not claim a task: it would wait until its lease ends
    finally:
        leaving.cancel()
    return reply({"tasks": [_view(item, call.context.settings.lease.seconds) for item in items]})


async def _claimed(call: Call) -> list[WorkItem]:
    body: Claim = call.body
    async with call.transaction("claim") as tx:
        return await http_workers.claim(
            tx,
            call.caller.tenant,
            body.worker_id,
            most=body.max,
            lease_seconds=call.context.settings.lease.seconds,
            queues=body.queues,
            handlers=body.handlers,
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
    responses={200: "whether the job was cancelled", 409: "the worker no longer owns the task"},
    response_model=job_schemas.Heartbeat,
)
async def heartbeat(call: Call) -> Response:
    """Extend the lease of a task: without a heartbeat it goes to another worker when the lease ends."""
    address = parse_task_id(call.path["task_id"])
    lease = call.context.settings.lease.seconds
    async with call.transaction("heartbeat") as tx:
        is_kept = await http_workers.heartbeat(
            tx, call.caller.tenant, address.job_id, address.task_id, call.body.fence, lease
        )
    return reply({"cancelled": not is_kept, "lease_seconds": lease})


@workers.post(
    "/callbacks/task-result",
    *WORKING,
    body=TaskResult,
    max_body=RESULT_BODY,
    responses={202: "accepted", 200: "it was accepted before", 409: "too late"},
    response_model=job_schemas.Accepted,
)
async def take_result(call: Call) -> Response:
    """Accept the result of an attempt. A worker that got no response repeats the request."""
    body: TaskResult = call.body
    outcome = _outcome(call, body)
    if outcome is not None:
        await call.context.progress_throttle.finish(_attempt(call, body))  # write its last progress first
    accepted = {"status": "accepted", "task_id": body.task_id}
    try:
        async with call.transaction("report") as tx:
            task = await _held_task(call, tx, body)
            if outcome is not None:
                await http_workers.report(tx, task, outcome)
    except (StaleAttempt, AlreadyTerminal) as error:
        if not await _was_reported(call, body, outcome, is_late=isinstance(error, StaleAttempt)):
            raise
        return reply(accepted, 200)
    return reply(accepted, 202)


async def _was_reported(
    call: Call, body: TaskResult, outcome: Completed | Failed | None, *, is_late: bool
) -> bool:
    """Return whether the same was reported before. If not, the job records the late report."""
    address = _parse_task_id(body.task_id)
    if address is None:
        return False
    attempt = (call.caller.tenant, address.job_id, address.task_id, body.fence)
    async with call.transaction("report") as tx:
        if outcome is not None and await http_workers.is_repeated(tx, *attempt, outcome, body.worker_id):
            return True
        if is_late:
            await http_workers.note_late(tx, *attempt)
    return False


def _outcome(call: Call, body: TaskResult) -> Completed | Failed | None:
    if body.status == "completed":
        max_bytes = call.context.settings.limits.output_bytes
        return Completed(strict_json.write(body.output or {}, max_bytes=max_bytes))
    if body.status == "failed":
        code, message = (
            body.error_code or "handler_error",
            body.error_message or "the worker reported a failure",
        )
        return Failed(code, message, body.retryable)
    return None


@workers.post(
    "/callbacks/task-progress",
    *WORKING,
    body=TaskProgress,
    responses={202: "accepted", 409: "too late"},
    response_model=job_schemas.Accepted,
)
async def take_progress(call: Call) -> Response:
    """Accept the progress of an attempt."""
    body: TaskProgress = call.body
    if call.context.progress_throttle.try_now(_attempt(call, body)):
        await _save_progress(call, body)
    else:
        call.context.progress_throttle.defer(_attempt(call, body), partial(_save_progress, call, body))
    return reply({"status": "accepted", "task_id": body.task_id}, 202)


def _attempt(call: Call, body: TaskReport) -> str:
    """Return the throttle key of an attempt: reports with another fence must not replace those of its worker."""
    return f"{call.caller.tenant} {body.task_id} {body.fence}"


async def _save_progress(call: Call, body: TaskProgress, age: float = 0.0) -> None:
    """Write the progress as of `age` seconds ago. Raises what `_held_task` raises."""
    async with call.transaction("progress") as tx:
        task = await _held_task(call, tx, body)
        await store.save_progress(tx, task.worker, [_progress_row(task, body, age)])


def _progress_row(task: HeldTask, body: TaskProgress, age: float) -> dict[str, Json]:
    current, total = body.progress_current, body.progress_total
    if current is None and body.progress_percent is not None:
        current, total = body.progress_percent, 100.0
    return {
        "id": task.item.task_id,
        "fence": task.item.fence,
        "current": current,
        "total": total,
        "message": body.progress_message,
        "age": age,
    }


@workers.post(
    "/callbacks/checkpoint",
    *WORKING,
    body=Checkpoint,
    max_body=2 * 1024 * 1024,
    responses={202: "stored for the next attempt", 409: "too late, or a later phase has a checkpoint"},
    response_model=job_schemas.AcceptedCheckpoint,
)
async def take_checkpoint(call: Call) -> Response:
    """Store a checkpoint: the next attempt gets its state. A phase cannot be lower than the stored one."""
    body: Checkpoint = call.body
    max_bytes = call.context.settings.limits.checkpoint_bytes
    data = strict_json.write(body.state_data, max_bytes=max_bytes)
    async with call.transaction("checkpoint") as tx:
        task = await _held_task(call, tx, body)
        phase = f"{body.phase_index}/{body.total_phases} {body.phase_name}".strip()
        by = (task.worker, task.worker_name, task.item)
        if not await store.save_checkpoint(tx, *by, phase, data, body.phase_index):
            raise StaleAttempt(body.task_id)
    checkpoint_id = f"{task.item.job_id}/{task.item.node_id}/{body.phase_index}"
    return reply({"status": "accepted", "checkpoint_id": checkpoint_id}, 202)


async def _held_task(call: Call, tx: Transaction, body: TaskReport) -> HeldTask:
    """Return the attempt of a report. Raises what `http_workers.held_task` raises, and Refusal for a wrong id."""
    address = parse_task_id(body.task_id)
    lease = call.context.settings.lease.seconds
    task = await http_workers.held_task(
        tx, call.caller.tenant, address.job_id, address.task_id, body.fence, lease
    )
    if body.worker_id not in (None, task.worker_name):
        raise StaleAttempt(body.task_id)  # the task of another worker
    for name, claimed, actual in _claimed_ids(body, task):
        if claimed is not None and claimed != actual:
            raise Refusal(422, "not_this_task", f"{name} does not belong to the task", f"/{name}")
    return task


def _claimed_ids(body: TaskReport, task: HeldTask) -> Iterable[tuple[str, str | None, str]]:
    yield "job_id", body.job_id, task.item.job_id
    yield "node_id", body.node_id, task.item.node_id
