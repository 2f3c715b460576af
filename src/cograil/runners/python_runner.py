"""Run one attempt of a Python handler: WorkItem in, Outcome out.

The steps: check the params, start the handler in the loop or in a thread, wait until it is done or must
stop, conclude. A handler cannot make `run` raise: what it raises becomes a `Failed`, here and nowhere else.

A handler that is told to stop (its time is up, it was cancelled, its task was lost, the worker shuts
down) has a grace to obey; then it is abandoned. Once told to stop, what it still returns is not used:
a handler that breaks off its loop on `ctx.cancelled` returns something, but not its result.
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
LAST_WORDS_SECONDS = 0.5
KILL_SECONDS = 5.0  # a process that cannot even be killed waits for a disk

Work = asyncio.Future[Outcome]


@dataclass(slots=True)
class Running:
    """A handler at work. A thread can be stopped only before it has begun, a child process at any time."""

    item: WorkItem
    ctx: Context
    limits: Limits
    work: Work
    stop: Callable[[], object]
    child: asyncio.Future[ChildProcess] | None = None  # where it runs; it is killed when `work` is cancelled

    def outcome_if_done(self) -> Outcome | None:
        """The outcome, if the handler is through already. Most are after one step of the loop."""
        if not self.work.done():
            return None
        self.ctx.close()
        return _end_of(self)


async def run(
    item: WorkItem,
    spec: HandlerSpec,
    ctx: Context,
    *,
    executor: Executor,
    limits: Limits,
    children: ProcessPool | None = None,
) -> Outcome:
    """Run this attempt to its end. Raises only CancelledError, when the caller itself is cancelled."""
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
    """Start the handler; the outcome when it need not or cannot be started. `follow` it to its end."""
    if ctx.reason is not None:
        return _stopped(ctx.reason, item)
    if spec.kind == "process":
        assert children is not None, "a worker has children"
        return _in_child(item, ctx, limits, children)
    try:
        arguments = spec.arguments(item, ctx)
    except BaseException as error:  # validators are the user's code too
        return failure(error)
    if spec.kind == "async":
        task = asyncio.create_task(_in_loop(spec, arguments, ctx, limits))
        return Running(item, ctx, limits, task, task.cancel)
    call = contextvars.copy_context().run
    future = executor.submit(call, _in_thread, spec, arguments, ctx, limits)
    return Running(item, ctx, limits, asyncio.wrap_future(future), future.cancel)


async def follow(running: Running) -> Outcome:
    """The outcome of this handler, when it has ended or was told to stop and did not obey."""
    work, ctx = running.work, running.ctx
    try:
        await _settle(running)
    finally:
        if not work.done():
            _abandon(work, ctx)
        ctx.close()
    return _end_of(running)


# --- work


async def _in_loop(spec: HandlerSpec, arguments: dict[str, Any], ctx: Context, limits: Limits) -> Outcome:
    try:
        if spec.is_checkpointable:
            value = await _last_word(spec.call(**arguments), ctx)
        else:
            value = await spec.call(**arguments)
        result = _completed(value, limits)
        if ctx.handler_transaction is not None and ctx.handler_transaction.is_unfinished:
            await ctx.handler_transaction.conclude(result)
        outcome: Outcome = result
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # SystemExit would end the loop, and with it every other handler
        outcome = failure(error)
    finally:
        if ctx.handler_transaction is not None:
            await ctx.handler_transaction.undo()
    ctx.close()
    return outcome


def _in_child(item: WorkItem, ctx: Context, limits: Limits, children: ProcessPool) -> Running:
    """The child checks the params: what they become cannot be sent there."""
    child: asyncio.Future[ChildProcess] = asyncio.get_running_loop().create_future()
    work = asyncio.create_task(children.run(item, ctx, ctx.channel, child))

    def stop() -> None:
        if child.done():
            child.result().stop(ctx.reason or "cancelled")
        else:
            work.cancel()

    return Running(item, ctx, limits, work, stop, child)


def call_here(spec: HandlerSpec, item: WorkItem, ctx: Context, limits: Limits) -> Outcome:
    """Run a handler in this thread, which is the child's own. Lets MemoryError pass."""
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


