"""Bulk: cancel or retry what fits a filter, once each, whatever dies in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.harness import Harness
from tests.support.one_node import one

from cograil import fault_injection
from cograil.errors import NotFound, UsageError
from cograil.model.outcome import Failed
from cograil.processes import bulk_handler as wiring
from cograil.processes.bulk_handler import register_bulk
from cograil.verbs import bulk as verbs
from cograil.verbs.bulk import (
    BulkForecast,
    BulkOperation,
    JobFilter,
    begin_bulk,
    find_bulk,
    preview_bulk,
    step_bulk,
)
from cograil.verbs.cancel import cancel


async def preview(harness: Harness, verb: str, **wanted: Any) -> BulkForecast:
    async with harness.db.transaction("test") as tx:
        return await preview_bulk(tx, verb, JobFilter(**wanted))


async def begin(harness: Harness, verb: str, *, reason: str = "", **wanted: Any) -> str:
    """Ask for an operation; its job."""
    async with harness.db.transaction("bulk") as tx:
        return await begin_bulk(tx, harness.engine_context, verb, JobFilter(**wanted), by="me", reason=reason)


async def operation_of(harness: Harness, job: str) -> BulkOperation:
    async with harness.db.transaction("test") as tx:
        return await find_bulk(tx, job)


async def step(harness: Harness, job: str, limit: int = 50) -> BulkOperation:
    """Step once in the name of this job."""
    operation = await operation_of(harness, job)
    async with harness.db.transaction("bulk") as tx:
        return await step_bulk(tx, harness.engine_context, operation.operation_id, job, limit=limit)


async def finish(harness: Harness, job: str) -> BulkOperation:
    """Step by hand until it is over."""
    while (seen := await step(harness, job, 2)).finished_at is None:
        assert seen.is_wanted
    return seen


def counts(seen: BulkOperation) -> dict[str, int]:
    return {"done": seen.done, "failed": seen.failed, "skipped": seen.skipped}


async def statuses(harness: Harness, ids: list[str]) -> list[str]:
    return [(await harness.job(job))["status"] for job in ids]


async def failed_jobs(harness: Harness, count: int, **more: Any) -> list[str]:
    ids = await harness.submit_many(one("fail", attempts=1), [{}] * count, **more)
    worker = await harness.manual_worker()
    for item in await worker.claim(1000, handlers=["fail"]):
        await worker.report(item, Failed("oops", "no"))
    await harness.advance()
    return ids


@contextlib.asynccontextmanager
async def bulk_worker(harness: Harness) -> AsyncIterator[None]:
    """A worker that steps through bulk operations, and an orchestrator."""
    register_bulk(harness.registry, harness.db, harness.settings)
    async with harness.orchestrator(), harness.worker():
        yield


# -- filters ----------------------------------------------------------------------------------------------


async def test_a_preview_counts_what_fits_and_names_the_first_twenty(harness: Harness) -> None:
    ids = await harness.submit_many(one(), [{}] * 25)
    await failed_jobs(harness, 2)
    before = await harness.rows("select * from cograil.jobs order by id")
    seen = await preview(harness, "cancel")
    assert (seen.count, list(seen.ids)) == (25, sorted(ids)[:20])
    assert (await preview(harness, "retry")).count == 2
    assert await harness.rows("select * from cograil.jobs order by id") == before
    assert await harness.rows("select 1 from cograil.bulk_operations") == []


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ({}, 6),
        ({"workflow": "one"}, 5),
        ({"workflow": "other"}, 1),
        ({"workflow": "nobody"}, 0),
        ({"labels": {"team": "ops"}}, 2),
        ({"labels": {"team": "ops", "env": "test"}}, 1),
        ({"labels": {"team": "dev"}}, 0),
        ({"correlation_id": "c1"}, 1),
        ({"statuses": ("pending",)}, 1),
        ({"statuses": ("running",)}, 5),
        ({"workflow": "one", "labels": {"team": "ops"}, "statuses": ("running",)}, 2),
    ],
    ids=str,
)
async def test_a_filter_means_what_it_says(harness: Harness, wanted: dict[str, Any], count: int) -> None:
    await harness.submit(one())
    await harness.submit(one(), labels={"team": "ops"})
    await harness.submit(one(), labels={"team": "ops", "env": "test"})
    await harness.submit(one(), correlation_id="c1")
    await harness.submit("workflow_id: other\nnodes:\n  a: {handler: echo}\n")
    async with harness.db.transaction("test") as tx:
        later = tx.now + timedelta(hours=1)
    await harness.submit(one(), not_before=later)
    assert (await preview(harness, "cancel", **wanted)).count == count


async def test_a_filter_by_time(harness: Harness) -> None:
    old, young = await harness.submit_many(one(), [{}] * 2)
    await harness.rows(f"update cograil.jobs set created_at = now() - interval '2 days' where id = '{old}'")
    async with harness.db.transaction("test") as tx:
        yesterday = tx.now - timedelta(days=1)
    assert (await preview(harness, "cancel", created_before=yesterday)).ids == (old,)
    assert (await preview(harness, "cancel", created_after=yesterday)).ids == (young,)
    job = await begin(harness, "cancel", created_before=yesterday)
    await finish(harness, job)
    assert await statuses(harness, [old, young]) == ["cancelled", "running"]


@pytest.mark.parametrize(
    ("verb", "status"), [("cancel", "failed"), ("retry", "running"), ("retry", "completed")]
)
async def test_a_verb_is_refused_for_states_that_it_is_not_about(
    harness: Harness, verb: str, status: str
) -> None:
    with pytest.raises(UsageError, match=f"not {status}"):
        await preview(harness, verb, statuses=(status,))
    with pytest.raises(UsageError, match=f"not {status}"):
        await begin(harness, verb, statuses=(status,))


async def test_children_follow_their_parents(harness: Harness) -> None:
    parent, child = await harness.submit_many(one(), [{}] * 2)
    await harness.rows(f"update cograil.jobs set parent_job = '{parent}' where id = '{child}'")
    assert (await preview(harness, "cancel")).ids == (parent,)


# -- what it does -----------------------------------------------------------------------------------------


async def test_a_bulk_cancel_is_a_job_that_cancels_what_fits(harness: Harness) -> None:
    ids = await harness.submit_many(one("held"), [{}] * 120)
    other = await harness.submit("workflow_id: other\nnodes:\n  a: {handler: held}\n")
    async with bulk_worker(harness):
        job = await begin(harness, "cancel", workflow="one", reason="enough")
        ended = await harness.ended(job)
    assert (ended["status"], ended["workflow_id"]) == ("completed", "cograil.bulk")
    counts = ended["result"]["step"]
    assert (counts["total"], counts["done"], counts["failed"], counts["skipped"]) == (120, 120, 0, 0)
    assert set(await statuses(harness, ids)) == {"cancelled"}
    assert (await harness.job(other))["status"] == "running"
    last = (await harness.events(ids[0]))[-1]
    assert (last["data"]["by"], last["data"]["reason"]) == ("me", "enough")
    progress = await harness.rows(
        f"select current, total, message from cograil.progress where job_id = '{job}'"
    )
    assert progress == [(120.0, 120.0, "120 done, 0 failed, 0 skipped")]


async def test_a_bulk_retry_makes_one_new_job_for_each(harness: Harness) -> None:
    ids = await failed_jobs(harness, 5)
    job = await begin(harness, "retry")
    seen = await finish(harness, job)
    assert (counts(seen), seen.total) == ({"done": 5, "failed": 0, "skipped": 0}, 5)
    again = await harness.rows("select retry_of::text from cograil.jobs where retry_of is not null")
    assert sorted(retried for (retried,) in again) == sorted(ids)


async def test_a_job_that_was_retried_is_not_retried_again(harness: Harness) -> None:
    ids = await failed_jobs(harness, 3)
    new = await harness.retry(ids[0])
    seen = await finish(harness, await begin(harness, "retry"))
    assert counts(seen) == {"done": 2, "failed": 0, "skipped": 1}
    assert seen.reasons["already_retried"]["count"] == 1
    assert new in seen.reasons["already_retried"]["example"]
    seen = await finish(harness, await begin(harness, "retry", workflow="one"))
    assert (counts(seen), seen.reasons["already_retried"]["count"]) == (
        {"done": 0, "failed": 0, "skipped": 3},
        3,
    )


async def test_a_bulk_operation_does_not_take_jobs_that_it_made(harness: Harness) -> None:
    """New jobs that fail at once would fit the filter."""
    await failed_jobs(harness, 4)
    worker = await harness.manual_worker()
    job = await begin(harness, "retry")
    while (await step(harness, job, 1)).finished_at is None:
        for item in await worker.claim(10, handlers=["fail"]):
            await worker.report(item, Failed("oops", "no"))
        await harness.advance()
    assert counts(await operation_of(harness, job)) == {"done": 4, "failed": 0, "skipped": 0}
    assert await harness.rows("select count(*) from cograil.jobs where workflow_id = 'one'") == [(8,)]


async def test_a_job_that_ended_meanwhile_is_skipped_with_the_reason(harness: Harness) -> None:
    first, second, third = sorted(await harness.submit_many(one(), [{}] * 3))
    job = await begin(harness, "cancel")
    await harness.cancel(second)
    worker = await harness.manual_worker()
    (item,) = [item for item in await worker.claim(9, handlers=["echo"]) if item.job_id == third]
    await worker.report(item, {})
    seen = await finish(harness, job)
    assert counts(seen) == {"done": 1, "failed": 0, "skipped": 2}
    assert {code: noted["count"] for code, noted in seen.reasons.items()} == {
        "no_longer_fits": 1,
        "ended_first": 1,
    }
    assert await statuses(harness, [first, second, third]) == ["cancelled", "cancelled", "completed"]


async def test_a_job_that_cannot_be_taken_is_noted_and_the_others_go_on(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = sorted(await harness.submit_many(one(), [{}] * 4))

    async def bad_cancel(tx: Any, engine_context: Any, job_id: str, **more: Any) -> str:
        status = await cancel(tx, engine_context, job_id, **more)
        if job_id == ids[1]:
            raise ValueError("a bug")
        return status

    monkeypatch.setattr(verbs, "cancel", bad_cancel)
    seen = await finish(harness, await begin(harness, "cancel"))
    assert counts(seen) == {"done": 3, "failed": 1, "skipped": 0}
    assert seen.reasons == {"ValueError": {"outcome": "failed", "count": 1, "example": "a bug"}}
    assert await statuses(harness, ids) == ["cancelled", "running", "cancelled", "cancelled"], "undone alone"


async def test_a_bulk_operation_that_matches_no_job_ends_at_once(harness: Harness) -> None:
    seen = await step(harness, await begin(harness, "cancel", workflow="nobody"))
    assert (counts(seen), seen.total) == ({"done": 0, "failed": 0, "skipped": 0}, 0)
    assert seen.finished_at is not None


async def test_bulk_operations_are_not_caught_by_another(harness: Harness) -> None:
    await harness.submit(one())
    job = await begin(harness, "cancel")
    assert (await preview(harness, "cancel")).count == 1
    assert (await preview(harness, "cancel", workflow="cograil.bulk")).ids == (job,)


# -- when something dies ----------------------------------------------------------------------------------


async def test_a_step_that_dies_leaves_nothing_and_the_next_goes_on(harness: Harness) -> None:
    ids = sorted(await failed_jobs(harness, 6))
    job = await begin(harness, "retry")
    await step(harness, job, 2)
    operation = await operation_of(harness, job)
    with contextlib.suppress(KeyboardInterrupt):
        async with harness.db.transaction("bulk") as tx:
            await step_bulk(tx, harness.engine_context, operation.operation_id, job, limit=2)
            raise KeyboardInterrupt
    assert (await operation_of(harness, job)).cursor == ids[1]
    seen = await finish(harness, job)
    assert counts(seen) == {"done": 6, "failed": 0, "skipped": 0}
    again = await harness.rows("select retry_of::text from cograil.jobs where retry_of is not null")
    assert sorted(retried for (retried,) in again) == ids, "each once"


@pytest.mark.parametrize("mode", ["raise", "commit_unknown"])
async def test_a_bulk_step_that_fails_at_any_point_takes_each_job_once(
    harness: Harness, mode: str, tmp_path: Path
) -> None:
    """At every point of a step, one after another; a commit may have happened though it seems not."""
    log = tmp_path / "points"
    await retried_under(harness, None, log)
    points = log.read_text().splitlines()
    assert {"bulk.lock_operation", "bulk.copy_nodes", "bulk.move_operation", "bulk.commit.after"} <= set(
        points
    )
    for number in range(1, len(points) + 1):
        job = await retried_under(harness, f"*:{number}:{mode}")
        seen = await finish(harness, job)
        assert counts(seen) == {"done": 2, "failed": 0, "skipped": 0}, points[number - 1]
        assert [str(finding) for finding in await harness.findings()] == [], points[number - 1]
    twice = "select retry_of from cograil.jobs where retry_of is not null group by 1 having count(*) > 1"
    assert await harness.rows(twice) == []


async def retried_under(harness: Harness, fault: str | None, log: Path | None = None) -> str:
    """One step over two failed jobs, with this fault in it; the job of the operation."""
    label = {"run": str(fault)}
    await failed_jobs(harness, 2, labels=label)
    job = await begin(harness, "retry", labels=label)
    operation = await operation_of(harness, job)
    fault_injection.arm(fault)
    fault_injection.record(None if log is None else str(log))
    try:
        with contextlib.suppress(fault_injection.FaultRaised):
            async with harness.db.transaction("bulk") as tx:
                await step_bulk(tx, harness.engine_context, operation.operation_id, job)
    finally:
        fault_injection.arm(None)
        fault_injection.record(None)
    return job


async def test_two_that_step_at_once_take_each_job_once(harness: Harness) -> None:
    """One of them lost its task and does not know it yet."""
    ids = await failed_jobs(harness, 30)
    job = await begin(harness, "retry")
    await asyncio.gather(finish(harness, job), finish(harness, job), finish(harness, job))
    assert counts(await operation_of(harness, job)) == {"done": 30, "failed": 0, "skipped": 0}
    again = await harness.rows("select retry_of::text from cograil.jobs where retry_of is not null")
    assert sorted(retried for (retried,) in again) == sorted(ids)


async def test_a_worker_that_dies_in_the_middle_is_replaced_by_one_that_goes_on(
    harness: Harness, eventually: Any
) -> None:
    ids = await harness.submit_many(one("held"), [{}] * 7)
    job = await begin(harness, "cancel", workflow="one")
    dead = await harness.manual_worker("dead")
    await dead.claim(handlers=["cograil.bulk"])
    await step(harness, job, 3)
    await harness.expire_worker(dead)
    async with bulk_worker(harness):
        ended = await harness.ended(job)
    counts = ended["result"]["step"]
    assert (counts["done"], counts["failed"], counts["skipped"]) == (7, 0, 0)
    assert set(await statuses(harness, ids)) == {"cancelled"}


async def test_a_cancelled_operation_stops_at_the_next_step_and_can_be_gone_on_with(harness: Harness) -> None:
    ids = sorted(await harness.submit_many(one("held"), [{}] * 5))
    job = await begin(harness, "cancel", workflow="one")
    await step(harness, job, 2)
    await harness.cancel(job)
    seen = await step(harness, job, 2)
    assert (seen.is_wanted, seen.finished_at) == (False, None)
    assert await statuses(harness, ids) == ["cancelled"] * 2 + ["running"] * 3
    assert counts(await operation_of(harness, job)) == {"done": 2, "failed": 0, "skipped": 0}
    async with bulk_worker(harness):
        again = await harness.retry(job)
        ended = await harness.ended(again)
    assert ended["result"]["step"]["done"] == 5
    assert set(await statuses(harness, ids)) == {"cancelled"}
    assert (await operation_of(harness, again)).done == 5


async def test_an_operation_that_does_not_exist_fails_its_job(harness: Harness) -> None:
    await begin(harness, "cancel")
    async with bulk_worker(harness):
        inputs = {"operation": "019a8f2e-77aa-7c3e-9d54-0b6f3c1a2d4e", "verb": "cancel", "filter": {}}
        ended = await harness.ended(await harness.submit(verbs.WORKFLOW, inputs, app="cograil"))
    assert (ended["status"], ended["error"]["code"]) == ("failed", "not_found")
    with pytest.raises(NotFound, match="not a bulk operation"):
        await operation_of(harness, ended["job_id"])


def test_the_handler_and_the_workflow_agree() -> None:
    assert wiring.HANDLER == verbs.HANDLER
