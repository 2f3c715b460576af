"""Steps inside one attempt: each runs once, whichever thread or task asks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.handler_attempts import Attempt, eventually, failed, output

from cograil.model.outcome import Released
from cograil.runners.context import Cancelled, Context

Json = Any


@pytest.fixture
async def attempt() -> AsyncIterator[Attempt]:
    with ThreadPoolExecutor(2) as threads:
        yield Attempt(threads)


async def test_the_same_name_again_returns_what_was_kept(attempt: Attempt) -> None:
    done: list[int] = []

    async def work(ctx: Context) -> Json:
        first = await ctx.step("it", lambda: done.append(1) or {"list": [1]})
        first["list"].append(2)
        return {"again": await ctx.step("it", lambda: done.append(2))}

    assert output(await attempt(work)) == {"again": {"list": [1]}}
    assert (done, attempt.channel.steps) == ([1], {"it": {"list": [1]}})


async def test_the_first_attempt_sees_the_result_as_later_ones_will(attempt: Attempt) -> None:
    when = datetime(2026, 1, 2, tzinfo=UTC)
    seen: list[Json] = []

    async def work(ctx: Context) -> None:
        seen.append(await ctx.step("it", lambda: {"at": when, "pair": (1, 2)}))

    await attempt(work)
    await attempt(work, steps=attempt.channel.steps)
    assert seen[0] == seen[1]
    assert seen[0]["pair"] == [1, 2]


async def test_a_step_under_way_is_shared(attempt: Attempt) -> None:
    done: list[int] = []
    go_on = asyncio.Event()

    async def slow() -> int:
        done.append(1)
        await go_on.wait()
        return 7

    async def work(ctx: Context) -> Json:
        both = asyncio.gather(*(ctx.step("slow", slow) for _ in range(3)))
        await asyncio.sleep(0)
        go_on.set()
        return {"results": await both}

    assert output(await attempt(work)) == {"results": [7, 7, 7]}
    assert done == [1]


async def test_a_step_under_way_in_one_thread_is_shared_with_another(attempt: Attempt) -> None:
    done: list[int] = []
    go_on = threading.Event()

    def slow() -> int:
        done.append(1)
        go_on.wait(10)
        return 7

    def work(ctx: Context) -> Json:
        with ThreadPoolExecutor(2) as pool:
            both = [pool.submit(ctx.step, "slow", slow) for _ in range(2)]
            go_on.set()
            return {"results": [future.result() for future in both]}

    assert output(await attempt(work)) == {"results": [7, 7]}
    assert done == [1]


async def test_a_step_in_a_loop_of_the_threads_own_is_awaited_there(attempt: Attempt) -> None:
    def work(ctx: Context) -> Json:
        async def inner() -> Json:
            return {"loop": await ctx.step("it", asyncio.sleep, 0, "slept")}

        return asyncio.run(inner())

    assert output(await attempt(work)) == {"loop": "slept"}
    assert attempt.channel.steps == {"it": "slept"}


async def test_a_thread_waits_until_its_step_is_acknowledged(attempt: Attempt) -> None:
    passed: list[int] = []
    attempt.channel.before_saving.clear()

    def work(ctx: Context) -> None:
        ctx.progress(1)
        passed.append(ctx.step("it", lambda: 5))

    running = asyncio.create_task(attempt(work))
    await eventually(lambda: attempt.channel.progress)
    assert passed == []
    attempt.channel.before_saving.set()
    output(await running)
    assert passed == [5]


async def test_a_caller_that_waits_for_a_cancelled_step_may_run_it_itself(attempt: Attempt) -> None:
    async def work(ctx: Context) -> Json:
        first = asyncio.ensure_future(ctx.step("it", asyncio.sleep, 30))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(ctx.step("it", asyncio.sleep, 30))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(Cancelled):
            await second
        return {"third": await ctx.step("it", lambda: 3)}

    assert output(await attempt(work)) == {"third": 3}


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0b", "a\nb", 5])
async def test_a_step_has_a_name_that_can_be_kept(attempt: Attempt, name: Any) -> None:
    async def work(ctx: Context) -> None:
        await ctx.step(name, lambda: 1)

    assert not failed(await attempt(work), "bad_step").retryable


async def test_a_lost_attempt_begins_no_step(attempt: Attempt) -> None:
    done: list[int] = []
    attempt.channel.owns = False

    def work(ctx: Context) -> None:
        with pytest.raises(Cancelled):
            ctx.step("first", done.append, 1)
        ctx.step("second", done.append, 2)

    assert await attempt(work) == Released()
    assert done == [1]
