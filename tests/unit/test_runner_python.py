"""One attempt of a handler: whatever it does, an outcome comes out."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.support.handler_attempts import (
    BRIEF,
    PATIENT,
    Attempt,
    Broken,
    eventually,
    everything_ended,
    failed,
    output,
)

from cograil.model.outcome import Failed, Outcome, Released, WorkItem
from cograil.runners import python_runner
from cograil.runners.context import AttemptLost, Context, Fail, Retry
from cograil.runners.handler_registry import Registry
from cograil.runners.python_runner import run

Json = Any


@pytest.fixture
async def attempt() -> AsyncIterator[Attempt]:
    with ThreadPoolExecutor(2) as threads:
        yield Attempt(threads)


# --- results


async def test_a_coroutine_runs_in_the_loop_and_its_dict_is_the_output(attempt: Attempt) -> None:
    async def work(count: int) -> Json:
        return {"doubled": count * 2, "thread": threading.get_ident()}

    assert output(await attempt(work, {"count": "4"})) == {"doubled": 8, "thread": threading.get_ident()}


async def test_a_plain_function_runs_in_a_thread_and_sees_the_context_variables(attempt: Attempt) -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")

    def work() -> Json:
        return {"thread": threading.get_ident(), "variable": variable.get()}

    result = output(await attempt(work))
    assert result["thread"] != threading.get_ident()
    assert result["variable"] == "set"


async def test_wrong_params_fail_for_good_and_the_handler_is_not_called(attempt: Attempt) -> None:
    calls = []

    def work(count: int) -> None:
        calls.append(count)

    outcome = failed(await attempt(work, {"count": "many", "colour": 1}), "invalid_params")
    assert not outcome.retryable
    assert "count" in outcome.message
    assert "colour" in outcome.message
    assert calls == []


async def test_a_handler_that_returns_nothing_has_an_empty_object(attempt: Attempt) -> None:
    assert output(await attempt(lambda: None)) == {}


async def not_awaited() -> Json:
    return {}


def wraps_badly() -> Json:
    return not_awaited()


@pytest.mark.parametrize(
    ("result", "code"),
    [
        ([1], "bad_result"),
        ("text", "bad_result"),
        (5, "bad_result"),
        ({"a": float("nan")}, "bad_result"),
        ({"a": "\0"}, "bad_result"),
        ({"a": object()}, "bad_result"),
        ({1: 2}, "bad_result"),
        (b"{}", "bad_result"),
        ({"a": "x" * 5_000_000}, "result_too_large"),
    ],
)
async def test_a_result_that_cannot_be_kept_fails_for_good(attempt: Attempt, result: Json, code: str) -> None:
    async def work() -> Json:
        return result

    assert not failed(await attempt(work), code).retryable
    assert not failed(await attempt(lambda: result), code).retryable


async def test_a_function_that_returns_a_coroutine_is_told_so(attempt: Attempt) -> None:
    assert "async def" in failed(await attempt(wraps_badly), "bad_result").message


# --- exceptions


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class UnprintableFail(Fail, Unprintable):
    pass


class Unmade(Fail):
    """Of somebody who forgot to call ours."""

    def __init__(self, page: int) -> None:
        self.page = page


class UnmadeRetry(Retry):
    def __init__(self, page: int) -> None:
        self.page = page


class Deadly(Fail):
    def __str__(self) -> str:
        raise SystemExit(3)


RAISED = [
    (Retry("later"), "handler_error", True, "later"),
    (Retry("later", code="rate_limited"), "rate_limited", True, "later"),
    (Fail("never"), "failed", False, "never"),
    (Fail("never", code="not_a_pdf", details={"page": 1}), "not_a_pdf", False, "never"),
    (KeyError("x"), "handler_error", True, "KeyError: 'x'"),
    (ValueError("a\0b\ud800"), "handler_error", True, "ValueError: a\\x00b\\ud800"),
    (Unprintable(), "handler_error", True, "<exception str() failed>"),
    (UnprintableFail(), "failed", False, "UnprintableFail"),
    (Unmade(7), "failed", False, "7"),
    (UnmadeRetry(7), "handler_error", True, "7"),
    (Deadly(), "handler_error", True, "Deadly, which cannot be formatted: SystemExit"),
    (Fail("never", code=Unprintable()), "handler_error", True, "Fail, which cannot be formatted"),  # type: ignore[arg-type]
    (RuntimeError("x" * 5000), "handler_error", True, "RuntimeError: xxx"),
    (ExceptionGroup("many", [ValueError()]), "handler_error", True, "ExceptionGroup: many"),
    (SystemExit(3), "handler_crashed", True, "SystemExit: 3"),
    (KeyboardInterrupt(), "handler_crashed", True, "KeyboardInterrupt"),
    (GeneratorExit(), "handler_crashed", True, "GeneratorExit"),
]


@pytest.mark.parametrize(
    ("after_seconds", "kept"),
    [(2, 2.0), (0.25, 0.25), (-1, None), (float("inf"), None), ("5", None), (True, None)],
)
def test_when_to_come_again_is_a_time_or_nothing(after_seconds: Any, kept: float | None) -> None:
    assert python_runner.failure(Retry("later", after_seconds=after_seconds)).after_seconds == kept


@pytest.mark.parametrize(("error", "code", "retryable", "message"), RAISED)
async def test_any_error_of_a_handler_becomes_a_failure_and_the_worker_lives(
    attempt: Attempt, error: BaseException, code: str, retryable: bool, message: str
) -> None:
    async def in_loop() -> None:
        raise error

    def in_thread() -> None:
        raise error

    async def in_generator() -> AsyncIterator[Json]:
        raise error
        yield

    for function in (in_loop, in_thread, in_generator):
        outcome = failed(await attempt(function), code)
        assert outcome.retryable is retryable
        assert message in outcome.message
        assert len(outcome.message) <= 2_000
        json.dumps([outcome.message, outcome.details]).encode()


async def test_an_unexpected_exception_shows_its_traceback_without_values_and_without_our_frames(
    attempt: Attempt,
) -> None:
    async def work() -> None:
        password = "hunter" + str(1 + 1)
        raise RuntimeError(len(password))

    async def work_on() -> AsyncIterator[Json]:
        yield {"type": "progress", "current": 1}
        await work()

    for function in (work, work_on):
        details = failed(await attempt(function), "handler_error").details
        assert details["type"] == "RuntimeError"
        assert "in work" in details["traceback"]
        assert python_runner.__file__ not in details["traceback"]
        assert "hunter2" not in details["traceback"]


async def test_an_error_after_the_handler_is_a_failure_too(attempt: Attempt) -> None:
    """A caller that waits for its end must hear of one: nobody else would report it."""

    async def work(ctx: Context) -> None:
        ctx.handler_transaction = Broken()  # type: ignore[assignment]

    assert "the way back is lost" in failed(await attempt(work), "handler_error").message


async def test_details_that_cannot_be_stored_do_not_hide_the_failure(attempt: Attempt) -> None:
    async def work() -> None:
        raise Fail("why", details={"a": float("nan")})

    assert "dropped" in failed(await attempt(work), "failed").details


async def test_a_handler_that_cancels_itself_has_failed(attempt: Attempt) -> None:
    async def work() -> None:
        raise asyncio.CancelledError

    assert failed(await attempt(work), "handler_error").retryable


# --- time


async def test_a_coroutine_that_takes_too_long_is_cancelled_and_may_be_tried_again(attempt: Attempt) -> None:
    cleaned = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    outcome = failed(await attempt(work, timeout=0.01), "timeout")
    assert outcome.retryable
    assert cleaned
    assert not attempt.ctx.abandoned


async def test_a_coroutine_that_swallows_its_cancellation_is_abandoned_and_still_timed_out(
    attempt: Attempt,
) -> None:
    over = asyncio.Event()

    async def work() -> Json:
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue
        return {"late": True}

    failed(await attempt(work, timeout=0.01, limits=BRIEF), "timeout")
    assert attempt.ctx.abandoned
    over.set()
    await everything_ended()


async def test_a_result_returned_after_the_time_was_up_does_not_count(attempt: Attempt) -> None:
    async def work() -> Json:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return {"partial": True}

    failed(await attempt(work, timeout=0.01), "timeout")


async def test_a_thread_is_told_that_its_time_is_up(attempt: Attempt) -> None:
    def work(ctx: Context) -> Json:
        while not ctx.cancelled:
            threading.Event().wait(0.001)
        return {"partial": True}

    failed(await attempt(work, timeout=0.01), "timeout")
    assert not attempt.ctx.abandoned


async def test_a_thread_that_does_not_listen_is_abandoned_and_its_words_go_nowhere(attempt: Attempt) -> None:
    over, met = threading.Event(), []

    def work(ctx: Context) -> Json:
        over.wait()
        ctx.progress(1)
        ctx.log.info("still here")
        try:
            ctx.checkpoint({})
        except AttemptLost as error:
            met.append(error)

    failed(await attempt(work, timeout=0.01, limits=BRIEF), "timeout")
    assert attempt.ctx.abandoned
    over.set()
    await eventually(lambda: met)
    assert (attempt.channel.progress, attempt.channel.lines, attempt.channel.saved) == ([], [], [])


async def test_a_handler_that_waits_for_a_thread_in_vain_is_never_begun(attempt: Attempt) -> None:
    over, calls = threading.Event(), []
    blockers = [attempt.executor.submit(over.wait) for _ in range(2)]

    outcome = await attempt(lambda: calls.append(1), timeout=0.01)
    over.set()
    await asyncio.gather(*map(asyncio.wrap_future, blockers))
    failed(outcome, "timeout")
    assert calls == []


# --- stopping


async def waiting(ctx: Context) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("shutdown", Released()),
        ("lost", Released()),
        ("by user", Failed("cancelled", "the attempt was cancelled: by user", retryable=False)),
    ],
)
async def test_cancel_reaches_running_code_and_the_reason_decides_the_outcome(
    attempt: Attempt, reason: str, expected: Outcome
) -> None:
    begun, thread_begun = asyncio.Event(), threading.Event()

    async def in_loop() -> None:
        begun.set()
        await asyncio.Event().wait()

    def in_thread(ctx: Context) -> None:
        thread_begun.set()
        while True:
            ctx.raise_if_cancelled()

    running = asyncio.create_task(attempt(in_loop))
    await begun.wait()
    attempt.ctx.cancel(reason)
    assert await running == expected

    running = asyncio.create_task(attempt(in_thread))
    await eventually(thread_begun.is_set)
    await asyncio.to_thread(attempt.ctx.cancel, reason)
    assert await running == expected


async def test_the_first_reason_counts(attempt: Attempt) -> None:
    running = asyncio.create_task(attempt(waiting))
    await asyncio.sleep(0)
    attempt.ctx.cancel("shutdown")
    attempt.ctx.cancel("by user")
    assert await running == Released()


async def test_cancelled_before_it_began_a_handler_is_not_called(attempt: Attempt) -> None:
    calls = []
    spec = Registry().register(lambda: calls.append(1), "it")
    item = WorkItem(7, 1, "j", "n", 1, "it", {}, 30)
    ctx = Context(item, attempt.channel)
    ctx.cancel("shutdown")
    assert await run(item, spec, ctx, executor=attempt.executor, limits=PATIENT) == Released()
    assert calls == []


async def test_a_cancel_after_the_end_changes_nothing(attempt: Attempt) -> None:
    async def work(ctx: Context) -> Json:
        for _ in range(5):
            await asyncio.sleep(0)  # until the runner waits for us
        asyncio.get_running_loop().call_soon(ctx.cancel, "by user")  # runs between its end and ours
        return {"done": True}

    assert output(await attempt(work)) == {"done": True}
    assert not attempt.ctx.cancelled


async def test_cancelling_the_runner_cancels_the_handler_and_propagates(attempt: Attempt) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    running = asyncio.create_task(attempt(work))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await ended.wait()
    assert attempt.ctx.cancelled
