"""Workers: leases, fences, lost attempts, drains; what counts and what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab import Hand, Lab, quick_settings

from cograil.model.outcome import Failed
from cograil.runners.context import AttemptLost, Context
from cograil.runners.handler_registry import Registry
from cograil.settings import Settings
from cograil.verbs import pause, tasks
from cograil.worker.worker_loop import UNREPORTED

ONE = """
workflow_id: one
nodes:
  a: {handler: %s, timeout_seconds: %s, retry: {max_attempts: %d, initial_delay_seconds: 0}}
"""


def one(handler: str = "echo", *, timeout: float = 60, attempts: int = 3) -> str:
    """A workflow of one node."""
    return ONE % (handler, timeout, attempts)


async def warnings(lab: Lab, job: str) -> list[str]:
    return [e["data"]["code"] for e in await lab.events(job) if e["event_type"] == "warning"]


# -- fences ---------------------------------------------------------------------------------------------


async def test_a_replaced_worker_reports_in_vain(lab: Lab) -> None:
    job = await lab.submit(one())
    slow = await lab.hand("slow")
    old = await slow.claim_one()
    await lab.bury(slow)
    await lab.advance()
    quick = await lab.hand("quick")
    new = await quick.claim_one()
    assert (new.attempt, new.idempotency_key) == (2, old.idempotency_key)

    before = await lab.nodes(job)
    assert not await slow.report(old, {"from": "slow"})
    await lab.advance()
    assert await lab.nodes(job) == before
    assert await warnings(lab, job) == ["late_result"]

    assert await quick.report(new, {"from": "quick"})
    await lab.advance()
    assert (await lab.job(job))["result"]["a"] == {"from": "quick"}


async def test_a_late_result_of_a_finished_job_is_recorded_and_changes_nothing(lab: Lab) -> None:
    job = await lab.submit(one())
    slow, quick = await lab.hand("slow"), await lab.hand("quick")
    old = await slow.claim_one()
    await lab.bury(slow)
    await lab.advance()
    await quick.report(await quick.claim_one(), {"from": "quick"})
    await lab.advance()
    before = await lab.job(job)
    assert not await slow.report(old, {"from": "slow"})
    assert await lab.advance() == 1
    after = await lab.job(job)
    assert {**after, "owner_id": None} == {**before, "owner_id": None}
    assert await warnings(lab, job) == ["late_result"]


async def test_a_report_with_an_old_fence_is_refused_even_from_the_same_worker(lab: Lab) -> None:
    job = await lab.submit(one())
    hand = await lab.hand()
    old = await hand.claim_one()
    await hand.put_back(old)
    new = await hand.claim_one()
    assert (new.task_id, new.attempt, new.fence) == (old.task_id, old.attempt, old.fence + 1)
    assert not await hand.report(old, {"stale": True})
    assert not await hand.checkpoint(old, {"stale": True})
    assert await hand.report(new, {"stale": False})
    await lab.advance()
    assert (await lab.job(job))["result"]["a"] == {"stale": False}


async def test_nobody_reports_the_task_of_another(lab: Lab) -> None:
    await lab.submit(one())
    owner, thief = await lab.hand("owner"), await lab.hand("thief")
    item = await owner.claim_one()
    assert not await thief.report(item, {})
    assert not await thief.checkpoint(item, {})
    assert await thief.release(item) == set()
    assert await owner.report(item, {})


async def test_a_late_checkpoint_is_refused_and_the_next_attempt_gets_the_last_good_one(lab: Lab) -> None:
    job = await lab.submit(one())
    slow = await lab.hand("slow")
    old = await slow.claim_one()
    assert await slow.checkpoint(old, {"at": 1})
    assert await slow.checkpoint(old, {"at": 2})
    await lab.bury(slow)
    assert not await slow.checkpoint(old, {"at": 3})
    await lab.advance()
    assert [code.startswith("late_") for code in await warnings(lab, job)] == [True]
    quick = await lab.hand("quick")
    new = await quick.claim_one()
    assert new.checkpoint == {"at": 2}
    assert not await slow.checkpoint(old, {"at": 4})
    assert await quick.checkpoint(new, {"at": 5})


async def test_a_handler_that_lost_its_attempt_learns_it_at_its_checkpoint(lab: Lab, eventually: Any) -> None:
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

    lab.registry.register(stubborn)
    settings = quick_settings(lease={"seconds": 60, "heartbeat_seconds": 30, "scan_seconds": 1})
    async with lab.worker(settings=settings) as worker:
        job = await lab.submit(one("stubborn"))
        await begun.wait()
        assert worker.identity is not None
        await lab.bury(Hand(lab.db, worker.identity.worker_id, worker.name))
        go_on.set()
        await eventually(lambda: met)
    assert met == [AttemptLost]
    await lab.cancel(job)
    assert await lab.rows("select * from cograil.checkpoints") == []


# -- leases ---------------------------------------------------------------------------------------------


async def test_a_heartbeat_of_a_dead_worker_does_not_bring_its_lease_back(lab: Lab) -> None:
    await lab.submit(one())
    hand = await lab.hand()
    item = await hand.claim_one()
    assert (await hand.heartbeat()).task_ids == {item.task_id}
    await lab.bury(hand)
    answer = await hand.heartbeat()
    assert (answer.is_alive, answer.task_ids) == (False, frozenset())
    await lab.advance()
    assert await hand.claim() == []
    assert await lab.rows("select state from cograil.processes where name = 'hand'") == [("dead",)]


async def test_a_worker_that_was_given_up_comes_back_as_a_new_one_and_goes_on(
    lab: Lab, eventually: Any
) -> None:
    async with lab.running(), lab.worker("revenant") as worker:
        assert worker.identity is not None
        first = worker.identity.worker_id
        await lab.rows("update cograil.processes set state = 'dead' where id = %(id)s", id=first)
        await eventually(lambda: worker.identity is not None and worker.identity.worker_id != first)
        only_here = Registry()
        only_here.register(_unique, "unique")
        worker.registry = only_here
        job = await lab.submit(one("unique"))
        assert (await lab.ended(job))["status"] == "completed"


async def _unique() -> dict[str, Any]:
    return {}


async def test_an_attempt_whose_lease_was_lost_is_stopped(lab: Lab, eventually: Any) -> None:
    stopped = asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    lab.registry.register(endless)
    async with lab.worker() as worker:
        job = await lab.submit(one("endless"))
        await eventually(lambda: _running(lab))
        assert worker.identity is not None
        await lab.bury(Hand(lab.db, worker.identity.worker_id, worker.name))
        await asyncio.wait_for(stopped.wait(), 5)
        await lab.cancel(job)


async def _running(lab: Lab) -> list[tuple[Any, ...]]:
    return await lab.rows("select id from cograil.tasks where state = 'running'")


async def test_a_silent_worker_is_replaced_by_orchestrators_alone(lab: Lab) -> None:
    async with lab.orchestrator():
        job = await lab.submit(one())
        silent = await lab.hand("silent", lease_seconds=0.3)
        await silent.checkpoint(await silent.claim_one(), {"saved": True})
        async with lab.worker():
            ended = await lab.ended(job)
    assert ended["status"] == "completed"
    started = [e["data"]["worker"] for e in await lab.events(job) if e["event_type"] == "node_started"]
    assert started == ["silent", "worker"]


async def test_three_workers_lost_to_one_task_are_enough(lab: Lab) -> None:
    job = await lab.submit(one(attempts=10))
    for attempt in (1, 2, 3):
        victim = await lab.hand(f"victim{attempt}")
        (item,) = await victim.claim() or await victim.claim_alone()
        assert item.attempt == attempt
        await lab.bury(victim)
        await lab.advance()
    assert await lab.rows("select * from cograil.tasks") == []
    ended = await lab.job(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "poison")


async def test_a_lost_attempt_counts(lab: Lab) -> None:
    job = await lab.submit(one(attempts=1))
    victim = await lab.hand()
    await victim.claim_one()
    await lab.bury(victim)
    await lab.advance()
    assert (await lab.job(job))["error"]["code"] == "worker_lost"


async def test_a_loss_and_a_failure_share_one_budget(lab: Lab) -> None:
    job = await lab.submit(one(attempts=2))
    victim = await lab.hand()
    await victim.claim_one()
    await lab.bury(victim)
    await lab.advance()
    hand = await lab.hand()
    await hand.report(await hand.claim_one(), Failed("oops", "oops"))
    await lab.advance()
    ended = await lab.job(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "oops")


# -- drains ---------------------------------------------------------------------------------------------


async def test_a_worker_that_stops_hands_back_what_it_cannot_finish(lab: Lab, eventually: Any) -> None:
    runs: list[int] = []
    keys: set[str] = set()

    async def patient(ctx: Context) -> dict[str, Any]:
        runs.append(ctx.attempt)
        keys.add(ctx.idempotency_key)
        await ctx.checkpoint({"runs": len(runs)})
        if len(runs) == 1:
            await asyncio.Event().wait()
        return {"checkpoint": ctx.checkpoint_data}

    lab.registry.register(patient)
    settings = quick_settings(worker={"grace_seconds": 0})
    async with lab.orchestrator():
        async with lab.worker("first", settings=settings):
            job = await lab.submit(one("patient", attempts=1))
            await eventually(lambda: lab.rows("select 1 from cograil.checkpoints"))
        await eventually(
            lambda: lab.rows("select 1 from cograil.tasks where state = 'ready' and attempt = 2")
        )
        async with lab.worker("second"):
            ended = await lab.ended(job)
    assert (ended["status"], ended["result"]["a"]) == ("completed", {"checkpoint": {"runs": 1}})
    assert (runs, len(keys)) == ([1, 2], 1)
    facts = [
        (e["event_type"], e["data"].get("attempt"), e["data"].get("worker")) for e in await lab.events(job)
    ]
    assert facts[4:6] == [("node_started", 1, "first"), ("warning", 1, "first")]
    assert facts[7:10] == [
        ("node_dispatched", 2, None),
        ("node_started", 2, "second"),
        ("node_completed", None, "second"),
    ]
    assert await warnings(lab, job) == ["released"]
    assert await lab.findings() == []


async def test_what_was_handed_back_goes_on_though_nobody_was_there_to_hear_it(lab: Lab) -> None:
    job = await lab.submit(one(attempts=1))
    hand = await lab.hand()
    item = await hand.claim_one()
    assert await hand.release(item) == {item.task_id}
    assert await lab.findings() == []
    assert not await hand.report(item, {"stale": True})
    await lab.advance()
    assert await lab.findings() == []
    again = await hand.claim_one()
    assert (again.attempt, again.task_id > item.task_id) == (2, True)
    await hand.report(again, {"done": True})
    await lab.advance()
    assert (await lab.job(job))["result"]["a"] == {"done": True}
    assert await warnings(lab, job) == ["released", "late_result"]


async def test_what_is_handed_back_while_its_job_is_paused_waits_for_the_end_of_the_pause(lab: Lab) -> None:
    job = await lab.submit(one(attempts=1))
    hand = await lab.hand()
    item = await hand.claim_one()
    async with lab.db.transaction("pause") as tx:
        await pause.pause_job(tx, job)
    await hand.release(item)
    await lab.advance()
    assert await lab.statuses(job) == {"a": "ready"}
    assert await lab.findings() == []
    async with lab.db.transaction("resume") as tx:
        await pause.resume_job(tx, job)
    await lab.advance()
    assert (await hand.claim_one()).attempt == 2
    assert await lab.findings() == []


async def test_a_worker_that_stops_finishes_what_it_can_within_its_grace(lab: Lab, eventually: Any) -> None:
    go_on = asyncio.Event()

    async def brief() -> dict[str, Any]:
        await go_on.wait()
        return {"done": True}

    lab.registry.register(brief)
    async with lab.orchestrator():
        async with lab.worker() as worker:
            job = await lab.submit(one("brief"))
            await eventually(lambda: _running(lab))
            worker.stop()
            later = await lab.submit(one("brief"))
            await eventually(lambda: lab.rows("select 1 from cograil.processes where state = 'draining'"))
            go_on.set()
        assert (await lab.ended(job))["result"]["a"] == {"done": True}
    assert (await lab.statuses(later)) == {"a": "dispatched"}
    assert await lab.rows("select state, fence from cograil.tasks") == [("ready", 0)]
    assert await lab.rows("select state from cograil.processes where kind = 'worker'") == [("stopped",)]


# -- slots ----------------------------------------------------------------------------------------------


class TestOneSlot:
    """A worker that runs one coroutine at a time."""

    @pytest.fixture
    def lab_settings(self) -> Settings:
        return quick_settings(worker={"concurrency": 1, "grace_seconds": 2.0})

    async def test_its_slot_is_free_while_it_reports_but_it_does_not_gather_reports_without_end(
        self, lab: Lab, eventually: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, can_report, ran = tasks.report, asyncio.Event(), []

        async def report_later(*args: Any) -> set[int]:
            await can_report.wait()
            return await real(*args)

        async def note() -> dict[str, Any]:
            ran.append(1)
            return {}

        monkeypatch.setattr(tasks, "report", report_later)
        lab.registry.register(note)
        jobs = await lab.submit_many(one("note"), [{}] * 10)
        async with lab.running():
            await eventually(lambda: len(ran) > UNREPORTED)
            heartbeats = await _heartbeats(lab)
            await eventually(lambda: _has_changed(lab, heartbeats))
            assert len(ran) == UNREPORTED + 1
            can_report.set()
            assert [(await lab.ended(job))["status"] for job in jobs] == ["completed"] * 10


async def _heartbeats(lab: Lab) -> list[tuple[Any, ...]]:
    return await lab.rows("select pulsed_at from cograil.processes where kind = 'worker'")


async def _has_changed(lab: Lab, before: list[tuple[Any, ...]]) -> bool:
    return await _heartbeats(lab) != before
