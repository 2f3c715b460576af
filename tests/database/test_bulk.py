"""Bulk: cancel or retry what fits a filter, once each, whatever dies in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from lab import Lab
from test_workers import one

from cograil import fault_injection
from cograil.errors import NotFound, UsageError
from cograil.model.outcome import Failed
from cograil.processes import bulk_handler as wiring
from cograil.processes.bulk_handler import register_bulk
from cograil.verbs import bulk as verbs
from cograil.verbs.bulk import (
    BulkPreview,
    JobFilter,
    Operation,
    begin_bulk,
    find_bulk,
    preview_bulk,
    step_bulk,
)
from cograil.verbs.cancel import cancel


async def preview(lab: Lab, verb: str, **wanted: Any) -> BulkPreview:
    async with lab.db.transaction("test") as tx:
        return await preview_bulk(tx, verb, JobFilter(**wanted))


async def begin(lab: Lab, verb: str, *, reason: str = "", **wanted: Any) -> str:
    """Ask for an operation; its job."""
    async with lab.db.transaction("bulk") as tx:
        return await begin_bulk(tx, lab.engine_context, verb, JobFilter(**wanted), by="me", reason=reason)


async def operation_of(lab: Lab, job: str) -> Operation:
    async with lab.db.transaction("test") as tx:
        return await find_bulk(tx, job)


async def step(lab: Lab, job: str, limit: int = 50) -> Operation:
    """Step once in the name of this job."""
    operation = await operation_of(lab, job)
    async with lab.db.transaction("bulk") as tx:
        return await step_bulk(tx, lab.engine_context, operation.operation_id, job, limit=limit)


async def finish(lab: Lab, job: str) -> Operation:
    """Step by hand until it is over."""
    while (seen := await step(lab, job, 2)).finished_at is None:
        assert seen.is_wanted
    return seen


def counts(seen: Operation) -> dict[str, int]:
    return {"done": seen.done, "failed": seen.failed, "skipped": seen.skipped}


async def statuses(lab: Lab, ids: list[str]) -> list[str]:
    return [(await lab.job(job))["status"] for job in ids]


async def failed_jobs(lab: Lab, count: int, **more: Any) -> list[str]:
    ids = await lab.submit_many(one("fail", attempts=1), [{}] * count, **more)
    hand = await lab.hand()
    for item in await hand.claim(1000, handlers=["fail"]):
        await hand.report(item, Failed("oops", "no"))
    await lab.advance()
    return ids


@contextlib.asynccontextmanager
async def bulk_worker(lab: Lab) -> AsyncIterator[None]:
    """A worker that steps through bulk operations, and an orchestrator."""
    register_bulk(lab.registry, lab.db, lab.settings)
    async with lab.orchestrator(), lab.worker():
        yield


# -- filters ----------------------------------------------------------------------------------------------


async def test_a_preview_counts_what_fits_and_names_the_first_twenty(lab: Lab) -> None:
    ids = await lab.submit_many(one(), [{}] * 25)
    await failed_jobs(lab, 2)
    before = await lab.rows("select * from cograil.jobs order by id")
    seen = await preview(lab, "cancel")
    assert (seen.count, list(seen.ids)) == (25, sorted(ids)[:20])
    assert (await preview(lab, "retry")).count == 2
    assert await lab.rows("select * from cograil.jobs order by id") == before
    assert await lab.rows("select 1 from cograil.bulk_operations") == []


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
async def test_a_filter_means_what_it_says(lab: Lab, wanted: dict[str, Any], count: int) -> None:
    await lab.submit(one())
    await lab.submit(one(), labels={"team": "ops"})
    await lab.submit(one(), labels={"team": "ops", "env": "test"})
    await lab.submit(one(), correlation_id="c1")
    await lab.submit("workflow_id: other\nnodes:\n  a: {handler: echo}\n")
    async with lab.db.transaction("test") as tx:
        later = tx.now + timedelta(hours=1)
    await lab.submit(one(), not_before=later)
    assert (await preview(lab, "cancel", **wanted)).count == count


async def test_a_filter_by_time(lab: Lab) -> None:
    old, young = await lab.submit_many(one(), [{}] * 2)
    await lab.rows(f"update cograil.jobs set created_at = now() - interval '2 days' where id = '{old}'")
    async with lab.db.transaction("test") as tx:
        yesterday = tx.now - timedelta(days=1)
    assert (await preview(lab, "cancel", created_before=yesterday)).ids == (old,)
    assert (await preview(lab, "cancel", created_after=yesterday)).ids == (young,)
    job = await begin(lab, "cancel", created_before=yesterday)
    await finish(lab, job)
    assert await statuses(lab, [old, young]) == ["cancelled", "running"]


@pytest.mark.parametrize(
    ("verb", "status"), [("cancel", "failed"), ("retry", "running"), ("retry", "completed")]
)
async def test_a_verb_is_refused_for_states_that_it_is_not_about(lab: Lab, verb: str, status: str) -> None:
    with pytest.raises(UsageError, match=f"not {status}"):
        await preview(lab, verb, statuses=(status,))
    with pytest.raises(UsageError, match=f"not {status}"):
        await begin(lab, verb, statuses=(status,))


async def test_children_follow_their_parents(lab: Lab) -> None:
    parent, child = await lab.submit_many(one(), [{}] * 2)
    await lab.rows(f"update cograil.jobs set parent_job = '{parent}' where id = '{child}'")
    assert (await preview(lab, "cancel")).ids == (parent,)


# -- what it does -----------------------------------------------------------------------------------------


async def test_a_bulk_cancel_is_a_job_that_cancels_what_fits(lab: Lab) -> None:
    ids = await lab.submit_many(one("held"), [{}] * 120)
    other = await lab.submit("workflow_id: other\nnodes:\n  a: {handler: held}\n")
    async with bulk_worker(lab):
        job = await begin(lab, "cancel", workflow="one", reason="enough")
        ended = await lab.ended(job)
    assert (ended["status"], ended["workflow_id"]) == ("completed", "cograil.bulk")
    counts = ended["result"]["step"]
    assert (counts["total"], counts["done"], counts["failed"], counts["skipped"]) == (120, 120, 0, 0)
    assert set(await statuses(lab, ids)) == {"cancelled"}
    assert (await lab.job(other))["status"] == "running"
    last = (await lab.events(ids[0]))[-1]
    assert (last["data"]["by"], last["data"]["reason"]) == ("me", "enough")
    progress = await lab.rows(f"select current, total, message from cograil.progress where job_id = '{job}'")
    assert progress == [(120.0, 120.0, "120 done, 0 failed, 0 skipped")]


async def test_a_bulk_retry_makes_one_new_job_for_each(lab: Lab) -> None:
    ids = await failed_jobs(lab, 5)
    job = await begin(lab, "retry")
    seen = await finish(lab, job)
    assert (counts(seen), seen.total) == ({"done": 5, "failed": 0, "skipped": 0}, 5)
    again = await lab.rows("select retry_of::text from cograil.jobs where retry_of is not null")
    assert sorted(row[0] for row in again) == sorted(ids)


async def test_a_job_that_was_retried_is_not_retried_again(lab: Lab) -> None:
    ids = await failed_jobs(lab, 3)
    new = await lab.retry(ids[0])
    seen = await finish(lab, await begin(lab, "retry"))
    assert counts(seen) == {"done": 2, "failed": 0, "skipped": 1}
    assert seen.reasons["already_retried"]["count"] == 1
    assert new in seen.reasons["already_retried"]["example"]
    seen = await finish(lab, await begin(lab, "retry", workflow="one"))
    assert (counts(seen), seen.reasons["already_retried"]["count"]) == (
        {"done": 0, "failed": 0, "skipped": 3},
        3,
    )


async def test_what_it_makes_itself_is_not_taken_again(lab: Lab) -> None:
    """New jobs that fail at once would fit the filter."""
    await failed_jobs(lab, 4)
    hand = await lab.hand()
    job = await begin(lab, "retry")
    while (await step(lab, job, 1)).finished_at is None:
        for item in await hand.claim(10, handlers=["fail"]):
            await hand.report(item, Failed("oops", "no"))
        await lab.advance()
    assert counts(await operation_of(lab, job)) == {"done": 4, "failed": 0, "skipped": 0}
    assert await lab.rows("select count(*) from cograil.jobs where workflow_id = 'one'") == [(8,)]


async def test_what_ended_meanwhile_is_skipped_with_the_reason(lab: Lab) -> None:
    first, second, third = sorted(await lab.submit_many(one(), [{}] * 3))
    job = await begin(lab, "cancel")
    await lab.cancel(second)
    hand = await lab.hand()
    (item,) = [item for item in await hand.claim(9, handlers=["echo"]) if item.job_id == third]
    await hand.report(item, {})
    seen = await finish(lab, job)
    assert counts(seen) == {"done": 1, "failed": 0, "skipped": 2}
    assert {code: noted["count"] for code, noted in seen.reasons.items()} == {
        "no_longer_fits": 1,
        "ended_first": 1,
    }
    assert await statuses(lab, [first, second, third]) == ["cancelled", "cancelled", "completed"]


async def test_a_job_that_cannot_be_taken_is_noted_and_the_others_go_on(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = sorted(await lab.submit_many(one(), [{}] * 4))

    async def bad_cancel(tx: Any, engine_context: Any, job_id: str, **more: Any) -> str:
        status = await cancel(tx, engine_context, job_id, **more)
        if job_id == ids[1]:
            raise ValueError("a bug")
        return status

    monkeypatch.setattr(verbs, "cancel", bad_cancel)
    seen = await finish(lab, await begin(lab, "cancel"))
    assert counts(seen) == {"done": 3, "failed": 1, "skipped": 0}
    assert seen.reasons == {"ValueError": {"outcome": "failed", "count": 1, "example": "a bug"}}
    assert await statuses(lab, ids) == ["cancelled", "running", "cancelled", "cancelled"], "undone alone"


async def test_nothing_that_fits_is_over_at_once(lab: Lab) -> None:
    seen = await step(lab, await begin(lab, "cancel", workflow="nobody"))
    assert (counts(seen), seen.total) == ({"done": 0, "failed": 0, "skipped": 0}, 0)
    assert seen.finished_at is not None


async def test_bulk_operations_are_not_caught_by_another(lab: Lab) -> None:
    await lab.submit(one())
    job = await begin(lab, "cancel")
    assert (await preview(lab, "cancel")).count == 1
    assert (await preview(lab, "cancel", workflow="cograil.bulk")).ids == (job,)


# -- when something dies ----------------------------------------------------------------------------------


async def test_a_step_that_dies_leaves_nothing_and_the_next_goes_on(lab: Lab) -> None:
    ids = sorted(await failed_jobs(lab, 6))
    job = await begin(lab, "retry")
    await step(lab, job, 2)
    operation = await operation_of(lab, job)
    with contextlib.suppress(KeyboardInterrupt):
        async with lab.db.transaction("bulk") as tx:
            await step_bulk(tx, lab.engine_context, operation.operation_id, job, limit=2)
            raise KeyboardInterrupt
    assert (await operation_of(lab, job)).cursor == ids[1]
    seen = await finish(lab, job)
    assert counts(seen) == {"done": 6, "failed": 0, "skipped": 0}
    again = await lab.rows("select retry_of::text from cograil.jobs where retry_of is not null")
    assert sorted(row[0] for row in again) == ids, "each once"


@pytest.mark.parametrize("mode", ["raise", "commit_unknown"])
async def test_whatever_point_of_a_step_fails_each_job_is_taken_once(
    lab: Lab, mode: str, tmp_path: Path
) -> None:
    """At every point of a step, one after another; a commit may have happened though it seems not."""
    log = tmp_path / "points"
    await retried_under(lab, None, log)
    points = log.read_text().splitlines()
    assert {"bulk.lock_operation", "bulk.copy_nodes", "bulk.move_operation", "bulk.commit.after"} <= set(
        points
    )
    for number in range(1, len(points) + 1):
        job = await retried_under(lab, f"*:{number}:{mode}")
        seen = await finish(lab, job)
        assert counts(seen) == {"done": 2, "failed": 0, "skipped": 0}, points[number - 1]
        assert [str(finding) for finding in await lab.findings()] == [], points[number - 1]
    twice = "select retry_of from cograil.jobs where retry_of is not null group by 1 having count(*) > 1"
    assert await lab.rows(twice) == []


async def retried_under(lab: Lab, fault: str | None, log: Path | None = None) -> str:
    """One step over two failed jobs, with this fault in it; the job of the operation."""
    label = {"run": str(fault)}
    await failed_jobs(lab, 2, labels=label)
    job = await begin(lab, "retry", labels=label)
    operation = await operation_of(lab, job)
    fault_injection.arm(fault)
    fault_injection.record(None if log is None else str(log))
    try:
        with contextlib.suppress(fault_injection.FaultRaised):
            async with lab.db.transaction("bulk") as tx:
                await step_bulk(tx, lab.engine_context, operation.operation_id, job)
    finally:
        fault_injection.arm(None)
        fault_injection.record(None)
    return job


async def test_two_that_step_at_once_take_each_job_once(lab: Lab) -> None:
    """One of them lost its task and does not know it yet."""
    ids = await failed_jobs(lab, 30)
    job = await begin(lab, "retry")
    await asyncio.gather(finish(lab, job), finish(lab, job), finish(lab, job))
    assert counts(await operation_of(lab, job)) == {"done": 30, "failed": 0, "skipped": 0}
    again = await lab.rows("select retry_of::text from cograil.jobs where retry_of is not null")
    assert sorted(row[0] for row in again) == sorted(ids)


async def test_a_worker_that_dies_in_the_middle_is_replaced_by_one_that_goes_on(
    lab: Lab, eventually: Any
) -> None:
    ids = await lab.submit_many(one("held"), [{}] * 7)
    job = await begin(lab, "cancel", workflow="one")
    dead = await lab.hand("dead")
    await dead.claim(handlers=["cograil.bulk"])
    await step(lab, job, 3)
    await lab.bury(dead)
    async with bulk_worker(lab):
        ended = await lab.ended(job)
    counts = ended["result"]["step"]
    assert (counts["done"], counts["failed"], counts["skipped"]) == (7, 0, 0)
    assert set(await statuses(lab, ids)) == {"cancelled"}


async def test_a_cancelled_operation_stops_at_the_next_step_and_can_be_gone_on_with(lab: Lab) -> None:
    ids = sorted(await lab.submit_many(one("held"), [{}] * 5))
    job = await begin(lab, "cancel", workflow="one")
    await step(lab, job, 2)
    await lab.cancel(job)
    seen = await step(lab, job, 2)
    assert (seen.is_wanted, seen.finished_at) == (False, None)
    assert await statuses(lab, ids) == ["cancelled"] * 2 + ["running"] * 3
    assert counts(await operation_of(lab, job)) == {"done": 2, "failed": 0, "skipped": 0}
    async with bulk_worker(lab):
        again = await lab.retry(job)
        ended = await lab.ended(again)
    assert ended["result"]["step"]["done"] == 5
    assert set(await statuses(lab, ids)) == {"cancelled"}
    assert (await operation_of(lab, again)).done == 5


async def test_an_operation_that_does_not_exist_fails_its_job(lab: Lab) -> None:
    await begin(lab, "cancel")
    async with bulk_worker(lab):
        inputs = {"operation": "019a8f2e-77aa-7c3e-9d54-0b6f3c1a2d4e", "verb": "cancel", "filter": {}}
        ended = await lab.ended(await lab.submit(verbs.WORKFLOW, inputs, app="cograil"))
    assert (ended["status"], ended["error"]["code"]) == ("failed", "not_found")
    with pytest.raises(NotFound, match="no bulk operation"):
        await operation_of(lab, ended["job_id"])


def test_the_handler_and_the_workflow_agree() -> None:
    assert wiring.HANDLER == verbs.HANDLER
