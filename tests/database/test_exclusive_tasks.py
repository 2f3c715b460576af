"""Tasks that run alone: one more loss and they are poison, so it must be their own doing."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support import child_handlers  # noqa: F401  registers the handlers, here and in the children
from tests.support.harness import Harness, quick_settings
from tests.support.one_node import one

from cograil.verbs import pause
from cograil.worker.worker_loop import Worker

LIMITED = """
workflow_id: limited
nodes:
  a: {handler: suspect, retry: {max_attempts: 10}, limits: {concurrency: 1, key: k}}
"""
PATIENT = quick_settings(
    worker={"grace_seconds": 2.0, "concurrency": 2},
    lease={"seconds": 90, "heartbeat_seconds": 30, "scan_seconds": 0.2},
)
IS_ALONE = "select is_alone, state from cograil.tasks order by id"


async def lose(harness: Harness, handler: str = "echo") -> None:
    """A worker dies over a task of this handler."""
    victim = await harness.manual_worker("victim")
    async with asyncio.timeout(10):
        while not await victim.claim(handlers=[handler]):  # an orchestrator may be about to hand it out
            await harness.advance()
    await harness.expire_worker(victim)
    await harness.advance()


async def lose_twice(harness: Harness, handler: str = "echo") -> str:
    """A job of one node that two workers died over: what it waits for now is to run alone."""
    job = await harness.submit(one(handler, attempts=10))
    await lose(harness, handler)
    await lose(harness, handler)
    return job


# -- claims -----------------------------------------------------------------------------------------------


async def test_the_last_chance_is_given_only_to_a_worker_that_holds_nothing(harness: Harness) -> None:
    suspect = await lose_twice(harness)
    await harness.submit_many(one(), [{}] * 3)
    busy, empty = await harness.manual_worker("busy"), await harness.manual_worker("empty")
    (held,) = await busy.claim()
    assert await busy.claim_alone() == []
    (item,) = await empty.claim_alone()
    assert (item.job_id, item.attempt) == (suspect, 3)
    assert await empty.claim() == [], "nothing beside it, even if the worker asks"
    assert await empty.claim_alone() == []
    assert await empty.report(item, {"done": True})
    assert len(await empty.claim()) == 1
    assert await busy.report(held, {})
    await harness.advance()
    assert (await harness.job(suspect))["status"] == "completed"


async def test_no_ordinary_claim_takes_a_task_that_must_run_alone(harness: Harness) -> None:
    suspect = await lose_twice(harness)
    later = await harness.submit(one())
    assert [item.job_id for item in await (await harness.manual_worker()).claim(10)] == [later]
    assert [item.job_id for item in await (await harness.manual_worker()).claim_alone()] == [suspect]


async def test_exclusive_tasks_are_taken_one_by_one_the_most_urgent_first(harness: Harness) -> None:
    plain = await lose_twice(harness)
    manual_worker = await harness.manual_worker()
    urgent = await harness.submit(one(), priority=5)
    await harness.rows("update cograil.tasks set is_alone = true")
    taken = []
    for _ in range(2):
        (item,) = await manual_worker.claim_alone()
        taken.append(item.job_id)
        await manual_worker.report(item, {})
    assert taken == [urgent, plain]


async def test_queues_and_their_pauses_hold_for_them_too(harness: Harness) -> None:
    await lose_twice(harness)
    manual_worker = await harness.manual_worker()
    assert await manual_worker.claim_alone(queues=["other"]) == []
    async with harness.db.transaction("pause") as tx:
        await pause.pause_queue(tx, "default")
    assert await manual_worker.claim_alone() == []
    assert not (await manual_worker.heartbeat()).has_alone_tasks
    async with harness.db.transaction("resume") as tx:
        await pause.resume_queue(tx, "default")
    assert len(await manual_worker.claim_alone(queues=["default"])) == 1


async def test_a_dead_worker_gets_none(harness: Harness) -> None:
    manual_worker = await harness.manual_worker()
    await harness.expire_worker(manual_worker)
    await lose_twice(harness)
    assert await manual_worker.claim_alone() == []


async def test_given_back_it_still_must_run_alone(harness: Harness) -> None:
    job = await lose_twice(harness)
    manual_worker = await harness.manual_worker()
    await manual_worker.release(*await manual_worker.claim_alone())
    await harness.advance()
    assert await manual_worker.claim() == []
    (item,) = await manual_worker.claim_alone()
    async with harness.worker(settings=PATIENT), harness.orchestrator():
        await manual_worker.release(item)
        assert (await harness.ended(job, timeout=10))["status"] == "completed", "others were told at once"


async def test_under_a_limit_it_waits_for_a_place_first(harness: Harness, eventually: Any) -> None:
    crew = Crew(harness)
    crew.open("suspect 0")
    async with harness.orchestrator():
        job = await harness.submit(LIMITED)
        await lose(harness, "suspect")
        victim = await harness.manual_worker("victim")
        await eventually(victim.claim)
        async with harness.worker(settings=PATIENT):
            await harness.expire_worker(victim)
            assert (await harness.ended(job, timeout=10))["status"] == "completed"
    assert crew.begun == ["suspect 0"]


async def test_the_third_loss_alone_is_poison_and_every_attempt_says_that_it_failed(harness: Harness) -> None:
    job = await lose_twice(harness)
    manual_worker = await harness.manual_worker()
    await manual_worker.claim_alone()
    await harness.expire_worker(manual_worker)
    await harness.advance()
    ended = await harness.job(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "poison")
    failed = [e["data"] for e in await harness.events(job) if e["event_type"] == "task_failed"]
    assert [(e["attempt"], e["will_retry"]) for e in failed] == [(1, True), (2, True), (3, False)]
    assert {e["error"]["code"] for e in failed} == {"worker_lost"}


async def test_whose_children_die_is_not_held_for_a_killer_of_workers(harness: Harness) -> None:
    """The child dies and not the worker: that is a failed attempt, and no loss."""
    text = one("child_dies", attempts=4).replace("timeout_seconds", "params: {how: SIGKILL}, timeout_seconds")
    async with harness.running():
        job = await harness.submit(text)
        assert (await harness.ended(job))["status"] == "completed"
    assert await harness.rows("select lost from cograil.nodes where lost > 0") == []


# -- who makes room ---------------------------------------------------------------------------------------


async def test_the_youngest_worker_that_can_run_an_exclusive_task_makes_room(harness: Harness) -> None:
    old, young = await harness.manual_worker("old"), await harness.manual_worker("young")
    other_queue = await harness.manual_worker("other", queues=["other"])
    seen = [await manual_worker.heartbeat() for manual_worker in (old, young, other_queue)]
    assert [(heartbeat.has_alone_tasks, heartbeat.makes_room) for heartbeat in seen] == [(False, False)] * 3
    await lose_twice(harness)
    seen = [await manual_worker.heartbeat() for manual_worker in (old, young, other_queue)]
    assert [heartbeat.has_alone_tasks for heartbeat in seen] == [True, True, False]
    assert [heartbeat.makes_room for heartbeat in seen] == [False, True, False]
    assert not any(heartbeat.has_ready_tasks for heartbeat in seen), "for others there is nothing to claim"
    await harness.expire_worker(young)
    assert (await old.heartbeat()).makes_room
    await old.claim_alone()
    assert not (await old.heartbeat()).has_alone_tasks


class Crew:
    """Handlers that tell in which order they began, and wait until they may end."""

    def __init__(self, harness: Harness) -> None:
        self.begun: list[str] = []
        self.may_end: dict[str, asyncio.Event] = {}
        for name in ("ordinary", "suspect"):
            harness.registry.register(self._handler(name), name)

    def _handler(self, name: str) -> Any:
        async def run(number: int = 0) -> dict[str, Any]:
            label = f"{name} {number}"
            self.begun.append(label)
            await self.gate(label).wait()
            return {}

        return run

    def gate(self, label: str) -> asyncio.Event:
        return self.may_end.setdefault(label, asyncio.Event())

    def open(self, *labels: str) -> None:
        for label in labels:
            self.gate(label).set()


def ordinary(number: int) -> str:
    return f"workflow_id: o\nnodes:\n  a: {{handler: ordinary, params: {{number: {number}}}}}\n"


async def at_work(harness: Harness, worker: Worker) -> int:
    assert worker.identity is not None
    query = "select 1 from cograil.tasks where worker_id = %(id)s and state = 'running'"
    return len(await harness.rows(query, id=worker.identity.worker_id))


async def test_a_busy_worker_lets_a_task_through_that_must_run_alone(
    harness: Harness, eventually: Any
) -> None:
    """Its heartbeats are half a minute apart: it is a notice that makes it look."""
    crew = Crew(harness)
    async with harness.orchestrator(), harness.worker(settings=PATIENT) as worker:
        jobs = [await harness.submit(ordinary(number)) for number in range(6)]
        await eventually(lambda: len(crew.begun) == 2)
        suspect = await lose_twice(harness, "suspect")
        await eventually(lambda: worker._claimer.makes_room)
        crew.open(*[f"ordinary {number}" for number in range(1, 6)])
        await eventually(lambda: _is_down_to(harness, worker, 1))
        crew.open("ordinary 0")
        await eventually(lambda: "suspect 0" in crew.begun)
        assert crew.begun == ["ordinary 0", "ordinary 1", "suspect 0"], "four others were ready all the time"
        assert await at_work(harness, worker) == 1
        crew.open("suspect 0")
        assert (await harness.ended(suspect))["status"] == "completed"
        for job in jobs:
            assert (await harness.ended(job))["status"] == "completed"


async def _is_down_to(harness: Harness, worker: Worker, count: int) -> bool:
    return await at_work(harness, worker) == count


async def test_an_idle_worker_takes_it_at_once(harness: Harness) -> None:
    """Nor does it wait for its next heartbeat."""
    crew = Crew(harness)
    crew.open("suspect 0")
    job = await harness.submit(one("suspect", attempts=10))
    await lose(harness, "suspect")
    victim = await harness.manual_worker("victim")
    await victim.claim()
    async with harness.orchestrator(), harness.worker(settings=PATIENT):
        await harness.expire_worker(victim)
        assert (await harness.ended(job, timeout=10))["status"] == "completed"
    assert crew.begun == ["suspect 0"]


async def test_a_worker_that_starts_takes_it_before_all_others(harness: Harness, eventually: Any) -> None:
    crew = Crew(harness)
    await harness.submit(ordinary(0))
    await lose_twice(harness, "suspect")
    async with harness.orchestrator(), harness.worker() as worker:
        await eventually(lambda: crew.begun)
        assert crew.begun == ["suspect 0"]
        assert await at_work(harness, worker) == 1
        crew.open("suspect 0", "ordinary 0")
        await eventually(lambda: crew.begun == ["suspect 0", "ordinary 0"])


async def test_exclusive_tasks_run_one_after_the_other_and_not_beside_others(
    harness: Harness, eventually: Any
) -> None:
    crew = Crew(harness)
    for _ in range(3):
        await harness.submit(one("suspect"))
    await harness.rows("update cograil.tasks set is_alone = true")
    async with harness.orchestrator(), harness.worker() as worker:
        await eventually(lambda: crew.begun)
        assert await at_work(harness, worker) == 1
        crew.open("suspect 0")
        await eventually(lambda: len(crew.begun) == 3)
        await eventually(lambda: _is_down_to(harness, worker, 0))


# -- in words ---------------------------------------------------------------------------------------------


async def test_explain_says_that_it_waits_to_run_alone_and_that_there_is_nothing_to_do(
    harness: Harness,
) -> None:
    job = await lose_twice(harness)
    manual_worker = await harness.manual_worker()
    (blocker,) = (await harness.explain(job)).blockers
    assert (blocker.kind, blocker.node_id) == ("alone", "a")
    assert "a is queued to run alone: workers died while running it" in blocker.message
    assert "no action is needed, it starts as soon as a worker is idle" in blocker.message
    other = await harness.submit(one())
    assert (await harness.explain(other)).blockers[0].data["ahead"] == 0, "it is in nobody's way"
    await manual_worker.claim_alone()
    assert [blocker.kind for blocker in (await harness.explain(job)).blockers] == ["running"]
