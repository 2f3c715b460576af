"""Orchestrators: many at once, stopped ones, deaf ones; nothing twice, nothing for ever."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import structlog.testing
from tests.support.harness import Harness, open_harness, quick_settings

from cograil.orchestrator import orchestrator_loop
from cograil.orchestrator.orchestrator_loop import Orchestrator
from cograil.runners.context import Context
from cograil.store import locked_jobs as store
from cograil.store.listener import Listener
from cograil.verbs import tasks
from cograil.verbs.advance import EngineContext, advance_due

CHAIN = """
workflow_id: chain
nodes:
  a: {handler: count, next: b}
  b: {handler: count, next: c}
  c: {handler: count}
"""
ONE = "workflow_id: one\nnodes:\n  a: {handler: echo}\n"
WAIT = "workflow_id: wait\nnodes:\n  a: {type: wait, wait: {seconds: %s}, next: b}\n  b: {handler: echo}\n"

CALM = {"seconds": 60, "heartbeat_seconds": 30, "scan_seconds": 30}


async def test_an_orchestrator_can_do_without_its_memory(harness: Harness) -> None:
    """As `bench.memory` has it; then nodes are read in every pass."""
    forgetful = Orchestrator(harness.db, harness.settings, EngineContext(), "forgetful", caches_jobs=False)
    assert forgetful.engine_context.job_cache is None
    assert (
        Orchestrator(harness.db, harness.settings, EngineContext(), "other").engine_context.job_cache
        is not None
    )


async def all_ended(harness: Harness, jobs: list[str], timeout: float = 60) -> Counter[str]:
    async with asyncio.timeout(timeout):
        open_jobs = "select 1 from cograil.jobs where finished_at is null limit 1"
        while await harness.rows(open_jobs):  # noqa: ASYNC110  the condition is in the database
            await asyncio.sleep(0.02)
    rows = await harness.rows("select status from cograil.jobs where id = any(%(ids)s::uuid[])", ids=jobs)
    return Counter(status for (status,) in rows)


async def test_two_at_once_do_everything_once_and_never_deadlock(harness: Harness) -> None:
    runs: Counter[str] = Counter()

    async def count(ctx: Context) -> dict[str, Any]:
        runs[ctx.idempotency_key] += 1
        return {}

    harness.registry.register(count)
    async with (
        harness.orchestrator("o1"),
        harness.orchestrator("o2"),
        harness.worker("w1"),
        harness.worker("w2"),
    ):
        jobs = await harness.submit_many(CHAIN, [{}] * 300)
        assert await all_ended(harness, jobs) == {"completed": 300}
    assert (len(runs), set(runs.values())) == (900, {1})
    assert await harness.rows(
        "select deadlocks from pg_stat_database where datname = current_database()"
    ) == [(0,)]
    owners = await harness.rows("select count(distinct owner_id) from cograil.jobs")
    assert owners[0][0] >= 1


async def test_jobs_that_another_is_advancing_are_passed_over(harness: Harness) -> None:
    jobs = await harness.submit_many(ONE, [{}] * 2)
    worker = await harness.manual_worker()
    for item in await worker.claim(2):
        await worker.report(item, {})
    async with harness.db.transaction("advance") as tx:
        await store.lock_jobs(tx, [jobs[0]])
        assert await harness.advance() == 1
    assert await harness.advance() == 1


async def test_an_orchestrator_stopped_in_its_transaction_loses_its_lock(dsn: str, eventually: Any) -> None:
    """Its session is ended by the server; the other takes the job, and the stopped one's commit fails."""
    settings = quick_settings(database={"allow_unsafe": True, "idle_in_transaction_seconds": 0.5})
    async with open_harness(dsn, settings) as harness, harness.orchestrator(), harness.worker():
        stopped = harness.db.transaction("advance")
        tx = await stopped.__aenter__()
        job = await harness.submit(ONE)
        await store.lock_jobs(tx, [job])
        assert (await harness.ended(job, 10))["status"] == "completed"
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            await stopped.__aexit__(None, None, None)
        assert await harness.findings() == []


