"""Run one attempt of a Python handler: WorkItem in, Outcome out.

The steps: check the params, start the handler in the event loop, a thread or a child process, wait until it
ends or must stop, and determine the outcome. Exceptions of a handler become `Failed` here and nowhere else.

A handler must stop on timeout, cancellation, loss of its task or shutdown. It gets a grace period, then it is
abandoned. The return value of a handler that was asked to stop is not used: a handler that leaves its loop on
`ctx.cancelled` does not return its real result.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import traceback
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from cograil import logs, strict_json
from cograil.model.outcome import Completed, Failed, Outcome, Released, WorkItem
from cograil.model.workflow import Json
from cograil.runners import handler_output
from cograil.runners.context import Context, Fail, Limits, Retry
from cograil.runners.handler_log import escaped
from cograil.runners.handler_params import InvalidParams
from cograil.runners.handler_registry import HandlerSpec, is_coroutine
from cograil.runners.handler_results import BadResult, completed
from cograil.runners.process_pool import ChildProcess, ProcessPool

MAX_CODE = 64
MAX_MESSAGE = 2_000
MAX_TRACEBACK = 8_000
MAX_DETAILS_BYTES = 16 * 1024
CHILD_GRACE_SECONDS = 0.5
KILL_SECONDS = 5.0  # a process in uninterruptible sleep ends later

Work = asyncio.Future[Outcome]


@dataclass(slots=True)
class Running:
    """A running handler. A thread can be stopped only before it starts, a child process at any time."""

    item: WorkItem
    ctx: Context
    limits: Limits
    work: Work
    stop: Callable[[], object]
    child: asyncio.Future[ChildProcess] | None = (
        None  # the child process; it is killed when `work` is cancelled
    )

    def outcome_if_done(self) -> Outcome | None:
        """Return the outcome if the handler has ended; most have after one step of the loop."""
        if not self.work.done():
            return None
        self.ctx.close()
        return _outcome(self)


async def run(
    item: WorkItem,
    spec: HandlerSpec,
    ctx: Context,
    *,
    executor: Executor,
    limits: Limits,
    children: ProcessPool | None = None,
) -> Outcome:
    """Run this attempt and return its outcome. Raises only CancelledError, when the caller is cancelled."""
    started = start(item, spec, ctx, executor=executor, limits=limits, children=children)
    return await follow(started) if isinstance(started, Running) else started


def start(
    item: WorkItem,
    spec: HandlerSpec,
    ctx: Context,
    *,
    executor: Executor,
    limits: Limits,
    children: ProcessPool | None = None,
) -> Running | Outcome:
    """Start the handler, for `follow`. Return the outcome instead when it cannot or need not start."""
    if ctx.reason is not None:
        return _outcome_of_stop(ctx.reason, item)
    if spec.kind == "process":
        assert children is not None, "a process handler needs a process pool"
        return _in_child(item, ctx, limits, children)
    try:
        arguments = spec.arguments(item, ctx)
    except BaseException as error:  # validators may be code of the user
        return failure(error)
    if spec.kind == "async":
        task = asyncio.create_task(_in_loop(spec, arguments, ctx, limits))
        return Running(item, ctx, limits, task, task.cancel)
    call = contextvars.copy_context().run
    future = executor.submit(call, _in_thread, spec, arguments, ctx, limits)
    return Running(item, ctx, limits, asyncio.wrap_future(future), future.cancel)


async def follow(running: Running) -> Outcome:
    """Wait until the handler has ended or is abandoned, and return its outcome."""
    work, ctx = running.work, running.ctx
    try:
        await _wait_for_end(running)
    finally:
        if not work.done():
            _abandon(work, ctx)
        ctx.close()
    return _outcome(running)


# --- run


async def _in_loop(spec: HandlerSpec, arguments: dict[str, Any], ctx: Context, limits: Limits) -> Outcome:
    try:
        if spec.is_checkpointable:
            value = await _drain_generator(spec.call(**arguments), ctx)
        else:
            value = await spec.call(**arguments)
        result = _completed(value, limits)
        if ctx.handler_transaction is not None and ctx.handler_transaction.is_unfinished:
            await ctx.handler_transaction.conclude(result)
        outcome: Outcome = result
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # SystemExit would end the event loop and all other handlers
        outcome = failure(error)
    finally:
        if ctx.handler_transaction is not None:
            await ctx.handler_transaction.undo()
    ctx.close()
    return outcome


def _in_child(item: WorkItem, ctx: Context, limits: Limits, children: ProcessPool) -> Running:
    """Run in a child process. The child validates the params, because coerced params cannot be sent."""
    child: asyncio.Future[ChildProcess] = asyncio.get_running_loop().create_future()
    work = asyncio.create_task(children.run(item, ctx, ctx.channel, child))

    def stop() -> None:
        if child.done():
            child.result().stop(ctx.reason or "cancelled")
        else:
            work.cancel()

    return Running(item, ctx, limits, work, stop, child)


def run_here(spec: HandlerSpec, item: WorkItem, ctx: Context, limits: Limits) -> Outcome:
    """Run a handler in this thread, the main thread of a child process. Raises MemoryError."""
    logs.current_attempt.set(item)
    handler_output.attempt.set(ctx)
    try:
        arguments = spec.arguments(item, ctx)
        if is_coroutine(spec.call):
            return asyncio.run(_in_loop(spec, arguments, ctx, limits))
        outcome: Outcome = _completed(spec.call(**arguments), limits)
    except MemoryError:
        raise
    except BaseException as error:
        outcome = failure(error)
    finally:
        ctx.close()
    return outcome


def _in_thread(spec: HandlerSpec, arguments: dict[str, Any], ctx: Context, limits: Limits) -> Outcome:
    try:
        outcome: Outcome = _completed(spec.call(**arguments), limits)
    except BaseException as error:
        outcome = failure(error)
    ctx.close()
    return outcome


# --- wait


async def _wait_for_end(running: Running) -> None:
    """Wait until the work is done, or until the grace period after a stop request has passed."""
    work, ctx = running.work, running.ctx
    events: set[asyncio.Future[Any]] = {work, ctx.stopping()}
    if running.child is not None:  # the start of a child does not count towards the timeout
        await asyncio.wait({*events, running.child}, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait(events, timeout=running.item.timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    if not work.done():
        ctx.cancel("timeout")  # keeps an earlier reason
        running.stop()
        await asyncio.wait({work}, timeout=_grace(running))
        if running.child is not None and not work.done():
            work.cancel()
            await asyncio.wait({work}, timeout=KILL_SECONDS)
        if ctx.handler_transaction is not None and ctx.handler_transaction.committing is not None:
            await asyncio.wait({ctx.handler_transaction.committing})  # a commit cannot be interrupted


def _grace(running: Running) -> float:
    """Return the grace period. It is short for a child that timed out, because it can be killed."""
    grace = running.limits.grace_seconds
    is_out_of_time = running.child is not None and running.ctx.reason == "timeout"
    return min(grace, CHILD_GRACE_SECONDS) if is_out_of_time else grace


_abandoned_work: set[asyncio.Future[Any]] = set()  # the event loop keeps only weak references to tasks


def _abandon(work: Work, ctx: Context) -> None:
    """Stop waiting for the handler. It may still run, but its context is closed."""
    ctx.abandoned = True
    ctx.cancel("abandoned")  # keeps an earlier reason
    _abandoned_work.add(work)
    work.add_done_callback(_abandoned_work.discard)
    work.cancel()
    if ctx.handler_transaction is not None:
        undoing = asyncio.ensure_future(ctx.handler_transaction.undo())
        _abandoned_work.add(undoing)
        undoing.add_done_callback(_abandoned_work.discard)


# --- outcome


def _outcome(running: Running) -> Outcome:
    """Return the outcome: the committed result, else that of the stop request, else that of the handler."""
    ctx = running.ctx
    if ctx.recorded is not None:
        return ctx.recorded
    return (
        _outcome_of_work(running.work) if ctx.reason is None else _outcome_of_stop(ctx.reason, running.item)
    )


def _outcome_of_work(work: Work) -> Outcome:
    """Return the outcome of a handler that ended by itself."""
    if work.cancelled():
        return Failed("handler_error", "CancelledError: the handler cancelled itself")
    error = work.exception()
    return work.result() if error is None else failure(error)


def _outcome_of_stop(reason: str, item: WorkItem) -> Outcome:
    """Return the outcome of a handler that was asked to stop."""
    match reason:
        case "timeout":
            return Failed("timeout", f"the handler did not finish within {item.timeout_seconds:g} s")
        case "shutdown" | "lost":
            return Released()
        case _:
            return Failed("cancelled", f"the attempt was cancelled: {reason}", retryable=False)


def _completed(value: Any, limits: Limits) -> Completed:
    return completed(value, limits.output_bytes)


def failure(error: BaseException) -> Failed:
    """Return the outcome of an attempt that raised this error. Never raises."""
    try:
        return _failure_of(error)
    except BaseException as second:  # the error is an object of the user: any of its methods may raise
        name = escaped(type(error).__name__)
        return Failed("handler_error", f"{name}, which cannot be formatted: {type(second).__name__}")


def _failure_of(error: BaseException) -> Failed:
    match error:
        case Retry():
            details, after = _storable_details(error.details), _seconds(error.after_seconds)
            return Failed(_code(error), _message(error), True, details, after)
        case Fail():
            return Failed(_code(error), _message(error), False, _storable_details(error.details))
        case InvalidParams():
            return Failed("invalid_params", _message(error), False, {"problems": error.problems})
        case BadResult():
            return Failed(error.code, _message(error), False)
        case MemoryError():
            return Failed("out_of_memory", "not enough memory")
        case Exception():
            return Failed("handler_error", _named_message(error), True, _trace(error))
        case _:
            return Failed("handler_crashed", _named_message(error), True, _trace(error))


def _code(error: Fail | Retry) -> str:
    return escaped(str(error.code))[:MAX_CODE]


def _seconds(value: object) -> float | None:
    """Return a valid delay; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        return None
    return float(value)


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # a __str__ of the user that fails
        text = ""
    return _storable(text or type(error).__name__)[:MAX_MESSAGE]


