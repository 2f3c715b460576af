"""Limits: never more than allowed at a time or in a span of time, also when processes die; and `explain` says so."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.harness import Harness, admit_now
from tests.support.task_rows import let_go, states

from cograil.model.outcome import Failed
from cograil.store.locked_jobs import lock_jobs
from cograil.verbs import pause
from cograil.verbs.advance import advance_due
from cograil.verbs.limits import Admission

LIMITED = """
workflow_id: limited
nodes:
  a: {handler: busy, params: {who: "{{ inputs.who }}"}, limits: {concurrency: 2, key: "{{ inputs.who }}"}}
"""
FAN = """
workflow_id: spread
nodes:
  all:
    type: fan_out
    source: "{{ inputs.items }}"
    task: {handler: busy, params: {who: "{{ item }}"}}
    limits: {concurrency: 3}
    next: end_of_it
  end_of_it: {type: fan_in}
"""
RATED = """
workflow_id: rated
nodes:
  a: {handler: echo, limits: {rate: 3/h}}
"""
JOBS = """
workflow_id: few
limits: {concurrency: 2, key: "{{ inputs.who }}"}
nodes:
  a: {handler: busy, params: {who: "{{ inputs.who }}"}, next: b}
  b: {handler: echo}
"""


class Crowd:
    """A handler that knows how many of it run at once."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.runs = 0

    async def busy(self, who: Any) -> dict[str, Any]:
        key = str(who)
        self.now[key] += 1
        self.now["all"] += 1
        for name in (key, "all"):
            self.most[name] = max(self.most[name], self.now[name])
        self.runs += 1
        await asyncio.sleep(0.02)
        self.now[key] -= 1
        self.now["all"] -= 1
        return {"who": key}


def crowd(harness: Harness) -> Crowd:
    counter = Crowd()
    harness.registry.register(counter.busy, "busy")
    return counter


async def test_no_more_than_allowed_run_at_once_for_each_key(harness: Harness) -> None:
    seen = crowd(harness)
    async with harness.running():
        jobs = await harness.submit_many(LIMITED, [{"who": who} for who in "ab" * 10])
        assert {(await harness.ended(job))["status"] for job in jobs} == {"completed"}
    assert (seen.most["a"], seen.most["b"], seen.runs) == (2, 2, 20)
    assert await harness.findings() == []


async def test_children_of_a_fan_out_share_its_limit(harness: Harness) -> None:
    seen = crowd(harness)
    async with harness.running():
        job = await harness.ended(await harness.submit(FAN, {"items": list(range(20))}))
    assert (job["status"], seen.most["all"], seen.runs) == ("completed", 3, 20)


async def test_a_place_is_free_when_its_task_is_gone_whatever_took_it(harness: Harness) -> None:
    jobs = await harness.submit_many(LIMITED, [{"who": "a"}] * 6)
    await let_go(harness)
    assert await states(harness) == {"ready": 2, "held": 4}
    assert (await let_go(harness)).admitted == 0
    first, second = await harness.manual_worker("first"), await harness.manual_worker("second")
    (item,) = await first.claim(1)
    await second.claim(1)
    await harness.expire_worker(first)
    await harness.advance()
    assert (await let_go(harness)).admitted == 1, "the dead worker's place"
    await harness.cancel(jobs[1] if item.job_id == jobs[0] else jobs[0])
    assert (await let_go(harness)).admitted == 1, "the cancelled job's place"
    active = await states(harness)
    assert active["ready"] + active["running"] == 2


async def test_two_who_let_go_at_once_do_not_let_go_twice(harness: Harness) -> None:
    await harness.submit_many(LIMITED, [{"who": "a"}] * 10)
    await asyncio.gather(*(let_go(harness) for _ in range(5)))
    assert await states(harness) == {"ready": 2, "held": 8}


async def test_a_retry_passes_the_same_admission(harness: Harness) -> None:
    await harness.submit_many(LIMITED, [{"who": "a"}] * 3)
    await let_go(harness)
    worker = await harness.manual_worker()
    items = await worker.claim(2)
    await worker.report(items[0], Failed("oops", "oops"))
    await harness.advance()
    await harness.rows(
        "update cograil.nodes set not_before = now() - interval '1 s' where not_before is not null"
    )
    await harness.rows("update cograil.jobs set wake_at = now() - interval '1 s' where wake_at is not null")
    await harness.advance()
    assert await states(harness) == {"running": 1, "held": 2}
    assert (await let_go(harness)).admitted == 1


async def test_a_retry_as_a_new_job_waits_for_the_limit_of_its_workflow(harness: Harness) -> None:
    crowd(harness)
    jobs = await harness.submit_many(JOBS, [{"who": "a"}] * 3)
    await let_go(harness)
    await harness.advance()
    worker = await harness.manual_worker()
    (item, _) = await worker.claim(2)
    await worker.report(item, Failed("oops", "oops", retryable=False))
    await harness.advance()
    assert (await let_go(harness)).admitted == 1, "the third"
    again = await harness.retry(item.job_id)
    assert (await let_go(harness)).admitted == 0, "two of them run"
    await harness.advance()
    assert (await harness.statuses(again)).get("a", "pending") == "pending"
    assert "limit" in {blocker.kind for blocker in (await harness.explain(again)).blockers}
    await harness.cancel(next(job for job in jobs if job != item.job_id))
    assert (await let_go(harness)).admitted == 1
    await harness.advance()
    assert (await harness.statuses(again))["a"] == "dispatched"


