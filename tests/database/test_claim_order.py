"""What workers claim: of some handlers a limited number at a time, and first the jobs that have begun."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.harness import Harness
from tests.support.one_node import one

from cograil.runners.handler_registry import Registry
from cograil.store import monitoring_queries

BOX = """
workflow_id: box
nodes:
  box: {type: container, container: {image: any}}
"""


async def test_a_handler_of_which_few_are_taken_leaves_slots_to_others_and_is_gone_on_with(
    harness: Harness, eventually: Any
) -> None:
    """Five that wait for each other's end, and a worker with three slots."""
    running: list[str] = []
    most, may_end = 0, asyncio.Event()

    async def patient(ctx: Any) -> dict[str, str]:
        nonlocal most
        running.append(ctx.job_id)
        most = max(most, len(running))
        await may_end.wait()
        running.remove(ctx.job_id)
        return {}

    async def quick() -> dict[str, str]:
        return {}

    harness.registry = Registry()
    harness.registry.register(patient, most=2)
    harness.registry.register(quick)
    worker = harness.settings.worker.model_copy(update={"concurrency": 3})
    harness.settings = harness.settings.model_copy(update={"worker": worker})
    slow = await harness.submit_many(one("patient"), [{}] * 5)
    async with harness.running():
        await eventually(lambda: len(running) == 2)
        for _ in range(3):
            assert (await harness.ended(await harness.submit(one("quick"))))["status"] == "completed"
        may_end.set()
        for job in slow:
            assert (await harness.ended(job))["status"] == "completed"
    assert most == 2


@pytest.mark.parametrize("loss", ["released", "lost"])
async def test_a_task_that_had_begun_is_claimed_before_new_ones(harness: Harness, loss: str) -> None:
    first = await harness.submit(BOX)
    manual_worker = await harness.manual_worker()
    item = await manual_worker.claim_one()
    second, urgent = await harness.submit(BOX), await harness.submit(BOX, priority=10)
    if loss == "lost":
        await harness.expire_worker(manual_worker)
    else:
        await manual_worker.release(item)
    await harness.advance()
    next_worker = await harness.manual_worker("next")
    assert [(await next_worker.claim_one()).job_id for _ in range(3)] == [first, urgent, second]
    for state in (None, "running"):
        async with harness.db.single("test") as tx:
            tasks, _ = await monitoring_queries.live_tasks(
                tx, "default", state=state, queue=None, handler=None, worker=None, before=None, limit=9
            )
        assert {task["job_id"]: task["priority"] for task in tasks} == {first: 0, urgent: 10, second: 0}
