"""`ctx.transaction()`: the handler's own rows and its result are there together or not at all."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bookings import book, booked
from lab import Hand, Lab, quick_settings
from test_workers import one, warnings

from cograil.runners.context import Context
from cograil.store import joint
from cograil.verbs import work

HANDLERS = Path(__file__).parent / "booking.py"


# -- together ---------------------------------------------------------------------------------------------


async def test_rows_and_result_commit_when_the_handler_has_returned(shop: Lab, eventually: Any) -> None:
    left, go_on = asyncio.Event(), asyncio.Event()

    async def pay(ctx: Context) -> dict[str, Any]:
        async with ctx.transaction() as tx:
            await book(tx, ctx)
            row = await (await tx.execute("select '{\"a\": 1}'::json, count(*) from bookings")).fetchone()
        left.set()
        await go_on.wait()
        return {"row": list(row)}

    shop.registry.register(pay)
    async with shop.running():
        job = await shop.submit(one("pay"))
        await left.wait()
        assert await booked(shop) == []  # the block has ended, but its result is not known yet
        go_on.set()
        ended = await shop.ended(job)
    assert ended["result"]["a"] == {"row": [{"a": 1}, 1]}
    assert await booked(shop) == [(1, 5)]
    assert await warnings(shop, job) == []


def count_contexts() -> int:
    return len([each for each in gc.get_objects() if isinstance(each, Context)])


async def test_an_attempt_with_a_transaction_is_freed_without_the_collector(shop: Lab) -> None:
    async def pay(ctx: Context) -> dict[str, Any]:
        async with ctx.transaction() as tx:
            await book(tx, ctx)
        return {"paid": True}

    shop.registry.register(pay)
    async with shop.running():
        gc.collect()
        gc.disable()
        try:
            before = count_contexts()  # those that other tests hold
            for _ in range(20):
                await shop.ended(await shop.submit(one("pay")))
            assert count_contexts() <= before + 3  # the worker still has the last ones in its hands
        finally:
            gc.enable()


async def test_returning_from_inside_the_block_is_the_same(shop: Lab) -> None:
    async def pay(ctx: Context) -> dict[str, Any]:
        ctx.log.info("paying")
        async with ctx.transaction() as tx:
            await book(tx, ctx)
            return {"paid": True}

    shop.registry.register(pay)
    async with shop.running():
        job = await shop.submit(one("pay"))
        assert (await shop.ended(job))["result"]["a"] == {"paid": True}
    assert await booked(shop) == [(1, 5)]
    assert await shop.rows("select count(*) from cograil.task_logs") == [(1,)]


async def test_complete_commits_at_once_and_its_output_counts(shop: Lab, eventually: Any) -> None:
    go_on = asyncio.Event()

    async def pay(ctx: Context) -> dict[str, Any]:
        async with ctx.transaction() as tx:
            await book(tx, ctx)
            await tx.complete({"paid": 5})
        await go_on.wait()
        raise OSError("too late to fail")

    shop.registry.register(pay)
    async with shop.running():
        job = await shop.submit(one("pay"))
        assert (await shop.ended(job))["result"]["a"] == {"paid": 5}
        go_on.set()
    assert await booked(shop) == [(1, 5)]
    assert await warnings(shop, job) == []


async def test_a_handler_that_raises_leaves_no_rows(shop: Lab) -> None:
    async def inside(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await book(tx, ctx)
            raise OSError("the block broke")

    async def after(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await book(tx, ctx)
        raise OSError("the handler broke")

    async def bad_result(ctx: Context) -> Any:
        async with ctx.transaction() as tx:
            await book(tx, ctx)
            return [1]

    async with shop.running():
        for handler in (inside, after, bad_result):
            shop.registry.register(handler)
            ended = await shop.ended(await shop.submit(one(handler.__name__, attempts=2)))
            assert ended["status"] == "failed"
    assert await booked(shop) == []


async def test_a_commit_that_the_database_refuses_fails_the_attempt(shop: Lab) -> None:
    """A constraint that is checked at the end: the report was accepted and must go with the rest."""

    async def pay(ctx: Context) -> dict[str, Any]:
        async with ctx.transaction() as tx:
            await book(tx, ctx)
            for _ in range(2 if ctx.attempt == 1 else 1):
                await tx.execute("insert into once values (%s)", (ctx.job_id,))
            return {}

    shop.registry.register(pay)
    async with shop.running():
        job = await shop.submit(one("pay"))
        assert (await shop.ended(job))["status"] == "completed"
    (failure,) = [e["data"]["error"] for e in await shop.events(job) if e["event_type"] == "task_failed"]
    assert failure["code"] == "transaction_failed"
    assert await booked(shop) == [(2, 5)]


# -- not both ---------------------------------------------------------------------------------------------


async def test_who_lost_the_attempt_has_his_rows_rolled_back(shop: Lab, eventually: Any) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def pay(ctx: Context) -> dict[str, Any]:
        async with ctx.transaction() as tx:
            await book(tx, ctx)
            if ctx.attempt == 1:
                begun.set()
                await go_on.wait()
            return {"attempt": ctx.attempt}

    shop.registry.register(pay)
    settings = quick_settings(lease={"seconds": 60, "pulse_seconds": 30, "scan_seconds": 1})
    async with shop.worker("slow", settings=settings) as slow:
        job = await shop.submit(one("pay"))
        await begun.wait()
        assert slow.identity is not None
        await shop.bury(Hand(shop.db, slow.identity.worker_id, slow.name))
        async with shop.running():
            assert (await shop.ended(job))["result"]["a"] == {"attempt": 2}
            go_on.set()
            await eventually(lambda: warnings(shop, job))
    assert await booked(shop) == [(2, 5)]
    assert await warnings(shop, job) == ["late_result"]


async def test_time_that_is_up_before_the_end_rolls_back(shop: Lab) -> None:
    async def pay(ctx: Context) -> dict[str, Any]:
        async with ctx.transaction() as tx:
            await book(tx, ctx)
            if ctx.attempt == 1:
                await tx.execute("select pg_sleep(60)")
            return {}

    shop.registry.register(pay)
    async with shop.running():
        job = await shop.submit(one("pay", timeout=0.5))
        assert (await shop.ended(job))["status"] == "completed"
    assert await booked(shop) == [(2, 5)]


async def test_a_handler_that_ignores_its_end_loses_its_transaction(shop: Lab, eventually: Any) -> None:
    """It swallows the cancellation and goes on; nothing it still writes may be there later."""
    go_on = asyncio.Event()
    met: list[BaseException] = []

    async def pay(ctx: Context) -> dict[str, Any]:
        if ctx.attempt > 1:
            return {}
        async with ctx.transaction() as tx:
            await book(tx, ctx)
            while not go_on.is_set():
                try:
                    await go_on.wait()
                except asyncio.CancelledError:
                    continue
            try:
                await book(tx, ctx)
            except BaseException as error:
                met.append(error)
        return {"zombie": True}

    shop.registry.register(pay)
    async with shop.running():
        job = await shop.submit(one("pay", timeout=0.3))
        assert (await shop.ended(job))["result"]["a"] == {}
        go_on.set()
        await eventually(lambda: met)
    assert await booked(shop) == []


async def test_once_reported_neither_time_nor_cancel_can_undo_it(
    shop: Lab, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report is made, the commit waits; meanwhile time is up and the job is cancelled."""
    reported, go_on = asyncio.Event(), asyncio.Event()
    real = joint.commit

    async def slow_commit(tx: Any) -> None:
        reported.set()
        await go_on.wait()
        await real(tx)

    async def pay(ctx: Context) -> dict[str, Any]:
        async with ctx.transaction() as tx:
            await book(tx, ctx)
            return {"paid": True}

    monkeypatch.setattr(joint, "commit", slow_commit)
    shop.registry.register(pay)
    async with shop.running():
        job = await shop.submit(one("pay", timeout=0.3))
        await reported.wait()
        cancelling = asyncio.create_task(shop.cancel(job))
        await eventually(lambda: _waits_for_a_lock(shop))
        await asyncio.sleep(0.5)  # the time of the attempt, which nothing announces
        go_on.set()
        await cancelling
        await shop.ended(job)
    assert await booked(shop) == [(1, 5)]
    assert (await shop.nodes(job))["a"]["output"] == {"paid": True}
    assert await warnings(shop, job) == []


