"""The last task of a job: its success and the end of the job are one statement, as an advance would write it.

`report_to_inbox` takes the other way, through the inbox and an orchestrator: both must leave the same rows.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from lab import Hand, Lab, admit_now

from cograil import metrics
from cograil.model.outcome import Completed, Failed, WorkItem
from cograil.verbs import tasks
from cograil.verbs.pause import pause_job
from cograil.verbs.tasks import Report

ONE = """
workflow_id: one
nodes:
  greet:
    handler: echo
    params: {name: "{{ inputs.name }}"}
    retry: {max_attempts: 3, initial_delay_seconds: 0}
"""
OUTPUT = {"said": 'é " \\ 1e400', "numbers": [1, 2.5, None]}
TIMES = {
    *("created_at", "started_at", "finished_at", "at", "completed_at", "duration_seconds"),
    *("not_before", "deadline", "paused_at"),
}
FIRST_TASK = 1000
SELECTS = {
    "jobs": "select to_jsonb(j) from cograil.jobs j where id = %(job)s",
    "nodes": "select to_jsonb(n) from cograil.nodes n where job_id = %(job)s",
    "events": "select to_jsonb(e) from cograil.events e where job_id = %(job)s order by seq",
    "outbox": "select to_jsonb(o) from cograil.outbox o where job_id = %(job)s order by seq",
    "tasks": "select to_jsonb(t) from cograil.tasks t where job_id = %(job)s",
    "inbox": "select to_jsonb(i) from cograil.inbox i where job_id = %(job)s",
}
SUBSCRIBE = """
insert into cograil.subscriptions (id, url, secret)
values (gen_random_uuid(), 'http://127.0.0.1:9/', 'c2VjcmV0')
"""


async def end(hand: Hand, item: WorkItem, output: dict[str, Any] | None = None) -> set[int]:
    """As a worker reports a success."""
    outcome = Completed(orjson.dumps(OUTPUT if output is None else output))
    return await hand.report_as_worker(Report(item, outcome))


def without_times(value: Any, job: str) -> Any:
    """The value with moments only as such, and what is different in each job by a common name."""
    if isinstance(value, dict):
        named = {key: member for key, member in value.items() if key not in ("id", "xid")}
        return {
            key: "some time" if key in TIMES and member is not None else without_times(member, job)
            for key, member in named.items()
        }
    if isinstance(value, list):
        return [without_times(member, job) for member in value]
    if isinstance(value, int) and value >= FIRST_TASK:
        return "a task"
    return "the job" if value == job else value


async def rows_of(lab: Lab, job: str) -> dict[str, list[Any]]:
    return {
        table: [without_times(orjson.loads(row[0]), job) for row in await lab.rows(query, job=job)]
        for table, query in SELECTS.items()
    }


async def handed_out(lab: Lab, hand: Hand, case: str) -> tuple[str, WorkItem]:
    """A job and its last task, in this case."""
    job = await lab.submit(("timeout_seconds: 3600\n" if case == "timed" else "") + ONE, {"name": "Ada"})
    item = await hand.claim_one()
    if case == "retried":
        assert await hand.report(item, Failed("oops", "not yet"))
        await lab.advance()
        item = await hand.claim_one()
    if case == "paused":
        async with lab.db.transaction("pause") as tx:
            await pause_job(tx, job, by="somebody")
    return job, item


@pytest.mark.parametrize("case", ["plain", "retried", "timed", "paused", "heard"])
async def test_it_leaves_what_an_advance_leaves(lab: Lab, case: str) -> None:
    """Rows of every table, but for moments and numbers of tasks."""
    await lab.rows(f"alter table cograil.tasks alter column id restart with {FIRST_TASK}")
    if case == "heard":
        await lab.rows(SUBSCRIBE)
    hand = await lab.hand()
    left = []
    for way in ("advance", "at once"):
        job, item = await handed_out(lab, hand, case)
        assert item.is_last
        if way == "advance":
            assert await hand.report(item, OUTPUT)
            await lab.advance()
        else:
            assert await end(hand, item) == {item.task_id}
        rows = await rows_of(lab, job)
        assert [row["status"] for row in rows["jobs"]] == ["completed"]
        assert rows["tasks"] == rows["inbox"] == []
        assert len(rows["outbox"]) == (3 if case == "heard" else 0)
        rows["jobs"][0].pop("owner_id")  # who advanced it last
        left.append(rows)
    assert left[0] == left[1]
    assert await lab.findings() == []


async def test_the_result_is_read_like_any_other(lab: Lab) -> None:
    job = await lab.submit(ONE, {"name": "Ada"})
    hand = await lab.hand()
    await end(hand, await hand.claim_one())
    ended = await lab.job(job)
    assert ended["result"]["greet"] == OUTPUT
    assert ended["result"]["_provenance"]["job_id"] == job
    assert ended["owner_id"] == hand.name  # who wrote it last
    assert (await lab.nodes(job))["greet"]["output"] == OUTPUT
    assert (await lab.event_types(job))[-3:] == ["node_started", "node_completed", "job_completed"]


@pytest.mark.parametrize(
    "text",
    [
        "workflow_id: w\nnodes:\n  a: {handler: echo, next: b}\n  b: {handler: echo}",
        "workflow_id: w\nlimits: {concurrency: 1}\nnodes:\n  a: {handler: echo}",
        "workflow_id: w\nnodes:\n  a: {handler: echo, limits: {concurrency: 1}}",
    ],
    ids=["two nodes", "limit of jobs", "limit of a node"],
)
async def test_what_an_orchestrator_must_decide_is_no_last_task(lab: Lab, text: str) -> None:
    await lab.submit(text)
    await lab.advance()
    async with lab.db.transaction("admit") as tx:
        await admit_now(tx)
    await lab.advance()
    assert not (await (await lab.hand()).claim_one()).is_last


async def test_a_failure_is_news(lab: Lab) -> None:
    job = await lab.submit(ONE, {"name": "Ada"})
    hand = await lab.hand()
    item = await hand.claim_one()
    assert await hand.report_as_worker(Report(item, Failed("oops", "not yet")))
    assert (await lab.job(job))["status"] == "running"
    await lab.advance()
    assert (await lab.event_types(job))[-1] == "node_dispatched"


async def test_what_happened_meanwhile_is_decided_first(lab: Lab) -> None:
    """The heartbeat has told that it began: the job's seq is another, so an orchestrator ends it."""
    job = await lab.submit(ONE, {"name": "Ada"})
    hand = await lab.hand()
    item = await hand.claim_one()
    await lab.rows("update cograil.tasks set started_at = started_at - interval '1 minute'")
    await hand.heartbeat()
    await lab.advance()
    assert (await lab.event_types(job))[-1] == "node_started"
    assert await end(hand, item) == {item.task_id}
    assert (await lab.job(job))["status"] == "running"
    await lab.advance()
    assert (await lab.job(job))["status"] == "completed"
    assert (await lab.event_types(job)).count("node_started") == 1


