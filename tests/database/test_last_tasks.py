"""The last task of a job: its success and the end of the job are one statement, as an advance would write it.

`report_to_inbox` takes the other way, through the inbox and an orchestrator: both must leave the same rows.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from tests.support.harness import Harness, ManualWorker, admit_now

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


async def end(worker: ManualWorker, item: WorkItem, output: dict[str, Any] | None = None) -> set[int]:
    """As a worker reports a success."""
    outcome = Completed(orjson.dumps(OUTPUT if output is None else output))
    return await worker.report_as_worker(Report(item, outcome))


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


async def rows_of(harness: Harness, job: str) -> dict[str, list[Any]]:
    return {
        table: [
            without_times(orjson.loads(document), job) for (document,) in await harness.rows(query, job=job)
        ]
        for table, query in SELECTS.items()
    }


async def handed_out(harness: Harness, worker: ManualWorker, case: str) -> tuple[str, WorkItem]:
    """A job and its last task, in this case."""
    job = await harness.submit(("timeout_seconds: 3600\n" if case == "timed" else "") + ONE, {"name": "Ada"})
    item = await worker.claim_one()
    if case == "retried":
        assert await worker.report(item, Failed("oops", "not yet"))
        await harness.advance()
        item = await worker.claim_one()
    if case == "paused":
        async with harness.db.transaction("pause") as tx:
            await pause_job(tx, job, by="somebody")
    return job, item


@pytest.mark.parametrize("case", ["plain", "retried", "timed", "paused", "heard"])
async def test_a_last_task_leaves_the_rows_that_an_advance_leaves(harness: Harness, case: str) -> None:
    """Rows of every table, but for moments and numbers of tasks."""
    await harness.rows(f"alter table cograil.tasks alter column id restart with {FIRST_TASK}")
    if case == "heard":
        await harness.rows(SUBSCRIBE)
    worker = await harness.manual_worker()
    left = []
    for way in ("advance", "at once"):
        job, item = await handed_out(harness, worker, case)
        assert item.is_last
        if way == "advance":
            assert await worker.report(item, OUTPUT)
            await harness.advance()
        else:
            assert await end(worker, item) == {item.task_id}
        rows = await rows_of(harness, job)
        assert [row["status"] for row in rows["jobs"]] == ["completed"]
        assert rows["tasks"] == rows["inbox"] == []
        assert len(rows["outbox"]) == (3 if case == "heard" else 0)
        rows["jobs"][0].pop("owner_id")  # who advanced it last
        left.append(rows)
    assert left[0] == left[1]
    assert await harness.findings() == []


async def test_the_result_is_read_like_any_other(harness: Harness) -> None:
    job = await harness.submit(ONE, {"name": "Ada"})
    worker = await harness.manual_worker()
    await end(worker, await worker.claim_one())
    ended = await harness.job(job)
    assert ended["result"]["greet"] == OUTPUT
    assert ended["result"]["_provenance"]["job_id"] == job
    assert ended["owner_id"] == worker.name  # who wrote it last
    assert (await harness.nodes(job))["greet"]["output"] == OUTPUT
    assert (await harness.event_types(job))[-3:] == ["node_started", "node_completed", "job_completed"]


@pytest.mark.parametrize(
    "text",
    [
        "workflow_id: w\nnodes:\n  a: {handler: echo, next: b}\n  b: {handler: echo}",
        "workflow_id: w\nlimits: {concurrency: 1}\nnodes:\n  a: {handler: echo}",
        "workflow_id: w\nnodes:\n  a: {handler: echo, limits: {concurrency: 1}}",
    ],
    ids=["two nodes", "limit of jobs", "limit of a node"],
)
async def test_a_task_followed_by_a_decision_is_not_a_last_task(harness: Harness, text: str) -> None:
    await harness.submit(text)
    await harness.advance()
    async with harness.db.transaction("admit") as tx:
        await admit_now(tx)
    await harness.advance()
    assert not (await (await harness.manual_worker()).claim_one()).is_last


async def test_a_failure_is_news(harness: Harness) -> None:
    job = await harness.submit(ONE, {"name": "Ada"})
    worker = await harness.manual_worker()
    item = await worker.claim_one()
    assert await worker.report_as_worker(Report(item, Failed("oops", "not yet")))
    assert (await harness.job(job))["status"] == "running"
    await harness.advance()
    assert (await harness.event_types(job))[-1] == "node_dispatched"


async def test_news_of_a_job_are_decided_before_its_last_task_ends_it(harness: Harness) -> None:
    """The heartbeat has told that it began: the job's seq is another, so an orchestrator ends it."""
    job = await harness.submit(ONE, {"name": "Ada"})
    worker = await harness.manual_worker()
    item = await worker.claim_one()
    await harness.rows("update cograil.tasks set started_at = started_at - interval '1 minute'")
    await worker.heartbeat()
    await harness.advance()
    assert (await harness.event_types(job))[-1] == "node_started"
    assert await end(worker, item) == {item.task_id}
    assert (await harness.job(job))["status"] == "running"
    await harness.advance()
    assert (await harness.job(job))["status"] == "completed"
    assert (await harness.event_types(job)).count("node_started") == 1