async def _settle(running: Running) -> None:
    """Return when the work is done, or when it was told to stop and did not within the grace."""
    work, ctx = running.work, running.ctx
    news: set[asyncio.Future[Any]] = {work, ctx.stopping()}
    if running.child is not None:  # the time it takes to start a child is not the handler's
        await asyncio.wait({*news, running.child}, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait(news, timeout=running.item.timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    if not work.done():
        ctx.cancel("timeout")  # unless there was a reason before
        running.stop()
        await asyncio.wait({work}, timeout=_grace(running))
        if running.child is not None and not work.done():
            work.cancel()
            await asyncio.wait({work}, timeout=KILL_SECONDS)
        if ctx.handler_transaction is not None and ctx.handler_transaction.committing is not None:
            await asyncio.wait(
                {ctx.handler_transaction.committing}
            )  # past the point where it could be stopped


def _grace(running: Running) -> float:
    """A child whose time is up has hardly any: it can be killed, and its slot is wanted."""
    grace = running.limits.grace_seconds
    is_out_of_time = running.child is not None and running.ctx.reason == "timeout"
    return min(grace, LAST_WORDS_SECONDS) if is_out_of_time else grace


_abandoned: set[asyncio.Future[Any]] = set()  # the loop holds its tasks weakly


def _abandon(work: Work, ctx: Context) -> None:
    """Go on without the handler: it may still run, but its context is closed and nobody listens."""
    ctx.abandoned = True
    ctx.cancel("abandoned")  # unless there was a reason before
    _abandoned.add(work)
    work.add_done_callback(_abandoned.discard)
    work.cancel()
    if ctx.handler_transaction is not None:
        undoing = asyncio.ensure_future(ctx.handler_transaction.undo())
        _abandoned.add(undoing)
        undoing.add_done_callback(_abandoned.discard)


# --- conclude


def _end_of(running: Running) -> Outcome:
    """What is committed stands; else what it was told, or what it came to by itself."""
    ctx = running.ctx
    if ctx.recorded is not None:
        return ctx.recorded
    return _concluded(running.work) if ctx.reason is None else _stopped(ctx.reason, running.item)


def _concluded(work: Work) -> Outcome:
    """The outcome of a handler that ended by itself."""
    if work.cancelled():
        return Failed("handler_error", "CancelledError: the handler cancelled itself")
    error = work.exception()
    return work.result() if error is None else failure(error)


def _stopped(reason: str, item: WorkItem) -> Outcome:
    """The outcome of a handler that was told to stop."""
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
    """The outcome of an attempt that raised this. There is always one: nobody would hear of it otherwise."""
    try:
        return _told(error)
    except BaseException as trouble:  # it is an object of the user's: whatever we ask of it may raise
        name = escaped(type(error).__name__)
        return Failed("handler_error", f"{name}, of which nothing can be told: {type(trouble).__name__}")


def _told(error: BaseException) -> Failed:
    match error:
        case Retry():
            details, after = _kept_details(error.details), _seconds(error.after_seconds)
            return Failed(_code(error), _message(error), True, details, after)
        case Fail():
            return Failed(_code(error), _message(error), False, _kept_details(error.details))
        case InvalidParams():
            return Failed("invalid_params", _message(error), False, {"problems": error.problems})
        case BadResult():
            return Failed(error.code, _message(error), False)
        case MemoryError():
            return Failed("out_of_memory", "there was not enough memory")
        case Exception():
            return Failed("handler_error", _named_message(error), True, _trace(error))
        case _:
            return Failed("handler_crashed", _named_message(error), True, _trace(error))


def _code(error: Fail | Retry) -> str:
    return escaped(str(error.code))[:MAX_CODE]


def _seconds(given: object) -> float | None:
    """A wait that can be waited for; anything else is as if nothing had been said."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < math.inf:
        return None
    return float(given)


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # a __str__ of the user's that fails
        text = ""
    return _storable(text or type(error).__name__)[:MAX_MESSAGE]


def _named_message(error: BaseException) -> str:
    """`KeyError: 'x'`, also of an exception that cannot even be printed."""
    lines = traceback.format_exception_only(error)
    return _storable("".join(lines).strip())[:MAX_MESSAGE]


def _trace(error: BaseException) -> dict[str, Json]:
    """Type and traceback, without our own frames and without the values of variables."""
    below_us = error.__traceback__
    while below_us is not None and below_us.tb_frame.f_code.co_filename == __file__:
        below_us = below_us.tb_next
    text = "".join(traceback.format_exception(type(error), error, below_us))
    return {"type": type(error).__qualname__, "traceback": _storable(text)[-MAX_TRACEBACK:]}


def _kept_details(details: Json) -> Json:
    """Details are a help: what cannot be stored is left out rather than hiding the failure itself."""
    try:
        return strict_json.read(strict_json.write(details, max_bytes=MAX_DETAILS_BYTES))
    except strict_json.InvalidJson as error:
        return {"dropped": str(error)}


def _storable(text: str) -> str:
    """The text without what PostgreSQL refuses: NUL and lone surrogates."""
    return text.replace("\0", "\\x00").encode(errors="backslashreplace").decode()


# --- the checkpointable form


async def _last_word(generator: AsyncGenerator[Any, None], ctx: Context) -> Json:
    """Follow a generator to its end; its result. A checkpoint is durable before the generator goes on."""
    results: list[Json] = []
    async with aclosing(generator):
        async for told in generator:
            if results:
                raise BadResult("the handler yielded another item after its result")
            match told:
                case {"type": "checkpoint", "data": data}:
                    await ctx.checkpoint(data, told.get("phase") or "")
                case {"type": "progress", "current": current}:
                    _take_progress(ctx, current, told.get("total"), told.get("message") or "")
                case {"type": "result", "output": output}:
                    results.append(output)
                case _:
                    raise BadResult(f"the handler yielded what is no item: {escaped(repr(told)[:100])}")
    if not results:
        raise BadResult("the handler ended without a result item")
    return results[0]


def _take_progress(ctx: Context, current: Any, total: Any, message: str) -> None:
    try:
        ctx.progress(current, total, message)
    except ValueError as error:
        raise BadResult(f"the handler yielded a wrong item: {error}") from None
