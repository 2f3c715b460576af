"""`ctx.tell`: an event and its checkpoint commit together, once, and not for a worker that lost the attempt."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from tests.support import child_handlers  # noqa: F401  registers the handlers, here and in the children
from tests.support.harness import Harness, ManualWorker
from tests.support.one_node import one, warnings
from tests.support.webhook_receiver import open_receiver, relay_settings, run_relay

from cograil.model.app_events import AppEvent
from cograil.model.ids import new_id
from cograil.model.outcome import WorkItem
from cograil.runners.context import AttemptLost, Context, Retry
from cograil.settings import Settings
from cograil.verbs import tasks

DONE = "shop.counted"


@pytest.fixture
def harness_settings() -> Settings:
    return relay_settings()


@pytest.fixture(autouse=True)
def callbacks_may_lead_here(harness: Harness) -> None:
    harness.engine_context.outbound = harness.settings.outbound


async def counting_aloud(ctx: Context) -> dict[str, Any]:
    """Tells each number up to three; the first attempt fails after two."""
    for number in range((ctx.checkpoint_data or 0) + 1, 4):
        await ctx.tell(DONE, {"number": number}, checkpoint=number, phase=f"number {number}")
        if ctx.attempt == 1 and number == 2:
            raise Retry("not yet")
    return {}


def event(number: int, *, mark: str | None = None, checkpoint: bytes | None = None) -> AppEvent:
    return AppEvent(mark or new_id(), DONE, "it", b'{"number":%d}' % number, checkpoint or b"%d" % number)


async def tell(worker: ManualWorker, item: WorkItem, event: AppEvent) -> bool:
    async with worker.db.single("tell") as tx:
        return await tasks.add_attempt_event(tx, worker.worker_id, worker.name, item, event)


async def in_outbox(harness: Harness) -> list[tuple[Any, ...]]:
    return await harness.rows("select seq, data from cograil.outbox where type = 'shop.counted' order by id")


# -- handlers -------------------------------------------------------------------------------------------


async def test_events_of_attempts_are_delivered_once_and_in_order(harness: Harness, eventually: Any) -> None:
    harness.registry.register(counting_aloud)
    async with open_receiver() as receiver, harness.running(), run_relay(harness):
        job = await harness.submit(one("counting_aloud"), callback=receiver.callback(events=[DONE]))
        assert (await harness.ended(job))["status"] == "completed"
        await eventually(lambda: len(receiver.requests) >= 3)
    events = [request.event for request in receiver.requests]
    assert [event["data"]["number"] for event in events] == [1, 2, 3]
    assert {(event["type"], event["subject"]) for event in events} == {(DONE, f"{job}/a")}
    assert [event["sequence"] for event in events] == sorted({event["sequence"] for event in events})
    ((attempt, number, phase, data),) = await harness.rows(
        "select attempt, number, phase, data from cograil.checkpoints"
    )
    assert (attempt, number, phase, int(data)) == (2, 3, "number 3", 3)


async def test_threads_tell_too_and_what_cannot_be_told_fails_the_attempt(harness: Harness) -> None:
    def in_thread(ctx: Context) -> dict[str, Any]:
        ctx.tell(DONE, {"number": 1}, subject="from a thread")
        return {}

    async def wrong(ctx: Context) -> None:
        await ctx.tell("cograil.job.completed", {})

    async def huge(ctx: Context) -> None:
        await ctx.tell(DONE, {"text": "x" * 5_000_000})

    for handler in (in_thread, wrong, huge):
        harness.registry.register(handler)
    async with harness.running():
        nobody = {"url": "http://127.0.0.1:9999/", "events": [DONE]}
        assert (await harness.ended(await harness.submit(one("in_thread"), callback=nobody)))[
            "status"
        ] == "completed"
        assert len(await in_outbox(harness)) == 1
        for name in ("wrong", "huge"):
            ended = await harness.ended(await harness.submit(one(name)))
            assert (ended["status"], ended["error"]["code"]) == ("failed", "bad_event")


# -- fences and lost answers ----------------------------------------------------------------------------


async def test_an_attempt_that_lost_its_lease_sends_no_event_and_keeps_nothing(harness: Harness) -> None:
    nobody = {"url": "http://127.0.0.1:9999/"}
    job = await harness.submit(one("echo"), callback=nobody)
    slow = await harness.manual_worker("slow")
    old = await slow.claim_one()
    assert await tell(slow, old, event(1))
    await harness.expire_worker(slow)
    await harness.advance()
    quick = await harness.manual_worker("quick")
    new = await quick.claim_one()
    assert new.checkpoint == 1
    assert not await tell(slow, old, event(2))
    assert await tell(quick, new, event(3))
    await harness.advance()
    assert [seq for seq, _ in await in_outbox(harness)] == [1, 2]
    assert await harness.rows("select data::text from cograil.checkpoints") == [("3",)]
    assert await warnings(harness, job) == ["late_event"]
    assert await quick.report(new, {})
    await harness.advance()


async def test_told_again_after_a_lost_answer_it_is_told_once(harness: Harness) -> None:
    await harness.submit(one("echo"), callback={"url": "http://127.0.0.1:9999/"})
    worker = await harness.manual_worker()
    item = await worker.claim_one()
    same = event(1)
    assert await tell(worker, item, same)
    assert await tell(worker, item, same)
    assert await tell(worker, item, event(2)._replace(checkpoint=None))
    assert [seq for seq, _ in await in_outbox(harness)] == [1, 2]
    assert await harness.rows("select data::text, number from cograil.checkpoints") == [("1", 2)]
    await worker.report(item, {})
    await harness.advance()


async def test_an_answer_that_is_lost_on_the_way_is_asked_for_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    async def lossy(*arguments: Any) -> bool:
        tries.append(arguments[-1].mark)
        stored = await tasks.store_tell(*arguments)  # type: ignore[attr-defined]
        if len(tries) == 1:
            raise psycopg.OperationalError("the connection is gone, after the commit")
        return bool(stored)

    monkeypatch.setattr(tasks, "store_tell", tasks.add_attempt_event, raising=False)
    monkeypatch.setattr(tasks, "add_attempt_event", lossy)
    harness.registry.register(counting_aloud)
    async with harness.running():
        job = await harness.submit(one("counting_aloud"), callback={"url": "http://127.0.0.1:9999/"})
        assert (await harness.ended(job))["status"] == "completed"
    assert tries[0] == tries[1]
    assert [seq for seq, _ in await in_outbox(harness)] == [1, 2, 3]


async def test_a_handler_that_lost_its_attempt_hears_of_it(harness: Harness) -> None:
    losses: list[str] = []
    begun = asyncio.Event()
    go_on = asyncio.Event()

    async def late(ctx: Context) -> None:
        begun.set()
        await go_on.wait()
        try:
            await ctx.tell(DONE, {}, checkpoint=1)
        except AttemptLost:
            losses.append("lost")
            raise

    harness.registry.register(late)
    async with harness.worker():
        await harness.submit(one("late", attempts=1), callback={"url": "http://127.0.0.1:9999/"})
        await begun.wait()
        await harness.rows("update cograil.tasks set fence = fence + 1")
        go_on.set()
        async with asyncio.timeout(10):
            while not losses:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert await in_outbox(harness) == []


async def test_a_child_process_tells_by_its_worker(harness: Harness) -> None:
    async with harness.running():
        job = await harness.submit(one("child_tells"), callback={"url": "http://127.0.0.1:9999/"})
        assert (await harness.ended(job))["status"] == "completed"
    assert [seq for seq, _ in await in_outbox(harness)] == [1]