async def _waits_for_a_lock(lab: Lab) -> Any:
    return await lab.rows("select 1 from pg_stat_activity where wait_event_type = 'Lock'")


# -- a commit whose answer was lost -----------------------------------------------------------------------


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_commit_whose_answer_was_lost_is_asked_for(
    shop: Lab, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    real, calls = joint.commit, 0

    async def lossy(tx: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            await tx.connection.execute("commit" if is_committed else "rollback")
            raise psycopg.OperationalError("the connection was lost")
        await real(tx)

    async def pay(ctx: Context) -> dict[str, Any]:
        async with ctx.transaction() as tx:
            await book(tx, ctx)
            return {"attempt": ctx.attempt}

    monkeypatch.setattr(joint, "commit", lossy)
    shop.registry.register(pay)
    async with shop.running():
        job = await shop.submit(one("pay"))
        ended = await shop.ended(job)
    attempt = 1 if is_committed else 2
    assert ended["result"]["a"] == {"attempt": attempt}
    assert await booked(shop) == [(attempt, 5)]
    assert await warnings(shop, job) == []


async def test_the_question_waits_for_a_session_that_is_still_committing(shop: Lab, eventually: Any) -> None:
    """A broken connection does not tell the server at once: its session may commit a moment later."""
    await shop.submit(one())
    hand = await shop.hand()
    item = await hand.claim_one()
    async with await psycopg.AsyncConnection.connect(shop.db.conninfo) as other:
        tx = await joint.begin(other, is_borrowed=True)
        assert await work.report_here(tx, hand.worker_id, hand.name, item, b"{}")
        asking = asyncio.create_task(work.was_reported(shop.db, hand.worker_id, item))
        await eventually(lambda: _waits_for_a_lock(shop))
        assert not asking.done()
        await other.commit()
    assert await asking is True


# -- kill -9 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["handler.report_here", "handler.commit.before", "handler.commit.after"])
async def test_a_worker_killed_at_any_point_leaves_both_or_neither(shop: Lab, point: str) -> None:
    job = await shop.submit(one("book_it"))
    killed = _worker(shop, COGRAIL_FAULT=f"{point}:1:kill9")
    assert await asyncio.to_thread(killed.wait, 30) == -signal.SIGKILL
    is_done = point.endswith("after")
    assert await booked(shop) == ([(1, 5)] if is_done else [])
    reports = await shop.rows("select count(*) from cograil.inbox where kind = 'report'")
    assert reports == [(int(is_done),)]
    second = _worker(shop)
    try:
        async with shop.orchestrator():
            ended = await shop.ended(job, 30)
    finally:
        second.terminate()
        await asyncio.to_thread(second.wait, 30)
    assert ended["status"] == "completed"
    assert await booked(shop) == [(1 if is_done else 2, 5)]
    assert ended["result"]["a"] == {"attempt": 1 if is_done else 2}


def _worker(lab: Lab, **variables: str) -> subprocess.Popen[bytes]:
    """A worker as people start it, with the handlers of booking.py."""
    environment = os.environ | {
        "COGRAIL_DATABASE_URL": lab.db.conninfo,
        "COGRAIL_DATABASE__ALLOW_UNSAFE": "true",
        "COGRAIL_LEASE__SECONDS": "1",
        "COGRAIL_LEASE__PULSE_SECONDS": "0.2",
        "COGRAIL_LEASE__SCAN_SECONDS": "0.2",
    }
    command = [sys.executable, "-P", "-m", "cograil.intake.cli", "worker", "--app", "booking"]
    return subprocess.Popen(command, env=environment | variables, cwd=HANDLERS.parent)
