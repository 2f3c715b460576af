"""Somebody else's transaction that stays open: nothing that is deleted can be cleared away meanwhile."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator

import psycopg
from tests.support.harness import Harness, ManualWorker
from tests.support.index_reads import entries
from tests.support.one_node import one

from cograil.model.outcome import WorkItem
from cograil.orchestrator.orchestrator_loop import Orchestrator
from cograil.store.scan_cursors import BEGINNING, RESET_SECONDS, ClaimCursors, InboxCursor
from cograil.store.statements import statement
from cograil.verbs import tasks
from cograil.verbs.advance import EngineContext, Pass, advance_due
from cograil.verbs.tasks import Slots

CHAIN = """
workflow_id: chain
nodes:
  first: {handler: hello_world, params: {name: x}, next: second}
  second: {handler: hello_world, params: {name: "{{ nodes.first.output.message }}"}}
"""
JOBS = 400
SOME = 20


class Clock:
    """A time that only the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@contextlib.asynccontextmanager
async def old_snapshot(dsn: str) -> AsyncIterator[psycopg.AsyncConnection[tuple[object, ...]]]:
    """A session that has looked at something and gone to lunch."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as lunch:
        await lunch.execute("begin isolation level repeatable read")
        await lunch.execute("select count(*) from cograil.jobs")
        yield lunch
        await lunch.execute("rollback")


async def claim(worker: ManualWorker, cursors: ClaimCursors, slots: int = SOME) -> list[WorkItem]:
    async with worker.db.single("claim") as tx:
        return await tasks.claim(tx, worker.worker_id, Slots(["echo"], [], slots, 0), cursors)


async def test_jobs_complete_beside_an_old_snapshot_and_the_doctor_names_who_holds_it(
    harness: Harness, dsn: str
) -> None:
    async with old_snapshot(dsn) as lunch:
        seen = await (await lunch.execute("select count(*) from cograil.jobs")).fetchone()
        async with harness.running():
            jobs = await harness.submit_many(CHAIN, [{}] * 100)
            for job_id in jobs:
                assert (await harness.ended(job_id))["status"] == "completed"
        text = statement("doctor_idle_transactions").text
        lines = await harness.rows(text, grace=0)
        assert any(str(lunch.info.backend_pid) in str(row) for row in lines)
        assert await (await lunch.execute("select count(*) from cograil.jobs")).fetchone() == seen


# -- what was taken is not walked over again ----------------------------------------------------------------


async def test_claims_and_passes_do_not_walk_over_what_was_taken_before(harness: Harness, dsn: str) -> None:
    """Each task and each of the news is met a few times; always from the beginning it would be ten times."""
    await harness.submit_many(one(), [{}] * JOBS)
    worker, cursors = await harness.manual_worker(), ClaimCursors(Clock())
    harness.engine_context.inbox_cursor = InboxCursor(Clock())
    async with old_snapshot(dsn):
        for _ in range(JOBS // SOME):
            items = await claim(worker, cursors)
            await worker.report_to_inbox(*[worker.outcome(i, {}) for i in items])
        assert await entries(harness, "tasks_ready") < 3 * JOBS
        advanced = 0
        while advanced < JOBS:
            async with harness.db.transaction("advance") as tx:
                done = await advance_due(tx, harness.engine_context, SOME)
                assert (done.advanced, done.is_full) == (SOME, True)
            advanced += done.advanced
        window = 4  # times as many are looked at as are taken
        assert await entries(harness, "inbox_pkey") < (window + 3) * JOBS


async def test_passes_that_keep_up_do_not_walk_over_what_was_taken_either(harness: Harness, dsn: str) -> None:
    await harness.submit_many(one(), [{}] * JOBS)
    worker, cursors = await harness.manual_worker(), ClaimCursors(Clock())
    harness.engine_context.inbox_cursor = InboxCursor(Clock())
    async with old_snapshot(dsn):
        for _ in range(JOBS // SOME):
            items = await claim(worker, cursors)
            await worker.report_to_inbox(*[worker.outcome(i, {}) for i in items])
            async with harness.db.transaction("advance") as tx:
                done = await advance_due(tx, harness.engine_context, 10 * SOME)
                assert (done.advanced, done.is_full) == (SOME, False)
        assert await entries(harness, "inbox_pkey") < 4 * JOBS


# -- and nothing is missed ----------------------------------------------------------------------------------


async def test_a_task_released_behind_the_scan_cursor_is_found_when_no_other_is_left(
    harness: Harness,
) -> None:
    await harness.submit_many(one(), [{}] * 4)
    worker, cursors = await harness.manual_worker(), ClaimCursors(Clock())
    first = await claim(worker, cursors, 2)
    second = await claim(worker, cursors, 2)
    assert cursors.after("async") == (0, second[-1].task_id)
    await worker.put_back(*first)
    assert {item.task_id for item in await claim(worker, cursors, 2)} == {item.task_id for item in first}


async def test_a_claim_that_finds_less_than_it_could_take_leaves_its_place(harness: Harness) -> None:
    await harness.submit_many(one(), [{}] * 5)
    worker, cursors = await harness.manual_worker(), ClaimCursors(Clock())
    first = await claim(worker, cursors, 2)
    await worker.put_back(*first)
    assert len(await claim(worker, cursors, 4)) == 3
    assert cursors.after("async") == BEGINNING
    assert {item.task_id for item in await claim(worker, cursors, 4)} == {item.task_id for item in first}


async def test_while_there_is_much_to_do_what_is_urgent_is_seen_after_half_a_second(harness: Harness) -> None:
    await harness.submit_many(one(), [{}] * 8)
    clock = Clock()
    worker, cursors = await harness.manual_worker(), ClaimCursors(clock)
    await claim(worker, cursors, 2)
    urgent = await harness.submit(one(), priority=5)
    assert urgent not in {item.job_id for item in await claim(worker, cursors, 2)}
    clock.now = RESET_SECONDS
    assert urgent in {item.job_id for item in await claim(worker, cursors, 2)}


async def test_a_lane_without_free_slots_keeps_its_place(harness: Harness) -> None:
    cursors = ClaimCursors(Clock())
    cursors.begin()
    cursors.record("async", 2, [(0, 1), (0, 2)])
    cursors.record("async", 0, [])
    assert cursors.after("async") == (0, 2)
    assert cursors.after("thread") == BEGINNING


async def test_news_that_were_written_early_and_committed_late_are_not_missed(harness: Harness) -> None:
    late, *jobs = await harness.submit_many(one(), [{}] * 9)
    worker = await harness.manual_worker()
    harness.engine_context.inbox_cursor = InboxCursor(Clock())
    first, *items = sorted(await worker.claim(9), key=lambda item: item.job_id != late)
    async with harness.db.transaction("test") as tx:
        await tx.connection.execute(
            f"insert into cograil.inbox (job_id, kind) values ('{late}', 'late')".encode()
        )
        for item in items:
            await worker.report(item, {})
        for _ in range(2):
            async with harness.db.transaction("advance") as other:
                assert (await advance_due(other, harness.engine_context, 4)).advanced == 4
        assert harness.engine_context.inbox_cursor.begin() > 0
    async with harness.db.transaction("advance") as other:
        assert (await advance_due(other, harness.engine_context, 4)).advanced == 1, (
            "before its cursor, and nothing behind"
        )
    await worker.report(first, {})
    await harness.advance()
    assert await harness.rows("select * from cograil.inbox") == []
    assert {(await harness.job(job))["status"] for job in [late, *jobs]} == {"completed"}


async def test_an_orchestrator_does_not_sleep_past_its_next_look_at_all_news(harness: Harness) -> None:
    clock = Clock()
    cursor = InboxCursor(clock)
    assert (cursor.begin(), cursor.seconds_to_reset()) == (0, math.inf)
    cursor.record(7)
    clock.now = RESET_SECONDS / 2
    assert (cursor.begin(), cursor.seconds_to_reset()) == (7, RESET_SECONDS / 2)
    clock.now = RESET_SECONDS
    assert (cursor.seconds_to_reset(), cursor.begin()) == (0.0, 0)
    cursor.record(None)
    assert cursor.seconds_to_reset() == math.inf
    orchestrator = Orchestrator(harness.db, harness.settings, EngineContext(), "late")
    orchestrator._tick_at = math.inf
    orchestrator.engine_context.inbox_cursor.record(7)
    assert orchestrator._pause(Pass(1)) <= RESET_SECONDS


async def test_a_pass_that_rolls_back_leaves_its_news_to_the_next(harness: Harness) -> None:
    await harness.submit_many(one(), [{}] * 6)
    worker = await harness.manual_worker()
    harness.engine_context.inbox_cursor = InboxCursor(Clock())
    for item in await worker.claim(6):
        await worker.report(item, {})
    with contextlib.suppress(ZeroDivisionError):
        async with harness.db.transaction("advance") as tx:
            assert (await advance_due(tx, harness.engine_context, 3)).is_full
            raise ZeroDivisionError
    async with harness.db.transaction("advance") as tx:
        assert (await advance_due(tx, harness.engine_context, 6)).advanced == 6
