"""Cancel: in every state, races with results in both orders, and what running code hears of it."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.harness import Harness, ManualWorker, quick_settings
from tests.support.one_node import one

from cograil.errors import AlreadyTerminal, JobNotFound
from cograil.model.outcome import Failed
from cograil.runners.context import Context
from cograil.store import locked_jobs as store
from cograil.store import task_queries
from cograil.verbs.cancel import cancel
from cograil.verbs.tasks import WorkerHeartbeat

CHAIN = "workflow_id: chain\nnodes:\n  a: {handler: echo, next: b}\n  b: {handler: echo}\n"


async def is_cancelled(harness: Harness, job: str) -> None:
    """The job is cancelled and stays so, whatever orchestrators and workers still do."""
    ended = await harness.job(job)
    assert (ended["status"], ended["error"]["code"]) == ("cancelled", "cancelled")
    assert set((await harness.statuses(job)).values()) <= {"cancelled", "completed", "failed", "skipped"}
    assert await harness.rows("select 1 from cograil.tasks where job_id = %(id)s", id=job) == []
    before = await harness.events(job)
    await harness.tick()
    await harness.advance()
    assert await (await harness.manual_worker("scavenger")).claim(100) == []
    assert await harness.events(job) == before
    assert (await harness.event_types(job))[-1] == "job_cancelled"
    with pytest.raises(AlreadyTerminal, match="already cancelled"):
        await harness.cancel(job)


async def test_a_job_that_is_held_back_can_be_cancelled(harness: Harness) -> None:
    job = await harness.submit(CHAIN, not_before=datetime.now(UTC) + timedelta(hours=1))
    assert await harness.cancel(job, by="me", reason="no need") == "cancelled"
    await is_cancelled(harness, job)
    assert (await harness.events(job))[-1]["data"] == {"by": "me", "reason": "no need"}
    assert (await harness.job(job))["error"]["message"] == "no need"


async def test_a_queued_job_can_be_cancelled(harness: Harness) -> None:
    job = await harness.submit(CHAIN)
    await harness.cancel(job)
    await is_cancelled(harness, job)


async def test_a_running_job_can_be_cancelled(harness: Harness) -> None:
    job = await harness.submit(CHAIN)
    manual_worker = await harness.manual_worker()
    item = await manual_worker.claim_one()
    await harness.cancel(job)
    assert (await manual_worker.heartbeat()).task_ids == frozenset()
    await is_cancelled(harness, job)
    assert not await manual_worker.report(item, {})


async def test_a_job_between_two_nodes_can_be_cancelled(harness: Harness) -> None:
    job = await harness.submit(CHAIN)
    manual_worker = await harness.manual_worker()
    await manual_worker.report(await manual_worker.claim_one(), {})
    assert await harness.cancel(job) == "cancelled"
    assert (await harness.statuses(job)) == {"a": "completed", "b": "cancelled"}
    await is_cancelled(harness, job)


async def test_a_job_in_backoff_can_be_cancelled(harness: Harness) -> None:
    job = await harness.submit(CHAIN)
    manual_worker = await harness.manual_worker()
    await manual_worker.report(await manual_worker.claim_one(), Failed("oops", "no"))
    await harness.advance()
    assert (await harness.statuses(job))["a"] == "ready"
    await harness.cancel(job)
    await is_cancelled(harness, job)


async def test_a_waiting_job_can_be_cancelled(harness: Harness) -> None:
    job = await harness.submit("workflow_id: w\nnodes:\n  a: {type: wait, wait: {seconds: 3600}}\n")
    assert (await harness.statuses(job))["a"] == "waiting"
    await harness.cancel(job)
    await is_cancelled(harness, job)


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


async def test_a_half_expanded_fan_out_can_be_cancelled_with_all_its_children(harness: Harness) -> None:
    job = await harness.submit(FAN, {"items": list(range(1500))})
    manual_worker = await harness.manual_worker()
    done, failed, running = await manual_worker.claim(3)
    await manual_worker.report(done, {})
    await manual_worker.report(failed, Failed("oops", "no"))
    await harness.rows("delete from cograil.inbox where kind = 'more'")  # as if it had not come yet
    await harness.advance()
    await harness.rows(MORE, id=job)
    await harness.cancel(job)
    statuses = await harness.statuses(job)
    assert (statuses["split"], statuses["gather"]) == ("cancelled", "cancelled")
    children = [status for name, status in statuses.items() if name.startswith("split__")]
    assert (len(children), children.count("completed"), children.count("cancelled")) == (1000, 1, 999)
    await is_cancelled(harness, job)
    assert not await manual_worker.report(running, {})


async def test_a_result_that_was_reported_before_counts(harness: Harness) -> None:
    """It came first: the job is completed, and saying so is the answer to the cancel."""
    job = await harness.submit(one())
    manual_worker = await harness.manual_worker()
    await manual_worker.report(await manual_worker.claim_one(), {"done": True})
    assert await harness.cancel(job) == "completed"
    assert (await harness.job(job))["result"]["a"] == {"done": True}


async def test_a_result_that_comes_after_is_refused_and_recorded(harness: Harness) -> None:
    job = await harness.submit(one())
    manual_worker = await harness.manual_worker()
    item = await manual_worker.claim_one()
    await harness.cancel(job)
    assert not await manual_worker.report(item, {"done": True})
    await harness.advance()
    assert (await harness.job(job))["status"] == "cancelled"
    assert (await harness.job(job))["result"] is None
    assert (await harness.events(job))[-1]["data"]["code"] == "late_result"


async def test_a_cancel_waits_for_a_report_that_is_being_written(harness: Harness, eventually: Any) -> None:
    """The report has deleted its task and not committed: revoking without waiting would overlook it."""
    job = await harness.submit(one())
    manual_worker = await harness.manual_worker()
    item = await manual_worker.claim_one()
    async with harness.db.transaction("report") as tx:
        assert await task_queries.report_tasks(
            tx, manual_worker.worker_id, "manual", [manual_worker.outcome(item, {"done": True})]
        )
        cancelling = asyncio.create_task(harness.cancel(job))
        await eventually(lambda: harness.rows("select 1 from pg_locks where not granted"))
        assert not cancelling.done()
    assert await cancelling == "completed"


async def test_a_report_waits_for_a_cancel_that_is_being_written_and_is_late(
    harness: Harness, eventually: Any
) -> None:
    job = await harness.submit(one())
    manual_worker = await harness.manual_worker()
    item = await manual_worker.claim_one()
    async with harness.db.transaction("cancel") as tx:
        assert await cancel(tx, harness.engine_context, job) == "cancelled"
        reporting = asyncio.create_task(manual_worker.report(item, {"done": True}))
        await eventually(lambda: harness.rows("select 1 from pg_locks where not granted"))
    assert not await reporting
    await harness.advance()
    assert (await harness.job(job))["status"] == "cancelled"


async def test_a_cancel_and_an_advance_take_turns(harness: Harness, eventually: Any) -> None:
    job = await harness.submit(CHAIN)
    async with harness.db.transaction("advance") as tx:
        await store.lock_jobs(tx, [job])
        cancelling = asyncio.create_task(harness.cancel(job))
        await eventually(lambda: harness.rows("select 1 from pg_locks where not granted"))
        assert await harness.advance() == 0
    assert await cancelling == "cancelled"


@pytest.mark.parametrize("status", ["completed", "failed"])
async def test_a_finished_job_is_not_cancelled(harness: Harness, status: str) -> None:
    job = await harness.submit(one(attempts=1))
    manual_worker = await harness.manual_worker()
    await manual_worker.report(
        await manual_worker.claim_one(), {} if status == "completed" else Failed("oops", "no")
    )
    await harness.advance()
    with pytest.raises(AlreadyTerminal, match=status):
        await harness.cancel(job)


@pytest.mark.parametrize("job_id", ["01a1e3c1-ac60-766a-80be-62fc2b743b93", "nonsense", "", "{}"])
async def test_an_unknown_job_is_not_found(harness: Harness, job_id: str) -> None:
    with pytest.raises(JobNotFound):
        await harness.cancel(job_id)


# -- what running code hears ------------------------------------------------------------------------------


async def test_a_coroutine_is_stopped_at_once(harness: Harness, eventually: Any) -> None:
    """The heartbeat is far away: the notice of the cancel hurries it."""
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    harness.registry.register(endless)
    slow = quick_settings(lease={"seconds": 60, "heartbeat_seconds": 30, "scan_seconds": 30})
    async with harness.orchestrator(), harness.worker(settings=slow):
        job = await harness.submit(one("endless"))
        await begun.wait()
        assert await harness.cancel(job) == "cancelled"
        await asyncio.wait_for(stopped.wait(), 5)
        await eventually(lambda: _is_idle(harness))
    assert (await harness.event_types(job))[-1] == "job_cancelled"


async def test_a_thread_sees_it_in_its_context(harness: Harness) -> None:
    begun, seen = threading.Event(), threading.Event()

    def polling(ctx: Context) -> dict[str, Any]:
        begun.set()
        while not ctx.cancelled:
            time.sleep(0.005)  # a plain function has nothing to wait on
        seen.set()
        return {"ignored": True}

    harness.registry.register(polling)
    async with harness.running():
        job = await harness.submit(one("polling"))
        assert await asyncio.to_thread(begun.wait, 5)
        await harness.cancel(job)
        assert await asyncio.to_thread(seen.wait, 5)
    await is_cancelled(harness, job)


async def _is_idle(harness: Harness) -> bool:
    return not await harness.rows("select 1 from cograil.tasks where state = 'running'")


async def test_a_cancel_reaches_a_worker_that_is_busy_claiming(harness: Harness) -> None:
    """An answer that is older than the latest claim still tells of attempts that are older than itself."""
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    harness.registry.register(endless)
    slow = quick_settings(lease={"seconds": 60, "heartbeat_seconds": 30, "scan_seconds": 30})
    async with harness.worker(settings=slow) as worker:
        job = await harness.submit(one("endless"))
        await begun.wait()
        assert worker.identity is not None
        epoch = worker._claimer.answered
        worker._claimer.answered += 1  # another claim was answered after the question was sent
        worker._on_heartbeat(worker.identity, WorkerHeartbeat(True, {}, False), epoch)
        await asyncio.wait_for(stopped.wait(), 5)
        await harness.cancel(job)


async def test_only_the_attempts_of_the_cancelled_job_stop(harness: Harness, eventually: Any) -> None:
    go_on = asyncio.Event()

    async def held() -> dict[str, Any]:
        await go_on.wait()
        return {}

    harness.registry.register(held)
    async with harness.running():
        doomed, other = await harness.submit(one("held")), await harness.submit(one("held"))
        await eventually(lambda: _count(harness, 2))
        await harness.cancel(doomed)
        await eventually(lambda: _count(harness, 1))
        go_on.set()
        assert (await harness.ended(other))["status"] == "completed"
    assert (await harness.nodes(other))["a"]["attempt"] == 1
    assert (await harness.job(doomed))["status"] == "cancelled"


async def _count(harness: Harness, number: int) -> bool:
    return len(await harness.rows("select 1 from cograil.tasks where state = 'running'")) == number


async def test_a_heartbeat_and_a_cancel_of_many_attempts_do_not_deadlock(
    harness: Harness, eventually: Any
) -> None:
    """The heartbeat meets the tasks in another order than the cancel, and must not hold one while it waits."""
    await harness.submit(FAN, {"items": [0, 1]})
    manual_worker = await harness.manual_worker()
    first, second = await manual_worker.claim(2)
    # Both have run for a while, and the first row is behind the second one on the page.
    age = "update cograil.tasks set started_at = now() - interval '1 min' where id = %(id)s"
    await harness.rows(age, id=second.task_id)
    await harness.rows(age, id=first.task_id)
    async with harness.db.transaction("cancel") as tx:
        lock = b"select 1 from cograil.tasks where id = %s for update"
        await tx.connection.execute(lock, [first.task_id])
        pulsing = asyncio.create_task(ManualWorker(harness.db, manual_worker.worker_id, "manual").heartbeat())
        done, _ = await asyncio.wait({pulsing}, timeout=0.5)
        await asyncio.wait_for(tx.connection.execute(lock, [second.task_id]), 5)
    assert (await pulsing).is_alive
    assert done, "the heartbeat waited for a task, and with it the lease"
