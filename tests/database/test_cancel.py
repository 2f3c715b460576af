"""Cancel: in every state, races with results in both orders, and what running code hears of it."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from lab import Hand, Lab, quick_settings
from test_workers import one

from cograil.errors import AlreadyTerminal, JobNotFound
from cograil.model.outcome import Failed
from cograil.runners.context import Context
from cograil.store import locked_jobs as store
from cograil.store import task_queries
from cograil.verbs.cancel import cancel
from cograil.verbs.tasks import Heartbeat

CHAIN = "workflow_id: chain\nnodes:\n  a: {handler: echo, next: b}\n  b: {handler: echo}\n"


async def is_cancelled(lab: Lab, job: str) -> None:
    """The job is cancelled and stays so, whatever orchestrators and workers still do."""
    ended = await lab.job(job)
    assert (ended["status"], ended["error"]["code"]) == ("cancelled", "cancelled")
    assert set((await lab.statuses(job)).values()) <= {"cancelled", "completed", "failed", "skipped"}
    assert await lab.rows("select 1 from cograil.tasks where job_id = %(id)s", id=job) == []
    before = await lab.events(job)
    await lab.tick()
    await lab.advance()
    assert await (await lab.hand("scavenger")).claim(100) == []
    assert await lab.events(job) == before
    assert (await lab.event_types(job))[-1] == "job_cancelled"
    with pytest.raises(AlreadyTerminal, match="already cancelled"):
        await lab.cancel(job)


async def test_a_job_that_is_held_back_can_be_cancelled(lab: Lab) -> None:
    job = await lab.submit(CHAIN, not_before=datetime.now(UTC) + timedelta(hours=1))
    assert await lab.cancel(job, by="me", reason="no need") == "cancelled"
    await is_cancelled(lab, job)
    assert (await lab.events(job))[-1]["data"] == {"by": "me", "reason": "no need"}
    assert (await lab.job(job))["error"]["message"] == "no need"


async def test_a_queued_job_can_be_cancelled(lab: Lab) -> None:
    job = await lab.submit(CHAIN)
    await lab.cancel(job)
    await is_cancelled(lab, job)


async def test_a_running_job_can_be_cancelled(lab: Lab) -> None:
    job = await lab.submit(CHAIN)
    hand = await lab.hand()
    item = await hand.claim_one()
    await lab.cancel(job)
    assert (await hand.heartbeat()).task_ids == frozenset()
    await is_cancelled(lab, job)
    assert not await hand.report(item, {})


async def test_a_job_between_two_nodes_can_be_cancelled(lab: Lab) -> None:
    job = await lab.submit(CHAIN)
    hand = await lab.hand()
    await hand.report(await hand.claim_one(), {})
    assert await lab.cancel(job) == "cancelled"
    assert (await lab.statuses(job)) == {"a": "completed", "b": "cancelled"}
    await is_cancelled(lab, job)


async def test_a_job_in_backoff_can_be_cancelled(lab: Lab) -> None:
    job = await lab.submit(CHAIN)
    hand = await lab.hand()
    await hand.report(await hand.claim_one(), Failed("oops", "no"))
    await lab.advance()
    assert (await lab.statuses(job))["a"] == "ready"
    await lab.cancel(job)
    await is_cancelled(lab, job)


async def test_a_waiting_job_can_be_cancelled(lab: Lab) -> None:
    job = await lab.submit("workflow_id: w\nnodes:\n  a: {type: wait, wait: {seconds: 3600}}\n")
    assert (await lab.statuses(job))["a"] == "waiting"
    await lab.cancel(job)
    await is_cancelled(lab, job)


FAN = """
workflow_id: fan
nodes:
  split:
    type: fan_out
    source: "{{ inputs.items }}"
    task: {handler: echo, retry: {max_attempts: 2}}
    next: gather
  gather: {type: fan_in}
