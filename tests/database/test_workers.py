"""Workers: leases, fences, lost attempts, drains; what counts and what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.harness import Harness, ManualWorker, quick_settings
from tests.support.one_node import one, warnings

from cograil.model.outcome import Failed
from cograil.runners.context import AttemptLost, Context
from cograil.runners.handler_registry import Registry
from cograil.settings import Settings
from cograil.verbs import pause, tasks
from cograil.worker.worker_loop import UNREPORTED

# -- fences ---------------------------------------------------------------------------------------------


async def test_a_replaced_worker_reports_in_vain(harness: Harness) -> None:
    job = await harness.submit(one())
    slow = await harness.manual_worker("slow")
    old = await slow.claim_one()
    await harness.expire_worker(slow)
    await harness.advance()
    quick = await harness.manual_worker("quick")
    new = await quick.claim_one()
    assert (new.attempt, new.idempotency_key) == (2, old.idempotency_key)

    before = await harness.nodes(job)
    assert not await slow.report(old, {"from": "slow"})
    await harness.advance()
    assert await harness.nodes(job) == before
    assert await warnings(harness, job) == ["late_result"]

    assert await quick.report(new, {"from": "quick"})
    await harness.advance()
    assert (await harness.job(job))["result"]["a"] == {"from": "quick"}


async def test_a_late_result_of_a_finished_job_is_recorded_and_changes_nothing(harness: Harness) -> None:
    job = await harness.submit(one())
    slow, quick = await harness.manual_worker("slow"), await harness.manual_worker("quick")
    old = await slow.claim_one()
    await harness.expire_worker(slow)
    await harness.advance()
    await quick.report(await quick.claim_one(), {"from": "quick"})
    await harness.advance()
    before = await harness.job(job)
    assert not await slow.report(old, {"from": "slow"})
    assert await harness.advance() == 1
    after = await harness.job(job)
    assert {**after, "owner_id": None} == {**before, "owner_id": None}
    assert await warnings(harness, job) == ["late_result"]


async def test_a_report_with_an_old_fence_is_refused_even_from_the_same_worker(harness: Harness) -> None:
    job = await harness.submit(one())
    manual_worker = await harness.manual_worker()
    old = await manual_worker.claim_one()
    await manual_worker.put_back(old)
    new = await manual_worker.claim_one()
    assert (new.task_id, new.attempt, new.fence) == (old.task_id, old.attempt, old.fence + 1)
    assert not await manual_worker.report(old, {"stale": True})
    assert not await manual_worker.checkpoint(old, {"stale": True})
    assert await manual_worker.report(new, {"stale": False})
    await harness.advance()
    assert (await harness.job(job))["result"]["a"] == {"stale": False}


async def test_nobody_reports_the_task_of_another(harness: Harness) -> None:
    await harness.submit(one())
    owner, thief = await harness.manual_worker("owner"), await harness.manual_worker("thief")
    item = await owner.claim_one()
    assert not await thief.report(item, {})
    assert not await thief.checkpoint(item, {})
    assert await thief.release(item) == set()
    assert await owner.report(item, {})


async def test_a_late_checkpoint_is_refused_and_the_next_attempt_gets_the_last_good_one(
    harness: Harness,
) -> None:
    job = await harness.submit(one())
    slow = await harness.manual_worker("slow")
    old = await slow.claim_one()
    assert await slow.checkpoint(old, {"at": 1})
    assert await slow.checkpoint(old, {"at": 2})
    await harness.expire_worker(slow)
    assert not await slow.checkpoint(old, {"at": 3})
    await harness.advance()
    assert [code.startswith("late_") for code in await warnings(harness, job)] == [True]
    quick = await harness.manual_worker("quick")
    new = await quick.claim_one()
    assert new.checkpoint == {"at": 2}
    assert not await slow.checkpoint(old, {"at": 4})
    assert await quick.checkpoint(new, {"at": 5})


async def test_a_handler_that_lost_its_attempt_learns_it_at_its_checkpoint(
    harness: Harness, eventually: Any
) -> None:
    met: list[type[BaseException]] = []
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def stubborn(ctx: Context) -> dict[str, Any]:
        begun.set()
        await go_on.wait()
        try:
            await ctx.checkpoint({"at": 1})
        except BaseException as error:
            met.append(type(error))
            raise
        return {}

    harness.registry.register(stubborn)
    settings = quick_settings(lease={"seconds": 60, "heartbeat_seconds": 30, "scan_seconds": 1})
    async with harness.worker(settings=settings) as worker:
        job = await harness.submit(one("stubborn"))
        await begun.wait()
        assert worker.identity is not None
        await harness.expire_worker(ManualWorker(harness.db, worker.identity.worker_id, worker.name))
        go_on.set()
        await eventually(lambda: met)
    assert met == [AttemptLost]
    await harness.cancel(job)
    assert await harness.rows("select * from cograil.checkpoints") == []


# -- leases ---------------------------------------------------------------------------------------------


async def test_a_heartbeat_of_a_dead_worker_does_not_bring_its_lease_back(harness: Harness) -> None:
    await harness.submit(one())
    manual_worker = await harness.manual_worker()
    item = await manual_worker.claim_one()
    assert (await manual_worker.heartbeat()).task_ids == {item.task_id}
    await harness.expire_worker(manual_worker)
    answer = await manual_worker.heartbeat()
    assert (answer.is_alive, answer.task_ids) == (False, frozenset())
    await harness.advance()
    assert await manual_worker.claim() == []
    assert await harness.rows("select state from cograil.processes where name = 'manual'") == [("dead",)]


async def test_a_worker_that_was_given_up_comes_back_as_a_new_one_and_goes_on(
    harness: Harness, eventually: Any
) -> None:
    async with harness.running(), harness.worker("revenant") as worker:
        assert worker.identity is not None
        first = worker.identity.worker_id
        await harness.rows("update cograil.processes set state = 'dead' where id = %(id)s", id=first)
        await eventually(lambda: worker.identity is not None and worker.identity.worker_id != first)
        only_here = Registry()
        only_here.register(_unique, "unique")
        worker.registry = only_here
        job = await harness.submit(one("unique"))
        assert (await harness.ended(job))["status"] == "completed"


async def _unique() -> dict[str, Any]:
    return {}


async def test_an_attempt_whose_lease_was_lost_is_stopped(harness: Harness, eventually: Any) -> None:
    stopped = asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    harness.registry.register(endless)
    async with harness.worker() as worker:
        job = await harness.submit(one("endless"))
        await eventually(lambda: _running(harness))
        assert worker.identity is not None
        await harness.expire_worker(ManualWorker(harness.db, worker.identity.worker_id, worker.name))
        await asyncio.wait_for(stopped.wait(), 5)
        await harness.cancel(job)


async def _running(harness: Harness) -> list[tuple[Any, ...]]:
    return await harness.rows("select id from cograil.tasks where state = 'running'")


async def test_a_silent_worker_is_replaced_by_orchestrators_alone(harness: Harness) -> None:
    async with harness.orchestrator():
        job = await harness.submit(one())
        silent = await harness.manual_worker("silent", lease_seconds=0.3)
        await silent.checkpoint(await silent.claim_one(), {"saved": True})
        async with harness.worker():
            ended = await harness.ended(job)
    assert ended["status"] == "completed"
    started = [e["data"]["worker"] for e in await harness.events(job) if e["event_type"] == "node_started"]
    assert started == ["silent", "worker"]


async def test_three_workers_lost_to_one_task_are_enough(harness: Harness) -> None:
    job = await harness.submit(one(attempts=10))
    for attempt in (1, 2, 3):
        victim = await harness.manual_worker(f"victim{attempt}")
        (item,) = await victim.claim() or await victim.claim_alone()
        assert item.attempt == attempt
        await harness.expire_worker(victim)
        await harness.advance()
    assert await harness.rows("select * from cograil.tasks") == []
    ended = await harness.job(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "poison")


async def test_a_lost_attempt_counts(harness: Harness) -> None:
    job = await harness.submit(one(attempts=1))
    victim = await harness.manual_worker()
    await victim.claim_one()
    await harness.expire_worker(victim)
    await harness.advance()
    assert (await harness.job(job))["error"]["code"] == "worker_lost"


async def test_a_loss_and_a_failure_share_one_budget(harness: Harness) -> None:
    job = await harness.submit(one(attempts=2))
    victim = await harness.manual_worker()
    await victim.claim_one()
    await harness.expire_worker(victim)
    await harness.advance()
    manual_worker = await harness.manual_worker()
    await manual_worker.report(await manual_worker.claim_one(), Failed("oops", "oops"))
    await harness.advance()
    ended = await harness.job(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "oops")


# -- drains ---------------------------------------------------------------------------------------------


async def test_a_worker_that_stops_hands_back_what_it_cannot_finish(
    harness: Harness, eventually: Any
) -> None:
    runs: list[int] = []
    keys: set[str] = set()

    async def patient(ctx: Context) -> dict[str, Any]:
        runs.append(ctx.attempt)
        keys.add(ctx.idempotency_key)
        await ctx.checkpoint({"runs": len(runs)})
        if len(runs) == 1:
            await asyncio.Event().wait()
        return {"checkpoint": ctx.checkpoint_data}

    harness.registry.register(patient)
    settings = quick_settings(worker={"grace_seconds": 0})
    async with harness.orchestrator():
        async with harness.worker("first", settings=settings):
            job = await harness.submit(one("patient", attempts=1))
            await eventually(lambda: harness.rows("select 1 from cograil.checkpoints"))
        await eventually(
            lambda: harness.rows("select 1 from cograil.tasks where state = 'ready' and attempt = 2")
        )
        async with harness.worker("second"):
            ended = await harness.ended(job)
    assert (ended["status"], ended["result"]["a"]) == ("completed", {"checkpoint": {"runs": 1}})
    assert (runs, len(keys)) == ([1, 2], 1)
    facts = [
        (e["event_type"], e["data"].get("attempt"), e["data"].get("worker"))
        for e in await harness.events(job)
    ]
    assert facts[4:6] == [("node_started", 1, "first"), ("warning", 1, "first")]
    assert facts[7:10] == [
        ("node_dispatched", 2, None),
        ("node_started", 2, "second"),
        ("node_completed", None, "second"),
    ]
    assert await warnings(harness, job) == ["released"]
    assert await harness.findings() == []


async def test_a_released_task_goes_on_though_nobody_heard_of_it(harness: Harness) -> None:
    job = await harness.submit(one(attempts=1))
    manual_worker = await harness.manual_worker()
    item = await manual_worker.claim_one()
    assert await manual_worker.release(item) == {item.task_id}
    assert await harness.findings() == []
    assert not await manual_worker.report(item, {"stale": True})
    await harness.advance()
    assert await harness.findings() == []
    again = await manual_worker.claim_one()
    assert (again.attempt, again.task_id > item.task_id) == (2, True)
    await manual_worker.report(again, {"done": True})
    await harness.advance()
    assert (await harness.job(job))["result"]["a"] == {"done": True}
    assert await warnings(harness, job) == ["released", "late_result"]


async def test_a_task_released_while_its_job_is_paused_waits_for_the_end_of_the_pause(
    harness: Harness,
) -> None:
    job = await harness.submit(one(attempts=1))
    manual_worker = await harness.manual_worker()
    item = await manual_worker.claim_one()
    async with harness.db.transaction("pause") as tx:
        await pause.pause_job(tx, job)
    await manual_worker.release(item)
    await harness.advance()
    assert await harness.statuses(job) == {"a": "ready"}
    assert await harness.findings() == []
    async with harness.db.transaction("resume") as tx:
        await pause.resume_job(tx, job)
    await harness.advance()
    assert (await manual_worker.claim_one()).attempt == 2
    assert await harness.findings() == []


async def test_a_worker_that_stops_finishes_what_it_can_within_its_grace(
    harness: Harness, eventually: Any
) -> None:
    go_on = asyncio.Event()

    async def brief() -> dict[str, Any]:
        await go_on.wait()
        return {"done": True}

    harness.registry.register(brief)
    async with harness.orchestrator():
        async with harness.worker() as worker:
            job = await harness.submit(one("brief"))
            await eventually(lambda: _running(harness))
            worker.stop()
            later = await harness.submit(one("brief"))
            await eventually(lambda: harness.rows("select 1 from cograil.processes where state = 'draining'"))
            go_on.set()
        assert (await harness.ended(job))["result"]["a"] == {"done": True}
    assert (await harness.statuses(later)) == {"a": "dispatched"}
    assert await harness.rows("select state, fence from cograil.tasks") == [("ready", 0)]
    assert await harness.rows("select state from cograil.processes where kind = 'worker'") == [("stopped",)]


# -- slots ----------------------------------------------------------------------------------------------


class TestOneSlot:
    """A worker that runs one coroutine at a time."""

    @pytest.fixture
    def harness_settings(self) -> Settings:
        return quick_settings(worker={"concurrency": 1, "grace_seconds": 2.0})

    async def test_its_slot_is_free_while_it_reports_but_it_does_not_gather_reports_without_end(
        self, harness: Harness, eventually: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, can_report, ran = tasks.report, asyncio.Event(), []

        async def report_later(*args: Any) -> set[int]:
            await can_report.wait()
            return await real(*args)

        async def note() -> dict[str, Any]:
            ran.append(1)
            return {}

        monkeypatch.setattr(tasks, "report", report_later)
        harness.registry.register(note)
        jobs = await harness.submit_many(one("note"), [{}] * 10)
        async with harness.running():
            await eventually(lambda: len(ran) > UNREPORTED)
            heartbeats = await _heartbeats(harness)
            await eventually(lambda: _has_changed(harness, heartbeats))
            assert len(ran) == UNREPORTED + 1
            can_report.set()
            assert [(await harness.ended(job))["status"] for job in jobs] == ["completed"] * 10


async def _heartbeats(harness: Harness) -> list[tuple[Any, ...]]:
    return await harness.rows("select pulsed_at from cograil.processes where kind = 'worker'")


async def _has_changed(harness: Harness, before: list[tuple[Any, ...]]) -> bool:
    return await _heartbeats(harness) != before
