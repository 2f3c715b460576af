"""What one attempt may do and how it is bounded: threads, time, progress, logs, checkpoints."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
import structlog.testing
from lab import Lab, quick_settings
from test_workers import one

from cograil.errors import DatabaseUnavailable
from cograil.model.outcome import Failed
from cograil.orchestrator import orchestrator_loop
from cograil.runners.context import Context, Limits, Retry
from cograil.runners.handler_registry import Registry
from cograil.store.job_filter_queries import LogTail
from cograil.verbs import tasks
from cograil.worker import context_channel


async def test_a_worker_without_the_handler_leaves_the_task_to_others(lab: Lab) -> None:
    other = Registry()
    other.register(_only_here, "only_here")
    async with lab.orchestrator(), lab.worker("poor"):
        job = await lab.submit(one("only_here"))
        echo = await lab.submit(one())
        await lab.ended(echo)
        assert await lab.rows("select fence from cograil.tasks") == [(0,)]
        async with lab.worker("able", registry=other):
            assert (await lab.ended(job))["status"] == "completed"


async def _only_here() -> dict[str, Any]:
    return {}


async def test_a_worker_takes_only_from_its_queues(lab: Lab) -> None:
    text = "workflow_id: q\nnodes:\n  a: {handler: echo, queue: %s}\n"
    async with lab.orchestrator(), lab.worker("heavy", queues=["heavy", "huge"]):
        light = await lab.submit(text % "light")
        heavy = [await lab.submit(text % name) for name in ("heavy", "huge")]
        for job in heavy:
            await lab.ended(job)
        assert (await lab.statuses(light))["a"] == "dispatched"
        async with lab.worker("any"):
            await lab.ended(light)


async def test_plain_functions_run_in_threads_and_block_nobody(lab: Lab) -> None:
    """The thread sleeps until a coroutine of the same worker has run: only possible beside the loop."""
    rang = threading.Event()

    def blocking() -> dict[str, Any]:
        return {"rang": rang.wait(10), "thread": threading.current_thread() is not threading.main_thread()}

    async def ring() -> dict[str, Any]:
        rang.set()
        return {}

    lab.registry.register(blocking)
    lab.registry.register(ring)
    async with lab.running():
        waits = await lab.submit(one("blocking"))
        await lab.submit(one("ring"))
        assert (await lab.ended(waits))["result"]["a"] == {"rang": True, "thread": True}


async def test_a_handler_that_blocks_the_loop_does_not_cost_the_lease(lab: Lab) -> None:
    """The orchestrator of this test is by hand: it lives in the loop that is blocked."""

    async def rude() -> dict[str, Any]:
        time.sleep(lab.settings.lease.seconds * 2)  # on purpose
        return {}

    lab.registry.register(rude)
    async with lab.worker():
        job = await lab.submit(one("rude"))
        await _until(lambda: lab.rows("select 1 from cograil.jobs where finished_at is not null"))
        assert (await lab.tick()).rescued == 0
    assert (await lab.nodes(job))["a"]["attempt"] == 1
    assert (await lab.job(job))["status"] == "completed"
    assert await lab.rows("select count(*) from cograil.processes where kind = 'worker'") == [(1,)]


async def _until(condition: Any, seconds: float = 15) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110  the condition is in the database
            await asyncio.sleep(0.01)


# -- time -----------------------------------------------------------------------------------------------


async def test_a_coroutine_over_its_time_is_stopped_and_tried_again(lab: Lab) -> None:
    ended: list[str] = []

    async def slow_at_first(ctx: Context) -> dict[str, Any]:
        if ctx.attempt == 1:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(ctx.idempotency_key)
        return {"key": ctx.idempotency_key}

    lab.registry.register(slow_at_first)
    async with lab.running():
        job = await lab.submit(one("slow_at_first", timeout=0.2))
        done = await lab.ended(job)
    assert (done["status"], ended) == ("completed", [done["result"]["a"]["key"]])
    types = await lab.event_types(job, "a")
    assert types[2:] == [
        "node_started",
        "node_timeout",
        "task_failed",
        "node_retry",
        "node_dispatched",
        "node_started",
        "node_completed",
    ]


async def test_a_node_that_is_always_too_slow_fails_as_timeout(lab: Lab) -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    lab.registry.register(forever)
    async with lab.running():
        job = await lab.submit(one("forever", timeout=0.1, attempts=1))
        ended = await lab.ended(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "timeout")


async def test_a_thread_over_its_time_is_told_and_reported_as_timeout(lab: Lab) -> None:
    def obedient(ctx: Context) -> dict[str, Any]:
        while not ctx.cancelled:
            time.sleep(0.01)  # a plain function has nothing to wait on
        return {"ignored": True}

    lab.registry.register(obedient)
    async with lab.running():
        job = await lab.submit(one("obedient", timeout=0.2, attempts=1))
        ended = await lab.ended(job)
    assert ended["error"]["code"] == "timeout"
    assert "warning" not in await lab.event_types(job)


async def test_a_thread_that_does_not_obey_is_left_behind_and_reported_as_timeout(lab: Lab) -> None:
    """The worker waits for its obedience first; the orchestrator does not get in between."""
    release = threading.Event()

    def deaf() -> dict[str, Any]:
        release.wait(60)
        return {"too": "late"}

    lab.registry.register(deaf)
    async with lab.running():
        job = await lab.submit(one("deaf", timeout=0.1, attempts=1))
        ended = await lab.ended(job)
        release.set()
    assert ended["error"]["code"] == "timeout"
    assert "within 0.1 s" in ended["error"]["message"]  # the worker's words, not the orchestrator's
    assert "warning" not in await lab.event_types(job)


async def test_an_attempt_far_over_its_time_is_taken_from_a_worker_that_hangs(lab: Lab) -> None:
    """The worker heartbeats and does nothing else."""
    job = await lab.submit(one(timeout=0.05, attempts=2))
    hanging = await lab.hand()
    item = await hanging.claim_one()
    assert (await lab.tick(grace_seconds=60)).rescued == 0
    await _until(lambda: _overdue(lab))
    assert (await lab.tick(grace_seconds=0)).rescued == 1
    assert (await hanging.heartbeat()).is_alive
    await lab.advance()
    assert "node_timeout" in await lab.event_types(job, "a")
    node = (await lab.nodes(job))["a"]
    assert (node["status"], node["attempt"]) in (("dispatched", 2), ("ready", 1))
    assert not await hanging.report(item, {})
    await lab.advance()


async def _overdue(lab: Lab) -> list[tuple[Any, ...]]:
    return await lab.rows("select 1 from cograil.tasks where deadline < now()")


def test_the_orchestrator_leaves_a_worker_time_to_end_an_attempt_itself() -> None:
    assert Limits().grace_seconds < orchestrator_loop.DEADLINE_GRACE_SECONDS


async def test_retries_wait_for_their_backoff(lab: Lab) -> None:
    text = (
        "workflow_id: b\nnodes:\n  a: {handler: echo, retry: {max_attempts: 4, backoff: %s,"
        " initial_delay_seconds: 10, max_delay_seconds: 25}}\n"
    )
    for backoff, delays in (("fixed", [10, 10, 10]), ("linear", [10, 20, 25]), ("exponential", [10, 20, 25])):
        job = await lab.submit(text % backoff)
        hand = await lab.hand()
        for _ in delays:
            await hand.report(await hand.claim_one(), Failed("oops", "no"))
            await lab.advance()
            assert await hand.claim() == []
            await lab.rows("update cograil.nodes set not_before = now() where not_before is not null")
            await lab.rows("update cograil.jobs set wake_at = now() where wake_at is not null")
            await lab.advance()
        await hand.report(await hand.claim_one(), Failed("oops", "no"))
        await lab.advance()
        retries = [
            e["data"]["delay_seconds"] for e in await lab.events(job) if e["event_type"] == "node_retry"
        ]
        assert retries == delays
        assert (await lab.job(job))["status"] == "failed"


@pytest.mark.parametrize(("code", "runs"), [("listed", 3), ("other", 1)])
async def test_only_errors_that_are_named_are_retried(lab: Lab, code: str, runs: int) -> None:
    count = 0

    async def failing() -> None:
        nonlocal count
        count += 1
        raise Retry("no", code=code)

    lab.registry.register(failing)
    policy = "{initial_delay_seconds: 0, retry_on: [listed]}"
    text = f"workflow_id: r\nnodes:\n  a: {{handler: failing, retry: {policy}}}\n"
    async with lab.running():
        ended = await lab.ended(await lab.submit(text))
    assert (ended["status"], count) == ("failed", runs)


async def test_a_handler_runs_exactly_max_attempts_times(lab: Lab) -> None:
    keys: list[str] = []

    async def failing(ctx: Context) -> None:
        keys.append(ctx.idempotency_key)
        raise ValueError("no")

    lab.registry.register(failing)
    async with lab.running():
        job = await lab.submit(one("failing", attempts=4))
        await lab.ended(job)
    assert keys == [f"{job}/a"] * 4


# -- what an attempt tells ------------------------------------------------------------------------------


async def test_progress_and_log_lines_are_kept_and_bounded(lab: Lab) -> None:
    async def talkative(ctx: Context) -> dict[str, Any]:
        for number in range(1500):
            ctx.log.info("line", number=number)
        ctx.log.info("x" * 100_000)
        ctx.progress(3, 4, "three quarters")
        return {}

    lab.registry.register(talkative)
    async with lab.running():
        job = await lab.submit(one("talkative"))
        await lab.ended(job)
    async with lab.db.transaction("test") as tx:
        lines = await LogTail(job, "a").read(tx)
    assert len(lines) == 1001
    assert (lines[0]["fields"], lines[-1]["message"]) == ({"number": 0}, "log cut after 1000 lines")
    assert (await lab.nodes(job))["a"]["progress"] == {"current": 3, "total": 4, "message": "three quarters"}


async def test_progress_is_seen_while_the_handler_runs(lab: Lab) -> None:
    go_on = asyncio.Event()

    async def progressing(ctx: Context) -> dict[str, Any]:
        ctx.progress(1, 2)
        await go_on.wait()
        return {}

    lab.registry.register(progressing)
    async with lab.running():
        job = await lab.submit(one("progressing"))
        await _until(lambda: lab.rows("select 1 from cograil.progress where current = 1"))
        assert (await lab.nodes(job))["a"]["status"] == "running"
        go_on.set()
        await lab.ended(job)


async def test_progress_of_an_attempt_that_was_lost_is_not_shown(lab: Lab) -> None:
    job = await lab.submit(one())
    slow = await lab.hand()
    item = await slow.claim_one()
    await lab.bury(slow)
    async with lab.db.single("test") as tx:
        note = {"id": item.task_id, "fence": item.fence, "current": 5, "lines": [{"message": "late"}]}
        await tasks.save_progress(tx, slow.worker_id, [note])
    assert await lab.rows("select 1 from cograil.progress union select 1 from cograil.task_logs") == []
    await lab.advance()
    assert (await lab.nodes(job))["a"]["progress"] is None


async def test_a_checkpointable_handler_goes_on_where_it_was(lab: Lab) -> None:
    text = "workflow_id: m\nnodes:\n  a: {handler: multi_phase, params: {phases: 4}}\n"
    job = await lab.submit(text)
    first = await lab.hand()
    item = await first.claim_one()
    await first.checkpoint(item, {"completed_phases": ["phase_1", "phase_2"]})
    await lab.bury(first)
    async with lab.running():
        output = (await lab.ended(job))["result"]["a"]
    assert (output["resumed_after"], output["phases_completed"]) == (2, 4)


async def test_a_checkpoint_waits_out_an_outage(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
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
    async with lab.running():
        assert (await lab.ended(await lab.submit(text)))["status"] == "completed"
    assert calls == 3


async def test_a_healthy_worker_does_not_think_it_is_deaf(lab: Lab) -> None:
    with structlog.testing.capture_logs() as logs:
        async with lab.orchestrator(), lab.worker(), lab.worker("other"):
            heartbeats = (
                "select count(*) from cograil.processes where pulsed_at > started_at + interval '3 s'"
            )
            await _until(lambda: _first(lab, heartbeats))
    assert [line["event"] for line in logs if "notifications" in line["event"]] == []


async def _first(lab: Lab, query: str) -> Any:
    return (await lab.rows(query))[0][0]


async def test_every_slot_is_used_and_none_twice(lab: Lab) -> None:
    at_once, most = 0, 0

    async def counting() -> dict[str, Any]:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.02)
        at_once -= 1
        return {}

    lab.registry.register(counting, "slot_counter")
    async with lab.orchestrator(), lab.worker(settings=quick_settings(worker={"concurrency": 5})):
        jobs = await lab.submit_many(one("slot_counter"), [{}] * 23)
        for job in jobs:
            await lab.ended(job)
    assert most == 5