async def test_a_last_task_does_not_wait_for_the_lock_of_its_job(harness: Harness) -> None:
    """A cancel has the job's lock and waits for the task: the report must not wait for the job."""
    job = await harness.submit(ONE, {"name": "Ada"})
    worker = await harness.manual_worker()
    item = await worker.claim_one()
    async with harness.db.transaction("test") as tx:
        await tx.connection.execute("select 1 from cograil.jobs where id = %s for update", [job])
        assert await asyncio.wait_for(end(worker, item), 10) == {item.task_id}
    assert (await harness.job(job))["status"] == "running"
    await harness.advance()
    assert (await harness.job(job))["status"] == "completed"


async def test_a_late_success_ends_nothing(harness: Harness) -> None:
    """The attempt was given to somebody else; who had it before is refused, and the job goes on."""
    job = await harness.submit(ONE, {"name": "Ada"})
    worker = await harness.manual_worker()
    item = await worker.claim_one()
    await harness.expire_worker(worker)
    assert await end(worker, item) == set()
    await harness.advance()
    assert (await harness.job(job))["status"] == "running"
    other = await harness.manual_worker()
    assert await end(other, await other.claim_one()) != set()
    assert (await harness.job(job))["status"] == "completed"


async def test_another_workers_task_is_not_ended(harness: Harness) -> None:
    await harness.submit(ONE, {"name": "Ada"})
    worker, thief = await harness.manual_worker(), await harness.manual_worker()
    item = await worker.claim_one()
    assert await end(thief, item) == set()
    assert await end(worker, item._replace(fence=item.fence + 1)) == set()
    assert await end(worker, item) == {item.task_id}


async def test_a_cancel_that_came_first_wins(harness: Harness) -> None:
    job = await harness.submit(ONE, {"name": "Ada"})
    worker = await harness.manual_worker()
    item = await worker.claim_one()
    await harness.cancel(job)
    assert await end(worker, item) == set()
    assert (await harness.job(job))["status"] == "cancelled"


async def test_ends_are_counted_where_they_are_written(harness: Harness) -> None:
    def counted() -> float:
        return float(metrics.jobs_ended.labels("completed")._value.get())

    before, waits = counted(), sum(metrics.job_wait_seconds.labels().counts)
    jobs = await harness.submit_many(ONE, [{"name": "Ada"}] * 3)
    worker = await harness.manual_worker()
    items = await worker.claim(3)
    reports = [Report(item, Completed(b"{}")) for item in items]
    assert len(await worker.report_as_worker(*reports)) == 3
    assert [(await harness.job(job))["status"] for job in jobs] == ["completed"] * 3
    assert counted() == before + 3
    assert sum(metrics.job_wait_seconds.labels().counts) == waits + 3


async def test_a_repeated_report_finds_the_end(harness: Harness) -> None:
    """The commit happened, and its answer was lost."""
    job = await harness.submit(ONE, {"name": "Ada"})
    worker = await harness.manual_worker()
    item = await worker.claim_one()
    await end(worker, item)
    again = [Report(item, Completed(orjson.dumps(OUTPUT)))]
    async with harness.db.single("report") as tx:
        assert await tasks.report_again(tx, worker.worker_id, worker.name, again) == {item.task_id}
    await harness.advance()
    assert (await harness.event_types(job))[-1] == "job_completed"