async def test_moments_come_without_any_notice(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Listener, "start", _never_listens)
    async with harness.running():
        waiting = await harness.submit(WAIT % 0.3)
        later = await harness.submit(ONE, not_before=datetime.now(UTC) + timedelta(seconds=0.3))
        assert await all_ended(harness, [waiting, later], 15) == {"completed": 2}


async def test_orchestrators_go_on_when_every_notification_is_lost(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    """The connection is there and silent: nobody notices but by the ping that does not come back."""
    monkeypatch.setattr(Listener, "_listen", _hears_nothing)
    harness.registry.register(_nothing, "count")
    with structlog.testing.capture_logs() as logs:
        async with harness.running():
            jobs = await harness.submit_many(CHAIN, [{}] * 5)
            assert await all_ended(harness, jobs, 20) == {"completed": 5}
            await eventually(lambda: any("polling instead" in line["event"] for line in logs))


async def _nothing() -> dict[str, Any]:
    return {}


async def _never_listens(self: Listener) -> None:
    self.listening.set()


async def _hears_nothing(self: Listener) -> None:
    self.listening.set()
    await asyncio.Event().wait()


async def test_a_failing_pass_does_not_stop_the_loop(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    async def failing_twice(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls in (2, 3):
            raise RuntimeError("something went wrong")
        return await advance_due(*args)

    monkeypatch.setattr(orchestrator_loop, "advance_due", failing_twice)
    monkeypatch.setattr(orchestrator_loop, "RETRY_SECONDS", 0.01)
    harness.registry.register(_nothing, "count")
    with structlog.testing.capture_logs() as logs:
        async with harness.running():
            assert (await harness.ended(await harness.submit(CHAIN)))["status"] == "completed"
    assert [line["event"] for line in logs].count("pass failed") == 2


async def test_the_connections_of_all_may_be_cut_at_any_time(harness: Harness, eventually: Any) -> None:
    """Listener, heartbeat and pool: each comes back, and no job is the worse for it."""
    harness.registry.register(_nothing, "count")
    cut = """
        select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()"""
    async with harness.running():
        jobs = []
        for _ in range(4):
            jobs += await _until_it_works(lambda: harness.submit_many(CHAIN, [{}] * 20))
            await _until_it_works(lambda: harness.rows(cut))
        ended = await all_ended_anyhow(harness, jobs)
    assert ended == {"completed": 80}


async def _until_it_works(attempt: Callable[[], Awaitable[Any]]) -> Any:
    """The pool hands out each connection that was cut once; the caller tries again."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                return await attempt()


async def all_ended_anyhow(harness: Harness, jobs: list[str]) -> Counter[str]:
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(Exception):
                return await all_ended(harness, jobs)


# -- a tick that is far away -----------------------------------------------------------------------------
# These run with the default distance between ticks and more: what is due must not depend on them.


@pytest.fixture
async def calm(dsn: str) -> AsyncIterator[Harness]:
    async with open_harness(dsn, quick_settings(lease=CALM)) as harness:
        yield harness
        assert await harness.findings() == []


async def test_a_wait_that_begins_in_submit_ends_in_time(calm: Harness) -> None:
    """Nobody but the submitter knows of the moment; his notice must tell the orchestrator."""
    async with calm.running():
        await calm.ended(await calm.submit(ONE))
        job = await calm.submit(WAIT % 0.3)
        assert (await calm.ended(job, 5))["status"] == "completed"


async def test_a_job_that_is_held_back_starts_in_time(calm: Harness) -> None:
    async with calm.running():
        await calm.ended(await calm.submit(ONE))
        job = await calm.submit(ONE, not_before=datetime.now(UTC) + timedelta(seconds=0.3))
        assert (await calm.ended(job, 5))["status"] == "completed"


async def test_more_news_than_one_pass_takes_do_not_wait_for_the_clock(calm: Harness) -> None:
    """All reports are there before the orchestrator is: no notice will come for them."""
    text = """
workflow_id: fan
nodes:
  split: {type: fan_out, source: "{{ inputs.items }}", task: {handler: echo}, next: gather}
  gather: {type: fan_in, aggregation: sum}
"""
    jobs = await calm.submit_many(text, [{"items": list(range(300))}] * 3)
    worker = await calm.manual_worker()
    while items := await worker.claim(500):
        await worker.report_as_worker(*[worker.outcome(item, {}) for item in items])
    settings = quick_settings(lease=CALM, orchestrator={"batch": 50})
    orchestrator = Orchestrator(calm.db, settings, EngineContext(), "late")
    running = asyncio.create_task(orchestrator.run())
    try:
        assert await all_ended(calm, jobs, 10) == {"completed": 3}
    finally:
        orchestrator.stop()
        await running


# -- one bad job -----------------------------------------------------------------------------------------


async def test_an_orchestrator_that_was_taken_for_dead_is_alive_again(
    harness: Harness, eventually: Any
) -> None:
    async with harness.orchestrator() as orchestrator:
        await harness.rows(
            "update cograil.processes set state = 'dead' where id = %(id)s", id=orchestrator.process_id
        )
        job = await harness.submit(ONE)
        alive = "select 1 from cograil.processes where kind = 'orchestrator' and state = 'alive'"
        await eventually(lambda: harness.rows(alive))
        kinds = [blocker.kind for blocker in (await harness.explain(job)).blockers]
        assert "no_orchestrator" not in kinds


async def test_a_job_that_cannot_be_advanced_does_not_hold_up_the_others(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug, or a row written by a newer program: it must not stop the engine."""
    monkeypatch.setattr(orchestrator_loop, "RETRY_SECONDS", 0.01)
    bad = await harness.submit(ONE)
    await harness.rows(
        "insert into cograil.inbox (job_id, kind, node_id) values (%(id)s, 'more', 'nobody')", id=bad
    )
    try:
        async with harness.running():
            assert (await harness.ended(await harness.submit(ONE), 15))["status"] == "completed"
    finally:
        await harness.rows("delete from cograil.inbox where node_id = 'nobody'")


async def test_a_job_that_is_set_aside_wakes_nobody(harness: Harness) -> None:
    """What wakes next is another one."""
    bad, good = [await harness.submit(WAIT % seconds) for seconds in (1800, 3600)]
    wakes = dict(await harness.rows("select id::text, wake_at from cograil.jobs"))
    assert (await harness.tick()).wake_at == wakes[bad]
    assert (await harness.tick(excluded=[bad])).wake_at == wakes[good]
    assert (await harness.tick(excluded=[bad, good])).wake_at is None


async def test_an_orchestrator_ticks_no_faster_for_a_job_that_it_has_set_aside(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    bad = await harness.submit(WAIT % 0.01)
    real, times = tasks.tick_orchestrator, []

    async def timed(*args: Any, **options: Any) -> Any:
        times.append(asyncio.get_running_loop().time())
        return await real(*args, **options)

    monkeypatch.setattr(tasks, "tick_orchestrator", timed)
    orchestrator = Orchestrator(harness.db, harness.settings, EngineContext(), "one")
    orchestrator._quarantine[bad] = asyncio.get_running_loop().time() + 60
    running = asyncio.create_task(orchestrator.run())
    await eventually(lambda: len(times) >= 8)
    orchestrator.stop()
    await running
    assert times[7] - times[1] > 6 * 0.8 * harness.settings.lease.scan_seconds
    assert (await harness.job(bad))["status"] == "running", "it was not advanced"


@pytest.mark.parametrize("whose", ["job", "task"])
async def test_a_job_held_back_by_a_rate_begins_when_the_rate_allows_it(calm: Harness, whose: str) -> None:
    """Not with the next look at everything, which is half a minute away here."""
    limits = "limits: {rate: {count: 1, per_seconds: 1}}"
    of_job, of_task = (limits, "") if whose == "job" else ("", f", {limits}")
    text = f"workflow_id: paced\n{of_job}\nnodes:\n  a: {{handler: echo{of_task}}}\n"
    async with calm.running():
        jobs = await calm.submit_many(text, [{}] * 3)
        ends = [(await calm.ended(job, 15))["completed_at"] for job in jobs]
    assert 1.5 < (max(ends) - min(ends)).total_seconds() < 10
