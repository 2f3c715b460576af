"""Jobs of which no worker has anything are shown as waiting, and say for what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from lab import Lab

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


async def shown(lab: Lab, *statuses: str, **more: Any) -> list[str]:
    """The workflows of the jobs that a list for people shows under these states."""
    async with lab.db.transaction("test") as tx:
        jobs = await job_queries.list_jobs(tx, statuses=statuses, is_apart=True, **more)
    return sorted(job["workflow_id"] for job in jobs)


async def test_a_job_says_what_it_waits_for(lab: Lab) -> None:
    jobs = {text: await lab.submit(text) for text in (ASK, SLEEP, WORK)}
    late = await lab.submit(WORK, not_before=LATER)
    waiting_reasons = {
        name: (await lab.job(job))["waiting_for"] for name, job in (*jobs.items(), ("late", late))
    }
    assert waiting_reasons == {ASK: "approval", SLEEP: "timer", WORK: None, "late": "start"}
    assert (await lab.job(jobs[ASK]))["status"] == "running"
    assert (await lab.job(late))["status"] == "pending"


async def test_a_job_waits_for_its_next_attempt_when_nothing_else_of_it_runs(lab: Lab) -> None:
    job, both, hand = await lab.submit(WORK), await lab.submit(BOTH), await lab.hand()
    assert (await lab.job(both))["waiting_for"] is None
    for item in await hand.claim(2):
        await hand.report(item, BROKEN)
    await lab.advance()
    assert (await lab.job(job))["waiting_for"] == "retry"
    assert (await lab.job(both))["waiting_for"] == "approval"


async def test_a_fan_out_waits_when_all_its_open_children_do(lab: Lab) -> None:
    job, hand = await lab.submit(FAN), await lab.hand()
    first, second = await hand.claim(2)
    await hand.report(first, BROKEN)
    await lab.advance()
    assert (await lab.job(job))["waiting_for"] is None
    await hand.report(second, BROKEN)
    await lab.advance()
    assert (await lab.job(job))["waiting_for"] == "retry"


async def test_a_job_whose_child_job_goes_on_does_not_wait(lab: Lab) -> None:
    await lab.publish(ASK)
    job = await lab.submit(PARENT)
    assert (await lab.job(job))["waiting_for"] is None


async def test_a_job_that_was_answered_waits_no_more(lab: Lab) -> None:
    job = await lab.submit(ASK)
    async with lab.db.transaction("signal") as tx:
        await signal(tx, lab.engine_context, job, Signalled("approve", "sign"))
    assert (await lab.ended(job))["waiting_for"] is None
    assert await shown(lab, "waiting") == []


@pytest.mark.parametrize("workflow", [None, "ask"])
async def test_lists_for_people_keep_waiting_jobs_apart(lab: Lab, workflow: str | None) -> None:
    for text in (ASK, WORK):
        await lab.submit(text)
    await lab.submit(WORK, not_before=LATER)
    expected = {"waiting": ["ask", "work"], "running": ["work"], "pending": []}
    if workflow is not None:
        expected = {
            status: [name for name in names if name == workflow] for status, names in expected.items()
        }
    assert {status: await shown(lab, status, workflow=workflow) for status in expected} == expected
    everything = sorted(name for names in expected.values() for name in names)
    assert await shown(lab, *expected, workflow=workflow) == everything
    assert await shown(lab, workflow=workflow) == everything


async def test_lists_for_programs_have_waiting_jobs_in_their_state_too(lab: Lab) -> None:
    job = await lab.submit(ASK, correlation_id="c")
    async with lab.db.transaction("test") as tx:
        for status in ("waiting", "running"):
            for filters in ({}, {"workflow": "ask"}, {"correlation": "c"}):
                jobs = await job_queries.list_jobs(tx, statuses=[status], **filters)
                assert [found_job["job_id"] for found_job in jobs] == [job], (status, filters)
        assert await job_queries.list_jobs(tx, statuses=["running"], correlation="c", is_apart=True) == []


async def test_searches_know_waiting_jobs(lab: Lab) -> None:
    job = await lab.submit(ASK, labels={"a": "b"})
    await lab.submit(WORK, labels={"a": "b"})
    params: dict[str, Any] = {
        "workflow": None,
        "labels": {"a": "b"},
        "text": None,
        "limit": 9,
    }
    async with lab.db.transaction("test") as tx:
        waiting, _ = await search_jobs(tx, "default", statuses=["waiting"], **params)
        running, _ = await search_jobs(tx, "default", statuses=["running"], **params, is_apart=True)
        both, _ = await search_jobs(tx, "default", statuses=["running"], **params)
    assert [waiting_job["job_id"] for waiting_job in waiting] == [job]
    assert [running_job["workflow_id"] for running_job in running] == ["work"]
    assert len(both) == 2


async def test_counts_for_people_keep_waiting_jobs_apart(lab: Lab) -> None:
    for text in (ASK, SLEEP, WORK):
        await lab.submit(text)
    await lab.submit(WORK, not_before=LATER)
    async with lab.db.transaction("test") as tx:
        every = (await gateway_queries.count_shown_jobs(tx, "default")).by_status
        work = (await gateway_queries.count_shown_jobs(tx, "default", "work")).by_status
    assert {name: count for name, count in every.items() if count} == {"waiting": 3, "running": 1}
    assert work == {"waiting": 1, "running": 1}