async def test_a_rate_lets_go_so_many_and_says_when_the_next(harness: Harness) -> None:
    await harness.submit_many(RATED, [{}] * 5)
    admission = await let_go(harness)
    assert admission.admitted == 3
    assert admission.wait_seconds is not None
    assert 1100 < admission.wait_seconds <= 1200
    await harness.rows("update cograil.buckets set refilled_at = refilled_at - interval '20 min'")
    assert (await let_go(harness)).admitted == 1


async def test_jobs_of_a_workflow_begin_no_faster_than_its_limit(harness: Harness) -> None:
    seen = crowd(harness)
    async with harness.running():
        jobs = await harness.submit_many(JOBS, [{"who": who} for who in "ab" * 6])
        assert {(await harness.ended(job))["status"] for job in jobs} == {"completed"}
    assert (seen.most["a"], seen.most["b"]) == (2, 2)
    assert await harness.findings() == []
    assert await harness.rows("select count(*) from cograil.admissions where admitted_at is null") == [(0,)]


async def test_a_job_that_is_held_can_be_cancelled_and_makes_room(harness: Harness) -> None:
    crowd(harness)
    jobs = await harness.submit_many(JOBS, [{"who": "a"}] * 4)
    await let_go(harness)
    await harness.advance()
    assert sorted([(await harness.job(job))["status"] for job in jobs]) == [
        "pending",
        "pending",
        "running",
        "running",
    ]
    for job in jobs[:3]:
        await harness.cancel(job)
    await let_go(harness)
    await harness.advance()
    assert (await harness.job(jobs[3]))["status"] == "running"


async def test_nobody_waits_for_a_job_that_somebody_is_writing(harness: Harness) -> None:
    first, second = await harness.submit_many(JOBS, [{"who": "x"}] * 2)
    async with harness.db.transaction("cancel") as writer:
        await lock_jobs(writer, [first])
        async with harness.db.transaction("admit") as tx:
            await tx.connection.execute("set local lock_timeout = '2s'")
            assert (await admit_now(tx)).admitted == 1
        assert await harness.rows("select id::text from cograil.jobs where not is_held") == [(second,)]
    async with harness.db.transaction("admit") as tx:
        assert (await admit_now(tx)).admitted == 1


@pytest.mark.parametrize("limits", ["concurrency: 1", "rate: 1/h"])
async def test_a_paused_job_takes_no_place_and_waits_for_one_when_it_is_resumed(
    harness: Harness, limits: str
) -> None:
    """It would keep its place, and begin nothing with it, for as long as somebody looks at it."""
    text = f"workflow_id: one\nlimits: {{{limits}}}\nnodes:\n  a: {{handler: echo}}\n"
    first, second = await harness.submit_many(text, [{}] * 2)
    async with harness.db.transaction("pause") as tx:
        await pause.pause_job(tx, first)
    assert (await let_go(harness)).admitted == 1
    assert await harness.rows("select id::text from cograil.jobs where not is_held") == [(second,)]
    assert (await let_go(harness)).admitted == 0
    await harness.cancel(second)
    async with harness.db.transaction("resume") as tx:
        await pause.resume_job(tx, first)
    async with harness.db.transaction("advance") as tx:
        assert (await advance_due(tx, harness.engine_context, 10)).has_limits, "it is looked again"
    await harness.rows("update cograil.buckets set refilled_at = refilled_at - interval '1 h'")
    assert (await let_go(harness)).admitted == 1
    async with harness.running():
        assert (await harness.ended(first))["status"] == "completed"


async def test_no_token_is_taken_for_a_paused_job(harness: Harness) -> None:
    job = await harness.submit("workflow_id: one\nlimits: {rate: 1/h}\nnodes:\n  a: {handler: echo}\n")
    async with harness.db.transaction("pause") as tx:
        await pause.pause_job(tx, job)
    assert await let_go(harness) == Admission()
    assert await harness.rows("select 1 from cograil.buckets") == []


async def test_explain_names_the_limit_and_who_has_the_places(harness: Harness) -> None:
    crowd(harness)
    jobs = await harness.submit_many(LIMITED, [{"who": "a"}] * 3)
    await let_go(harness)
    held = [job for job in jobs if "limit" in {b.kind for b in (await harness.explain(job)).blockers}]
    assert len(held) == 1
    blocker = next(b for b in (await harness.explain(held[0])).blockers if b.kind == "limit")
    assert set(blocker.data["holders"]) == set(jobs) - set(held)
    few = await harness.submit_many(JOBS, [{"who": "a"}] * 3)
    await let_go(harness)
    await harness.advance()
    assert "limit" in {b.kind for b in (await harness.explain(few[2])).blockers}


async def test_explain_says_when_a_rate_allows_the_next(harness: Harness) -> None:
    jobs = await harness.submit_many(RATED, [{}] * 4)
    await let_go(harness)
    blockers = [blocker for job in jobs for blocker in (await harness.explain(job)).blockers]
    (rate,) = [blocker for blocker in blockers if blocker.kind == "rate"]
    assert rate.until is not None
    left = (rate.until - datetime.now(UTC)).total_seconds()
    assert left == pytest.approx(1200, abs=60), "three an hour, and three have just begun"
    assert rate.until.isoformat() in rate.message
    await harness.rows("update cograil.buckets set refilled_at = refilled_at - interval '10 min'")
    blockers = [blocker for job in jobs for blocker in (await harness.explain(job)).blockers]
    (rate,) = [blocker for blocker in blockers if blocker.kind == "rate"]
    assert rate.until is not None
    assert (rate.until - datetime.now(UTC)).total_seconds() == pytest.approx(600, abs=60)
