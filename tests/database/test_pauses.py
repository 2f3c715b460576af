"""Pauses: what runs runs on, nothing new begins, and nothing that happened meanwhile is lost."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.harness import Harness

from cograil.errors import AlreadyTerminal, Conflict, JobNotFound, WorkflowNotFound
from cograil.model.outcome import Failed
from cograil.store import pause_queries
from cograil.verbs import pause

CHAIN = """
workflow_id: chain
nodes:
  a: {handler: echo, next: b}
  b: {handler: echo}
"""
FAN = """
workflow_id: spread
nodes:
  all: {type: fan_out, source: [1, 2, 3], task: {handler: echo, params: {x: "{{ item }}"}}, next: gather}
  gather: {type: fan_in}
"""


async def paused_job(harness: Harness, job: str) -> None:
    async with harness.db.transaction("pause") as tx:
        await pause.pause_job(tx, job, by="ada", reason="looking")


async def resumed_job(harness: Harness, job: str) -> None:
    async with harness.db.transaction("resume") as tx:
        await pause.resume_job(tx, job)


async def test_a_paused_job_notes_what_ends_and_begins_nothing(harness: Harness) -> None:
    job = await harness.submit(CHAIN)
    worker = await harness.manual_worker()
    item = await worker.claim_one()
    await paused_job(harness, job)
    await worker.report(item, {})
    await harness.advance()
    assert (await harness.statuses(job))["a"] == "completed"
    assert await harness.rows("select count(*) from cograil.tasks") == [(0,)]
    (paused,) = [blocker for blocker in (await harness.explain(job)).blockers if blocker.kind == "paused"]
    assert "ada" in paused.message
    await resumed_job(harness, job)
    async with harness.running():
        assert (await harness.ended(job))["status"] == "completed"
    assert await harness.findings() == []


async def test_children_that_end_during_a_pause_are_counted_after_it(harness: Harness) -> None:
    job = await harness.submit(FAN)
    worker = await harness.manual_worker()
    items = await worker.claim(3)
    await paused_job(harness, job)
    for item in items:
        await worker.report(item, {})
    await harness.advance()
    assert (await harness.statuses(job))["all"] == "running"
    await resumed_job(harness, job)
    await harness.advance()
    assert (await harness.job(job))["status"] == "completed"


async def test_a_backoff_that_ends_during_a_pause_waits_for_its_end_without_spinning(
    harness: Harness,
) -> None:
    job = await harness.submit(CHAIN)
    worker = await harness.manual_worker()
    await worker.report(await worker.claim_one(), Failed("oops", "oops"))
    await harness.advance()
    await paused_job(harness, job)
    await harness.rows(
        "update cograil.nodes set not_before = now() - interval '1 s' where not_before is not null"
    )
    await harness.rows("update cograil.jobs set wake_at = now() - interval '1 s'")
    assert await harness.advance() == 1
    assert await harness.advance() == 0
    await resumed_job(harness, job)
    await harness.advance()
    assert (await worker.claim_one()).attempt == 2


async def test_a_pending_job_of_a_paused_workflow_begins_when_it_is_resumed(harness: Harness) -> None:
    await harness.publish(CHAIN)
    async with harness.db.transaction("pause") as tx:
        await pause.pause_workflow(tx, "chain", by="ada")
    async with harness.running():
        job = await harness.submit(CHAIN)
        explained = await harness.explain(job)
        assert (explained.blockers[0].kind, (await harness.job(job))["status"]) == ("paused", "pending")
        async with harness.db.transaction("resume") as tx:
            await pause.resume_workflow(tx, "chain")
        assert (await harness.ended(job))["status"] == "completed"


async def test_a_paused_queue_hands_out_nothing(harness: Harness) -> None:
    async with harness.db.transaction("pause") as tx:
        await pause.pause_queue(tx, "default", by="ada", reason="update")
    job = await harness.submit(CHAIN)
    worker = await harness.manual_worker()
    assert await worker.claim(5) == []
    assert "paused" in {blocker.kind for blocker in (await harness.explain(job)).blockers}
    async with harness.running():
        async with harness.db.transaction("resume") as tx:
            await pause.resume_queue(tx, "default")
        assert (await harness.ended(job))["status"] == "completed"


@pytest.mark.parametrize(("kind", "name"), [("queue", "default"), ("workflow", "chain")])
async def test_a_pause_is_of_one_tenant_and_so_is_its_end(
    harness: Harness, eventually: Any, kind: str, name: str
) -> None:
    """Two tenants have the same names; what one of them does is nothing to the other."""
    tenants = ("acme", "default")
    for tenant in tenants:
        await harness.submit_many(CHAIN, [{}], tenant)
        async with harness.db.transaction("pause") as tx:
            assert await pause_queries.pause_name(tx, tenant, kind, name, "ada", "")
    resume = pause.resume_queue if kind == "queue" else pause.resume_workflow
    async with harness.db.transaction("resume") as tx:
        await resume(tx, name, tenant="acme")
        assert [len(await pause_queries.list_pauses(tx, tenant)) for tenant in tenants] == [0, 1]
    query = "select tenant_id, status from cograil.jobs order by tenant_id"
    async with harness.running():
        await eventually(lambda: _is(harness, query, [("acme", "completed"), ("default", "running")]))


async def _is(harness: Harness, query: str, rows: list[tuple[Any, ...]]) -> bool:
    return await harness.rows(query) == rows


async def test_a_paused_job_can_be_cancelled_and_pausing_twice_is_a_conflict(harness: Harness) -> None:
    job = await harness.submit(CHAIN)
    await paused_job(harness, job)
    with pytest.raises(Conflict, match="already"):
        await paused_job(harness, job)
    assert await harness.cancel(job) == "cancelled"
    with pytest.raises(AlreadyTerminal):
        await resumed_job(harness, job)
    with pytest.raises(JobNotFound):
        await paused_job(harness, "01a1e3ac-f8d7-7838-882d-dd73edc06aeb")
    with pytest.raises(WorkflowNotFound):
        async with harness.db.transaction("pause") as tx:
            await pause.pause_workflow(tx, "nosuch")
