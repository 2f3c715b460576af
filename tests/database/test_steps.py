"""`ctx.step`: done once, kept across attempts, refused to a worker that lost the attempt."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from tests.support.harness import Harness, ManualWorker, quick_settings
from tests.support.one_node import one, warnings

from cograil.model.outcome import WorkItem
from cograil.runners.context import AttemptLost, Context, Retry
from cograil.verbs import tasks
from cograil.verbs.tasks import Step


async def save(manual_worker: ManualWorker, item: WorkItem, name: str, output: bytes = b"1") -> bool:
    async with manual_worker.db.single("steps") as tx:
        return bool(
            await tasks.save_steps(
                tx, manual_worker.worker_id, manual_worker.name, [Step(item, name, output)]
            )
        )


# -- handlers -------------------------------------------------------------------------------------------


async def test_a_step_that_is_done_is_not_done_again_by_the_next_attempt(harness: Harness) -> None:
    done: list[str] = []

    async def fetch(what: str) -> dict[str, Any]:
        done.append(what)
        return {"fetched": what, "at": [1, 2]}

    def add(number: int) -> int:
        done.append("add")
        return number + 1

    async def import_all(ctx: Context) -> dict[str, Any]:
        first = await ctx.step("fetch", fetch, "rows")
        second = await ctx.step("add", add, 41)
        if ctx.attempt < 3:
            raise Retry("not yet")
        return {"first": first, "second": second}

    harness.registry.register(import_all)
    async with harness.running():
        job = await harness.submit(one("import_all"))
        ended = await harness.ended(job)
    assert ended["result"]["a"] == {"first": {"fetched": "rows", "at": [1, 2]}, "second": 42}
    assert (done, (await harness.nodes(job))["a"]["attempt"]) == (["rows", "add"], 3)
    rows = await harness.rows(
        "select name, attempt, output::text, tenant_id from cograil.steps order by name"
    )
    assert rows == [("add", 1, "42", "default"), ("fetch", 1, '{"fetched":"rows","at":[1,2]}', "default")]


async def test_a_step_in_a_thread_blocks_until_it_is_kept(harness: Harness) -> None:
    done: list[str] = []

    async def later() -> str:
        await asyncio.sleep(0)
        return "from a coroutine"

    def work_through(ctx: Context) -> dict[str, Any]:
        value = ctx.step("one", lambda: done.append("one") or {"n": 1})
        if ctx.attempt == 1:
            raise Retry("not yet")
        return {"one": value, "two": ctx.step("two", later)}

    harness.registry.register(work_through)
    async with harness.running():
        ended = await harness.ended(await harness.submit(one("work_through")))
    assert ended["result"]["a"] == {"one": {"n": 1}, "two": "from a coroutine"}
    assert done == ["one"]


async def test_a_step_that_raises_is_not_kept(harness: Harness) -> None:
    tries: list[int] = []

    def flaky() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("the network is down")
        return len(tries)

    async def fetch(ctx: Context) -> dict[str, Any]:
        return {"tries": await ctx.step("flaky", flaky)}

    harness.registry.register(fetch)
    async with harness.running():
        ended = await harness.ended(await harness.submit(one("fetch")))
    assert ended["result"]["a"] == {"tries": 2}


async def test_a_step_value_that_is_not_json_or_too_large_fails_the_attempt_for_good(
    harness: Harness,
) -> None:
    async def wrong(ctx: Context) -> None:
        await ctx.step("a set", lambda: {1, 2})

    async def huge(ctx: Context) -> None:
        for number in range(100):
            await ctx.step(f"part {number}", lambda: "x" * 900_000)

    harness.registry.register(wrong)
    harness.registry.register(huge)
    async with harness.running():
        for handler in ("wrong", "huge"):
            ended = await harness.ended(await harness.submit(one(handler)))
            assert (ended["status"], ended["error"]["code"]) == ("failed", "bad_step")


async def test_many_handlers_share_the_statements_that_save_their_steps(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 handlers with 10 steps each: 3,000 commits would take long."""
    real, batches = tasks.save_steps, []

    async def counted(*args: Any) -> set[int]:
        batches.append(len(args[3]))
        return await real(*args)

    async def ten_steps(ctx: Context) -> dict[str, Any]:
        return {"sum": sum([await ctx.step(f"step {n}", lambda n=n: n) for n in range(10)])}

    monkeypatch.setattr(tasks, "save_steps", counted)
    harness.registry.register(ten_steps)
    settings = quick_settings(worker={"concurrency": 300, "grace_seconds": 2.0})
    async with harness.orchestrator(), harness.worker(settings=settings):
        jobs = await harness.submit_many(one("ten_steps"), [{}] * 300)
        ended = [await harness.ended(job, 30) for job in jobs]
    assert {job["result"]["a"]["sum"] for job in ended} == {45}
    assert sum(batches) == 3_000
    assert len(batches) < 300


