"""Jobs of which no worker has anything are shown as waiting, and say for what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.harness import Harness

from cograil.model.job import Signalled
from cograil.model.outcome import Failed
from cograil.store import gateway_queries, job_queries
from cograil.store.job_snapshot import search_jobs
from cograil.verbs.signal import signal

ASK = "workflow_id: ask\nnodes: {sign: {type: approval, approval: {message: May we?}}}"
SLEEP = "workflow_id: sleep\nnodes: {rest: {type: wait, wait: {seconds: 3600}}}"
WORK = "workflow_id: work\nnodes: {a: {handler: echo, retry: {initial_delay_seconds: 3600}}}"
BOTH = """
workflow_id: both
nodes:
  sign: {type: approval, approval: {message: May we?}}
  a: {handler: echo, retry: {initial_delay_seconds: 3600}}
"""
FAN = """
workflow_id: fan
nodes:
  each:
    type: fan_out
    source: "{{ [1, 2] }}"
    task: {handler: echo, retry: {initial_delay_seconds: 3600}}
"""
PARENT = "workflow_id: parent\nnodes: {sub: {type: subworkflow, subworkflow: {workflow_id: ask}}}"
LATER = datetime.now(UTC) + timedelta(hours=1)
BROKEN = Failed("broken", "it broke")
FILTERS: list[dict[str, Any]] = [{}, {"workflow": "ask"}, {"correlation": "c"}]


async def shown(harness: Harness, *statuses: str, **more: Any) -> list[str]:
    """The workflows of the jobs that a list for people shows under these states."""
    async with harness.db.transaction("test") as tx:
        jobs = await job_queries.list_jobs(tx, statuses=statuses, is_apart=True, **more)
    return sorted(job["workflow_id"] for job in jobs)


async def test_a_job_says_what_it_waits_for(harness: Harness) -> None:
    jobs = {text: await harness.submit(text) for text in (ASK, SLEEP, WORK)}
    late = await harness.submit(WORK, not_before=LATER)
    waiting_reasons = {
        name: (await harness.job(job))["waiting_for"] for name, job in (*jobs.items(), ("late", late))
    }
    assert waiting_reasons == {ASK: "approval", SLEEP: "timer", WORK: None, "late": "start"}
    assert (await harness.job(jobs[ASK]))["status"] == "running"
    assert (await harness.job(late))["status"] == "pending"


async def test_a_job_waits_for_its_next_attempt_when_nothing_else_of_it_runs(harness: Harness) -> None:
    job, both, worker = await harness.submit(WORK), await harness.submit(BOTH), await harness.manual_worker()
    assert (await harness.job(both))["waiting_for"] is None
    for item in await worker.claim(2):
        await worker.report(item, BROKEN)
    await harness.advance()
    assert (await harness.job(job))["waiting_for"] == "retry"
    assert (await harness.job(both))["waiting_for"] == "approval"


async def test_a_fan_out_waits_when_all_its_open_children_do(harness: Harness) -> None:
    job, worker = await harness.submit(FAN), await harness.manual_worker()
    first, second = await worker.claim(2)
    await worker.report(first, BROKEN)
    await harness.advance()
    assert (await harness.job(job))["waiting_for"] is None
    await worker.report(second, BROKEN)
    await harness.advance()
    assert (await harness.job(job))["waiting_for"] == "retry"


async def test_a_job_whose_child_job_goes_on_does_not_wait(harness: Harness) -> None:
    await harness.publish(ASK)
    job = await harness.submit(PARENT)
    assert (await harness.job(job))["waiting_for"] is None


async def test_a_job_that_was_answered_waits_no_more(harness: Harness) -> None:
    job = await harness.submit(ASK)
    async with harness.db.transaction("signal") as tx:
        await signal(tx, harness.engine_context, job, Signalled("approve", "sign"))
    assert (await harness.ended(job))["waiting_for"] is None
    assert await shown(harness, "waiting") == []


@pytest.mark.parametrize("workflow", [None, "ask"])
async def test_lists_for_people_keep_waiting_jobs_apart(harness: Harness, workflow: str | None) -> None:
    for text in (ASK, WORK):
        await harness.submit(text)
    await harness.submit(WORK, not_before=LATER)
    expected = {"waiting": ["ask", "work"], "running": ["work"], "pending": []}
    if workflow is not None:
        expected = {
            status: [name for name in names if name == workflow] for status, names in expected.items()
        }
    assert {status: await shown(harness, status, workflow=workflow) for status in expected} == expected
    everything = sorted(name for names in expected.values() for name in names)
    assert await shown(harness, *expected, workflow=workflow) == everything
    assert await shown(harness, workflow=workflow) == everything


async def test_lists_for_programs_have_waiting_jobs_in_their_state_too(harness: Harness) -> None:
    job = await harness.submit(ASK, correlation_id="c")
    async with harness.db.transaction("test") as tx:
        for status in ("waiting", "running"):
            for filters in FILTERS:
                jobs = await job_queries.list_jobs(tx, statuses=[status], **filters)
                assert [found_job["job_id"] for found_job in jobs] == [job], (status, filters)
        assert await job_queries.list_jobs(tx, statuses=["running"], correlation="c", is_apart=True) == []


async def test_searches_know_waiting_jobs(harness: Harness) -> None:
    job = await harness.submit(ASK, labels={"a": "b"})
    await harness.submit(WORK, labels={"a": "b"})
    params: dict[str, Any] = {
        "workflow": None,
        "labels": {"a": "b"},
        "text": None,
        "limit": 9,
    }
    async with harness.db.transaction("test") as tx:
        waiting, _ = await search_jobs(tx, "default", statuses=["waiting"], **params)
        running, _ = await search_jobs(tx, "default", statuses=["running"], **params, is_apart=True)
        both, _ = await search_jobs(tx, "default", statuses=["running"], **params)
    assert [waiting_job["job_id"] for waiting_job in waiting] == [job]
    assert [running_job["workflow_id"] for running_job in running] == ["work"]
    assert len(both) == 2


async def test_counts_for_people_keep_waiting_jobs_apart(harness: Harness) -> None:
    for text in (ASK, SLEEP, WORK):
        await harness.submit(text)
    await harness.submit(WORK, not_before=LATER)
    async with harness.db.transaction("test") as tx:
        every = (await gateway_queries.count_shown_jobs(tx, "default")).by_status
        work = (await gateway_queries.count_shown_jobs(tx, "default", "work")).by_status
    assert {name: count for name, count in every.items() if count} == {"waiting": 3, "running": 1}
    assert work == {"waiting": 1, "running": 1}