def _named_message(error: BaseException) -> str:
    """Return type and message, such as `KeyError: 'x'`, also for an exception that cannot be printed."""
    lines = traceback.format_exception_only(error)
    return _storable("".join(lines).strip())[:MAX_MESSAGE]


def _trace(error: BaseException) -> dict[str, Json]:
    """Return type and traceback, without the frames of this module and without values of variables."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames))
    return {"type": type(error).__qualname__, "traceback": _storable(text)[-MAX_TRACEBACK:]}


def _storable_details(details: Json) -> Json:
    """Return the details, or the reason why they cannot be stored."""
    try:
        return strict_json.read(strict_json.write(details, max_bytes=MAX_DETAILS_BYTES))
    except strict_json.InvalidJson as error:
        return {"dropped": str(error)}


def _storable(text: str) -> str:
    """Escape NUL and lone surrogates, which PostgreSQL cannot store."""
    return text.replace("\0", "\\x00").encode(errors="backslashreplace").decode()


# --- checkpointable handlers


async def _drain_generator(generator: AsyncGenerator[Any, None], ctx: Context) -> Json:
    """Run a generator to its end and return its result. A checkpoint is saved before the generator resumes."""
    results: list[Json] = []
    async with aclosing(generator):
        async for item in generator:
            if results:
                raise BadResult("the handler yielded another item after its result")
            match item:
                case {"type": "checkpoint", "data": data}:
                    await ctx.checkpoint(data, item.get("phase") or "")
                case {"type": "progress", "current": current}:
                    _take_progress(ctx, current, item.get("total"), item.get("message") or "")
                case {"type": "result", "output": output}:
                    results.append(output)
                case _:
                    raise BadResult(f"the handler yielded an invalid item: {escaped(repr(item)[:100])}")
    if not results:
        raise BadResult("the handler ended without a result item")
    return results[0]


def _take_progress(ctx: Context, current: Any, total: Any, message: str) -> None:
    try:
        ctx.progress(current, total, message)
    except ValueError as error:
        raise BadResult(f"the handler yielded an invalid item: {error}") from None