async def test_an_outage_makes_a_step_later_and_does_not_repeat_it(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first save is committed and its answer lost; saved again it is the same step."""
    real, calls, done = tasks.save_steps, [], []

    async def lossy(*args: Any) -> set[int]:
        saved = await real(*args)
        calls.append(saved)
        if len(calls) == 1:
            raise psycopg.OperationalError("the connection was lost")
        return saved

    async def fetch(ctx: Context) -> dict[str, Any]:
        return {"value": await ctx.step("once", lambda: done.append(1) or "kept")}

    monkeypatch.setattr(tasks, "save_steps", lossy)
    harness.registry.register(fetch)
    async with harness.running():
        ended = await harness.ended(await harness.submit(one("fetch")))
    assert (ended["result"]["a"], done, len(calls)) == ({"value": "kept"}, [1], 2)


# -- fences ---------------------------------------------------------------------------------------------


async def test_a_zombie_keeps_no_step(harness: Harness) -> None:
    job = await harness.submit(one())
    slow = await harness.manual_worker("slow")
    old = await slow.claim_one()
    assert old.steps is None
    assert await save(slow, old, "first", b'{"from": "slow"}')
    await harness.expire_worker(slow)
    assert not await save(slow, old, "second")
    await harness.advance()
    quick = await harness.manual_worker("quick")
    new = await quick.claim_one()
    assert new.steps == {"first": {"from": "slow"}}
    assert not await save(slow, old, "third")
    assert await save(quick, new, "third", b"3")
    assert await save(quick, new, "first", b"0")
    rows = await harness.rows("select name, output::text from cograil.steps order by name")
    assert rows == [("first", '{"from": "slow"}'), ("third", "3")]
    await harness.advance()
    assert await warnings(harness, job) == ["late_step", "late_step"]


async def test_a_batch_keeps_the_steps_of_the_living_and_refuses_those_of_zombies(harness: Harness) -> None:
    await harness.submit_many(one(), [{}] * 3)
    manual_worker = await harness.manual_worker()
    items = await manual_worker.claim(3)
    await manual_worker.release(items[1])
    steps = [Step(item, "it", b"{}") for item in items]
    async with harness.db.single("steps") as tx:
        assert await tasks.save_steps(tx, manual_worker.worker_id, manual_worker.name, steps) == {0, 2}


async def test_a_task_that_was_given_back_brings_its_steps_along(harness: Harness) -> None:
    await harness.submit(one())
    manual_worker = await harness.manual_worker()
    item = await manual_worker.claim_one()
    await save(manual_worker, item, "first", b"[1]")
    await manual_worker.release(item)
    await harness.advance()
    again = await manual_worker.claim_one()
    assert (again.attempt, again.fence, again.steps) == (2, 1, {"first": [1]})
    await manual_worker.put_back(again)
    assert (await manual_worker.claim_one()).steps == {"first": [1]}


async def test_a_handler_that_lost_its_attempt_learns_it_at_its_step(
    harness: Harness, eventually: Any
) -> None:
    met: list[type[BaseException]] = []
    done: list[str] = []
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def stubborn(ctx: Context) -> dict[str, Any]:
        begun.set()
        await go_on.wait()
        for name in ("one", "two"):
            try:
                await ctx.step(name, done.append, name)
            except BaseException as error:
                met.append(type(error))
        return {}

    harness.registry.register(stubborn)
    settings = quick_settings(lease={"seconds": 60, "heartbeat_seconds": 30, "scan_seconds": 1})
    async with harness.worker(settings=settings) as worker:
        job = await harness.submit(one("stubborn"))
        await begun.wait()
        assert worker.identity is not None
        await harness.expire_worker(ManualWorker(harness.db, worker.identity.worker_id, worker.name))
        go_on.set()
        await eventually(lambda: len(met) == 2)
    assert (met, done) == ([AttemptLost, AttemptLost], ["one"])
    await harness.cancel(job)
    assert await harness.rows("select * from cograil.steps") == []
