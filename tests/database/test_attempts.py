"""What one attempt may do and how it is bounded: threads, time, progress, logs, checkpoints."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
import structlog.testing
from tests.support.harness import Harness, quick_settings
from tests.support.one_node import one

from cograil.errors import DatabaseUnavailable
from cograil.model.outcome import Failed
from cograil.orchestrator import orchestrator_loop
from cograil.runners.context import Context, Limits, Retry
from cograil.runners.handler_registry import Registry
from cograil.store.job_filter_queries import LogTail
from cograil.verbs import tasks
from cograil.worker import context_channel


async def test_a_worker_without_the_handler_leaves_the_task_to_others(harness: Harness) -> None:
    other = Registry()
    other.register(_only_here, "only_here")
    async with harness.orchestrator(), harness.worker("poor"):
        job = await harness.submit(one("only_here"))
        echo = await harness.submit(one())
        await harness.ended(echo)
        assert await harness.rows("select fence from cograil.tasks") == [(0,)]
        async with harness.worker("able", registry=other):
            assert (await harness.ended(job))["status"] == "completed"


async def _only_here() -> dict[str, Any]:
    return {}


async def test_a_worker_takes_only_from_its_queues(harness: Harness) -> None:
    text = "workflow_id: q\nnodes:\n  a: {handler: echo, queue: %s}\n"
    async with harness.orchestrator(), harness.worker("heavy", queues=["heavy", "huge"]):
        light = await harness.submit(text % "light")
        heavy = [await harness.submit(text % name) for name in ("heavy", "huge")]
        for job in heavy:
            await harness.ended(job)
        assert (await harness.statuses(light))["a"] == "dispatched"
        async with harness.worker("any"):
            await harness.ended(light)


async def test_plain_functions_run_in_threads_and_block_nobody(harness: Harness) -> None:
    """The thread sleeps until a coroutine of the same worker has run: only possible beside the loop."""
    rang = threading.Event()

    def blocking() -> dict[str, Any]:
        return {"rang": rang.wait(10), "thread": threading.current_thread() is not threading.main_thread()}

    async def ring() -> dict[str, Any]:
        rang.set()
        return {}

    harness.registry.register(blocking)
    harness.registry.register(ring)
    async with harness.running():
        waits = await harness.submit(one("blocking"))
        await harness.submit(one("ring"))
        assert (await harness.ended(waits))["result"]["a"] == {"rang": True, "thread": True}


async def test_a_handler_that_blocks_the_loop_does_not_cost_the_lease(harness: Harness) -> None:
    """The orchestrator of this test is by hand: it lives in the loop that is blocked."""

    async def rude() -> dict[str, Any]:
        time.sleep(harness.settings.lease.seconds * 2)  # on purpose
        return {}

    harness.registry.register(rude)
    async with harness.worker():
        job = await harness.submit(one("rude"))
        await _until(lambda: harness.rows("select 1 from cograil.jobs where finished_at is not null"))
        assert (await harness.tick()).rescued == 0
    assert (await harness.nodes(job))["a"]["attempt"] == 1
    assert (await harness.job(job))["status"] == "completed"
    assert await harness.rows("select count(*) from cograil.processes where kind = 'worker'") == [(1,)]


async def _until(condition: Any, seconds: float = 15) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110  the condition is in the database
            await asyncio.sleep(0.01)


# -- time -----------------------------------------------------------------------------------------------


async def test_a_coroutine_over_its_time_is_stopped_and_tried_again(harness: Harness) -> None:
    ended: list[str] = []

    async def slow_at_first(ctx: Context) -> dict[str, Any]:
        if ctx.attempt == 1:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(ctx.idempotency_key)
        return {"key": ctx.idempotency_key}

    harness.registry.register(slow_at_first)
    async with harness.running():
        job = await harness.submit(one("slow_at_first", timeout=0.2))
        done = await harness.ended(job)
    assert (done["status"], ended) == ("completed", [done["result"]["a"]["key"]])
    types = await harness.event_types(job, "a")
    assert types[2:] == [
        "node_started",
        "node_timeout",
        "task_failed",
        "node_retry",
        "node_dispatched",
        "node_started",
        "node_completed",
    ]


async def test_a_node_that_is_always_too_slow_fails_as_timeout(harness: Harness) -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    harness.registry.register(forever)
    async with harness.running():
        job = await harness.submit(one("forever", timeout=0.1, attempts=1))
        ended = await harness.ended(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "timeout")


async def test_a_thread_over_its_time_is_told_and_reported_as_timeout(harness: Harness) -> None:
    def obedient(ctx: Context) -> dict[str, Any]:
        while not ctx.cancelled:
            time.sleep(0.01)  # a plain function has nothing to wait on
        return {"ignored": True}

    harness.registry.register(obedient)
    async with harness.running():
        job = await harness.submit(one("obedient", timeout=0.2, attempts=1))
        ended = await harness.ended(job)
    assert ended["error"]["code"] == "timeout"
    assert "warning" not in await harness.event_types(job)


async def test_a_thread_that_does_not_obey_is_left_behind_and_reported_as_timeout(harness: Harness) -> None:
    """The worker waits for its obedience first; the orchestrator does not get in between."""
    release = threading.Event()

    def deaf() -> dict[str, Any]:
        release.wait(60)
        return {"too": "late"}

    harness.registry.register(deaf)
    async with harness.running():
        job = await harness.submit(one("deaf", timeout=0.1, attempts=1))
        ended = await harness.ended(job)
        release.set()
    assert ended["error"]["code"] == "timeout"
    assert "within 0.1 s" in ended["error"]["message"]  # the worker's words, not the orchestrator's
    assert "warning" not in await harness.event_types(job)


async def test_an_attempt_far_over_its_time_is_taken_from_a_worker_that_hangs(harness: Harness) -> None:
    """The worker heartbeats and does nothing else."""
    job = await harness.submit(one(timeout=0.05, attempts=2))
    hanging = await harness.manual_worker()
    item = await hanging.claim_one()
    assert (await harness.tick(grace_seconds=60)).rescued == 0
    await _until(lambda: _overdue(harness))
    assert (await harness.tick(grace_seconds=0)).rescued == 1
    assert (await hanging.heartbeat()).is_alive
    await harness.advance()
    assert "node_timeout" in await harness.event_types(job, "a")
    node = (await harness.nodes(job))["a"]
    assert (node["status"], node["attempt"]) in (("dispatched", 2), ("ready", 1))
    assert not await hanging.report(item, {})
    await harness.advance()


async def _overdue(harness: Harness) -> list[tuple[Any, ...]]:
    return await harness.rows("select 1 from cograil.tasks where deadline < now()")


def test_the_orchestrator_leaves_a_worker_time_to_end_an_attempt_itself() -> None:
    assert Limits().grace_seconds < orchestrator_loop.DEADLINE_GRACE_SECONDS


async def test_retries_wait_for_their_backoff(harness: Harness) -> None:
    text = (
        "workflow_id: b\nnodes:\n  a: {handler: echo, retry: {max_attempts: 4, backoff: %s,"
        " initial_delay_seconds: 10, max_delay_seconds: 25}}\n"
    )
    for backoff, delays in (("fixed", [10, 10, 10]), ("linear", [10, 20, 25]), ("exponential", [10, 20, 25])):
        job = await harness.submit(text % backoff)
        worker = await harness.manual_worker()
        for _ in delays:
            await worker.report(await worker.claim_one(), Failed("oops", "no"))
            await harness.advance()
            assert await worker.claim() == []
            await harness.rows("update cograil.nodes set not_before = now() where not_before is not null")
            await harness.rows("update cograil.jobs set wake_at = now() where wake_at is not null")
            await harness.advance()
        await worker.report(await worker.claim_one(), Failed("oops", "no"))
        await harness.advance()
        retries = [
            e["data"]["delay_seconds"] for e in await harness.events(job) if e["event_type"] == "node_retry"
        ]
        assert retries == delays
        assert (await harness.job(job))["status"] == "failed"


@pytest.mark.parametrize(("code", "runs"), [("listed", 3), ("other", 1)])
async def test_only_errors_that_are_named_are_retried(harness: Harness, code: str, runs: int) -> None:
    count = 0

    async def failing() -> None:
        nonlocal count
        count += 1
        raise Retry("no", code=code)

    harness.registry.register(failing)
    policy = "{initial_delay_seconds: 0, retry_on: [listed]}"
    text = f"workflow_id: r\nnodes:\n  a: {{handler: failing, retry: {policy}}}\n"
    async with harness.running():
        ended = await harness.ended(await harness.submit(text))
    assert (ended["status"], count) == ("failed", runs)


async def test_a_handler_runs_exactly_max_attempts_times(harness: Harness) -> None:
    keys: list[str] = []

    async def failing(ctx: Context) -> None:
        keys.append(ctx.idempotency_key)
        raise ValueError("no")

    harness.registry.register(failing)
    async with harness.running():
        job = await harness.submit(one("failing", attempts=4))
        await harness.ended(job)
    assert keys == [f"{job}/a"] * 4


# -- what an attempt tells ------------------------------------------------------------------------------


async def test_progress_and_log_lines_are_kept_and_bounded(harness: Harness) -> None:
    async def talkative(ctx: Context) -> dict[str, Any]:
        for number in range(1500):
            ctx.log.info("line", number=number)
        ctx.log.info("x" * 100_000)
        ctx.progress(3, 4, "three quarters")
        return {}

    harness.registry.register(talkative)
    async with harness.running():
        job = await harness.submit(one("talkative"))
        await harness.ended(job)
    async with harness.db.transaction("test") as tx:
        lines = await LogTail(job, "a").read(tx)
    assert len(lines) == 1001
    assert (lines[0]["fields"], lines[-1]["message"]) == ({"number": 0}, "log cut after 1000 lines")
    assert (await harness.nodes(job))["a"]["progress"] == {
        "current": 3,
        "total": 4,
        "message": "three quarters",
    }


async def test_progress_is_seen_while_the_handler_runs(harness: Harness) -> None:
    go_on = asyncio.Event()

    async def progressing(ctx: Context) -> dict[str, Any]:
        ctx.progress(1, 2)
        await go_on.wait()
        return {}

    harness.registry.register(progressing)
    async with harness.running():
        job = await harness.submit(one("progressing"))
        await _until(lambda: harness.rows("select 1 from cograil.progress where current = 1"))
        assert (await harness.nodes(job))["a"]["status"] == "running"
        go_on.set()
        await harness.ended(job)


async def test_progress_of_an_attempt_that_was_lost_is_not_shown(harness: Harness) -> None:
    job = await harness.submit(one())
    slow = await harness.manual_worker()
    item = await slow.claim_one()
    await harness.expire_worker(slow)
    async with harness.db.single("test") as tx:
        note = {"id": item.task_id, "fence": item.fence, "current": 5, "lines": [{"message": "late"}]}
        await tasks.save_progress(tx, slow.worker_id, [note])
    assert await harness.rows("select 1 from cograil.progress union select 1 from cograil.task_logs") == []
    await harness.advance()
    assert (await harness.nodes(job))["a"]["progress"] is None


async def test_a_checkpointable_handler_goes_on_where_it_was(harness: Harness) -> None:
    text = "workflow_id: m\nnodes:\n  a: {handler: multi_phase, params: {phases: 4}}\n"
    job = await harness.submit(text)
    first = await harness.manual_worker()
    item = await first.claim_one()
    await first.checkpoint(item, {"completed_phases": ["phase_1", "phase_2"]})
    await harness.expire_worker(first)
    async with harness.running():
        output = (await harness.ended(job))["result"]["a"]
    assert (output["resumed_after"], output["phases_completed"]) == (2, 4)


async def test_a_checkpoint_waits_out_an_outage(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = tasks.save_checkpoint, 0

    async def failing_once(*args: Any) -> bool:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise DatabaseUnavailable("gone for a moment")
        return await real(*args)

    monkeypatch.setattr(tasks, "save_checkpoint", failing_once)
    monkeypatch.setattr(context_channel, "RETRY_SECONDS", 0.01)
    text = "workflow_id: m\nnodes:\n  a: {handler: echo, params: {steps: 2}}\n"
    async with harness.running():
        assert (await harness.ended(await harness.submit(text)))["status"] == "completed"
    assert calls == 3


async def test_a_healthy_worker_does_not_think_it_is_deaf(harness: Harness) -> None:
    with structlog.testing.capture_logs() as logs:
        async with harness.orchestrator(), harness.worker(), harness.worker("other"):
            heartbeats = (
                "select count(*) from cograil.processes where pulsed_at > started_at + interval '3 s'"
            )
            await _until(lambda: _first(harness, heartbeats))
    assert [line["event"] for line in logs if "notifications" in line["event"]] == []


async def _first(harness: Harness, query: str) -> Any:
    return (await harness.rows(query))[0][0]


async def test_every_slot_is_used_and_none_twice(harness: Harness) -> None:
    at_once, most = 0, 0

    async def counting() -> dict[str, Any]:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.02)
        at_once -= 1
        return {}

    harness.registry.register(counting, "slot_counter")
    async with harness.orchestrator(), harness.worker(settings=quick_settings(worker={"concurrency": 5})):
        jobs = await harness.submit_many(one("slot_counter"), [{}] * 23)
        for job in jobs:
            await harness.ended(job)
    assert most == 5