async def test_whoever_has_the_job_locked_is_not_waited_for(lab: Lab) -> None:
    """A cancel has the job's lock and waits for the task: the report must not wait for the job."""
    job = await lab.submit(ONE, {"name": "Ada"})
    hand = await lab.hand()
    item = await hand.claim_one()
    async with lab.db.transaction("test") as tx:
        await tx.connection.execute("select 1 from cograil.jobs where id = %s for update", [job])
        assert await asyncio.wait_for(end(hand, item), 10) == {item.task_id}
    assert (await lab.job(job))["status"] == "running"
    await lab.advance()
    assert (await lab.job(job))["status"] == "completed"


async def test_a_late_success_ends_nothing(lab: Lab) -> None:
    """The attempt was given to somebody else; who had it before is refused, and the job goes on."""
    job = await lab.submit(ONE, {"name": "Ada"})
    hand = await lab.hand()
    item = await hand.claim_one()
    await lab.bury(hand)
    assert await end(hand, item) == set()
    await lab.advance()
    assert (await lab.job(job))["status"] == "running"
    other = await lab.hand()
    assert await end(other, await other.claim_one()) != set()
    assert (await lab.job(job))["status"] == "completed"


async def test_another_workers_task_is_not_ended(lab: Lab) -> None:
    await lab.submit(ONE, {"name": "Ada"})
    hand, thief = await lab.hand(), await lab.hand()
    item = await hand.claim_one()
    assert await end(thief, item) == set()
    assert await end(hand, item._replace(fence=item.fence + 1)) == set()
    assert await end(hand, item) == {item.task_id}


async def test_a_cancel_that_came_first_wins(lab: Lab) -> None:
    job = await lab.submit(ONE, {"name": "Ada"})
    hand = await lab.hand()
    item = await hand.claim_one()
    await lab.cancel(job)
    assert await end(hand, item) == set()
    assert (await lab.job(job))["status"] == "cancelled"


async def test_ends_are_counted_where_they_are_written(lab: Lab) -> None:
    def counted() -> float:
        return metrics.jobs_ended.labels("completed")._value.get()

    before, waits = counted(), sum(metrics.job_wait_seconds.labels().counts)
    jobs = await lab.submit_many(ONE, [{"name": "Ada"}] * 3)
    hand = await lab.hand()
    items = await hand.claim(3)
    reports = [Report(item, Completed(b"{}")) for item in items]
    assert len(await hand.report_as_worker(*reports)) == 3
    assert [(await lab.job(job))["status"] for job in jobs] == ["completed"] * 3
    assert counted() == before + 3
    assert sum(metrics.job_wait_seconds.labels().counts) == waits + 3


async def test_a_repeated_report_finds_the_end(lab: Lab) -> None:
    """The commit happened, and its answer was lost."""
    job = await lab.submit(ONE, {"name": "Ada"})
    hand = await lab.hand()
    item = await hand.claim_one()
    await end(hand, item)
    again = [Report(item, Completed(orjson.dumps(OUTPUT)))]
    async with lab.db.single("report") as tx:
        assert await tasks.report_again(tx, hand.worker_id, hand.name, again) == {item.task_id}
    await lab.advance()
    assert (await lab.event_types(job))[-1] == "job_completed"