"""

MORE = "insert into cograil.inbox (job_id, kind, node_id) values (%(id)s, 'more', 'split')"


async def test_a_half_expanded_fan_out_can_be_cancelled_with_all_its_children(lab: Lab) -> None:
    job = await lab.submit(FAN, {"items": list(range(1500))})
    hand = await lab.hand()
    done, failed, running = await hand.claim(3)
    await hand.report(done, {})
    await hand.report(failed, Failed("oops", "no"))
    await lab.rows("delete from cograil.inbox where kind = 'more'")  # as if it had not come yet
    await lab.advance()
    await lab.rows(MORE, id=job)
    await lab.cancel(job)
    statuses = await lab.statuses(job)
    assert (statuses["split"], statuses["gather"]) == ("cancelled", "cancelled")
    children = [status for name, status in statuses.items() if name.startswith("split__")]
    assert (len(children), children.count("completed"), children.count("cancelled")) == (1000, 1, 999)
    await is_cancelled(lab, job)
    assert not await hand.report(running, {})


async def test_a_result_that_was_reported_before_counts(lab: Lab) -> None:
    """It came first: the job is completed, and saying so is the answer to the cancel."""
    job = await lab.submit(one())
    hand = await lab.hand()
    await hand.report(await hand.claim_one(), {"done": True})
    assert await lab.cancel(job) == "completed"
    assert (await lab.job(job))["result"]["a"] == {"done": True}


async def test_a_result_that_comes_after_is_refused_and_recorded(lab: Lab) -> None:
    job = await lab.submit(one())
    hand = await lab.hand()
    item = await hand.claim_one()
    await lab.cancel(job)
    assert not await hand.report(item, {"done": True})
    await lab.advance()
    assert (await lab.job(job))["status"] == "cancelled"
    assert (await lab.job(job))["result"] is None
    assert (await lab.events(job))[-1]["data"]["code"] == "late_result"


async def test_a_cancel_waits_for_a_report_that_is_being_written(lab: Lab, eventually: Any) -> None:
    """The report has deleted its task and not committed: revoking without waiting would overlook it."""
    job = await lab.submit(one())
    hand = await lab.hand()
    item = await hand.claim_one()
    async with lab.db.transaction("report") as tx:
        assert await task_queries.report_tasks(
            tx, hand.worker_id, "hand", [hand.outcome(item, {"done": True})]
        )
        cancelling = asyncio.create_task(lab.cancel(job))
        await eventually(lambda: lab.rows("select 1 from pg_locks where not granted"))
        assert not cancelling.done()
    assert await cancelling == "completed"


async def test_a_report_waits_for_a_cancel_that_is_being_written_and_is_late(
    lab: Lab, eventually: Any
) -> None:
    job = await lab.submit(one())
    hand = await lab.hand()
    item = await hand.claim_one()
    async with lab.db.transaction("cancel") as tx:
        assert await cancel(tx, lab.engine_context, job) == "cancelled"
        reporting = asyncio.create_task(hand.report(item, {"done": True}))
        await eventually(lambda: lab.rows("select 1 from pg_locks where not granted"))
    assert not await reporting
    await lab.advance()
    assert (await lab.job(job))["status"] == "cancelled"


async def test_a_cancel_and_an_advance_take_turns(lab: Lab, eventually: Any) -> None:
    job = await lab.submit(CHAIN)
    async with lab.db.transaction("advance") as tx:
        await store.lock_jobs(tx, [job])
        cancelling = asyncio.create_task(lab.cancel(job))
        await eventually(lambda: lab.rows("select 1 from pg_locks where not granted"))
        assert await lab.advance() == 0
    assert await cancelling == "cancelled"


@pytest.mark.parametrize("status", ["completed", "failed"])
async def test_a_finished_job_is_not_cancelled(lab: Lab, status: str) -> None:
    job = await lab.submit(one(attempts=1))
    hand = await lab.hand()
    await hand.report(await hand.claim_one(), {} if status == "completed" else Failed("oops", "no"))
    await lab.advance()
    with pytest.raises(AlreadyTerminal, match=status):
        await lab.cancel(job)


@pytest.mark.parametrize("job_id", ["01a1e3c1-ac60-766a-80be-62fc2b743b93", "nonsense", "", "{}"])
async def test_an_unknown_job_is_not_found(lab: Lab, job_id: str) -> None:
    with pytest.raises(JobNotFound):
        await lab.cancel(job_id)


# -- what running code hears ------------------------------------------------------------------------------


async def test_a_coroutine_is_stopped_at_once(lab: Lab, eventually: Any) -> None:
    """The heartbeat is far away: the notice of the cancel hurries it."""
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    lab.registry.register(endless)
    slow = quick_settings(lease={"seconds": 60, "heartbeat_seconds": 30, "scan_seconds": 30})
    async with lab.orchestrator(), lab.worker(settings=slow):
        job = await lab.submit(one("endless"))
        await begun.wait()
        assert await lab.cancel(job) == "cancelled"
        await asyncio.wait_for(stopped.wait(), 5)
        await eventually(lambda: _is_idle(lab))
    assert (await lab.event_types(job))[-1] == "job_cancelled"


async def test_a_thread_sees_it_in_its_context(lab: Lab) -> None:
    begun, seen = threading.Event(), threading.Event()

    def polling(ctx: Context) -> dict[str, Any]:
        begun.set()
        while not ctx.cancelled:
            time.sleep(0.005)  # a plain function has nothing to wait on
        seen.set()
        return {"ignored": True}

    lab.registry.register(polling)
    async with lab.running():
        job = await lab.submit(one("polling"))
        assert await asyncio.to_thread(begun.wait, 5)
        await lab.cancel(job)
        assert await asyncio.to_thread(seen.wait, 5)
    await is_cancelled(lab, job)


async def _is_idle(lab: Lab) -> bool:
    return not await lab.rows("select 1 from cograil.tasks where state = 'running'")


async def test_a_cancel_reaches_a_worker_that_is_busy_claiming(lab: Lab) -> None:
    """An answer that is older than the latest claim still tells of attempts that are older than itself."""
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    lab.registry.register(endless)
    slow = quick_settings(lease={"seconds": 60, "heartbeat_seconds": 30, "scan_seconds": 30})
    async with lab.worker(settings=slow) as worker:
        job = await lab.submit(one("endless"))
        await begun.wait()
        assert worker.identity is not None
        epoch = worker._claimer.answered
        worker._claimer.answered += 1  # another claim was answered after the question was sent
        worker._on_heartbeat(worker.identity, Heartbeat(True, frozenset(), False), epoch)
        await asyncio.wait_for(stopped.wait(), 5)
        await lab.cancel(job)


async def test_only_the_attempts_of_the_cancelled_job_stop(lab: Lab, eventually: Any) -> None:
    go_on = asyncio.Event()

    async def held() -> dict[str, Any]:
        await go_on.wait()
        return {}

    lab.registry.register(held)
    async with lab.running():
        doomed, other = await lab.submit(one("held")), await lab.submit(one("held"))
        await eventually(lambda: _count(lab, 2))
        await lab.cancel(doomed)
        await eventually(lambda: _count(lab, 1))
        go_on.set()
        assert (await lab.ended(other))["status"] == "completed"
    assert (await lab.nodes(other))["a"]["attempt"] == 1
    assert (await lab.job(doomed))["status"] == "cancelled"


async def _count(lab: Lab, number: int) -> bool:
    return len(await lab.rows("select 1 from cograil.tasks where state = 'running'")) == number


async def test_a_heartbeat_and_a_cancel_of_many_attempts_do_not_deadlock(lab: Lab, eventually: Any) -> None:
    """The heartbeat meets the tasks in another order than the cancel, and must not hold one while it waits."""
    await lab.submit(FAN, {"items": [0, 1]})
    hand = await lab.hand()
    first, second = await hand.claim(2)
    # Both have run for a while, and the first row is behind the second one on the page.
    age = "update cograil.tasks set started_at = now() - interval '1 min' where id = %(id)s"
    await lab.rows(age, id=second.task_id)
    await lab.rows(age, id=first.task_id)
    async with lab.db.transaction("cancel") as tx:
        lock = b"select 1 from cograil.tasks where id = %s for update"
        await tx.connection.execute(lock, [first.task_id])
        pulsing = asyncio.create_task(Hand(lab.db, hand.worker_id, "hand").heartbeat())
        done, _ = await asyncio.wait({pulsing}, timeout=0.5)
        await asyncio.wait_for(tx.connection.execute(lock, [second.task_id]), 5)
    assert (await pulsing).is_alive
    assert done, "the heartbeat waited for a task, and with it the lease"
