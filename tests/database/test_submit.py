"""Submit: a job and its first nodes, in one transaction or not at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.harness import Harness

from cograil.errors import InvalidInput, QueueNotNamed, WorkflowNotFound
from cograil.processes.instance_discovery import make_engine_context, queue_checks
from cograil.processes.process_readiness import ProcessHealth
from cograil.settings import QueueSettings, Settings
from cograil.verbs.submit import Submission, submit

HELLO = """
workflow_id: hello
inputs:
  name: {type: string}
  times: {type: integer, default: 1}
nodes:
  greet: {handler: hello_world, params: {name: "{{ inputs.name }}"}, next: again}
  again: {handler: echo, params: {said: "{{ nodes.greet.output.message }}", times: "{{ inputs.times }}"}}
"""

ANY = "workflow_id: any\nnodes:\n  a: {handler: echo, params: {x: '{{ inputs.x }}'}}\n"
FREE = "workflow_id: free\nnodes:\n  a: {handler: echo}\n"


async def test_a_job_runs_to_its_end(harness: Harness) -> None:
    async with harness.running():
        job = await harness.submit(HELLO, {"name": "Ada"}, submitted_by="me", correlation_id="c1")
        ended = await harness.ended(job)
    assert (ended["status"], ended["error"]) == ("completed", None)
    assert ended["input_params"] == {"name": "Ada", "times": 1}
    assert ended["result"]["again"]["echoed_params"] == {"said": "Hello, Ada!", "times": 1}
    assert ended["result"]["_provenance"]["job_id"] == job
    assert (ended["submitted_by"], ended["correlation_id"]) == ("me", "c1")


async def test_the_first_nodes_are_dispatched_in_the_transaction_of_submit(harness: Harness) -> None:
    """No orchestrator runs, and a worker can take it already."""
    job = await harness.submit(HELLO, {"name": "Ada"})
    assert (await harness.job(job))["status"] == "running"
    assert await harness.statuses(job) == {"greet": "dispatched", "again": "pending"}
    assert await harness.event_types(job) == ["job_created", "job_started", "node_ready", "node_dispatched"]
    item = await (await harness.manual_worker()).claim_one()
    assert (item.job_id, item.node_id, item.attempt, item.params) == (job, "greet", 1, {"name": "Ada"})


async def test_a_submit_that_is_rolled_back_leaves_nothing(harness: Harness) -> None:
    definition = await harness.publish(FREE)

    async def fail_after_submit() -> None:
        async with harness.db.transaction("submit") as tx:
            await submit(tx, harness.engine_context, [Submission("free", definition_id=definition)])
            raise RuntimeError("the caller's own rows did not fit")

    with pytest.raises(RuntimeError):
        await fail_after_submit()
    assert await _counts(harness) == (0, 0, 0, 0)


async def test_a_thousand_jobs_are_made_at_once_in_the_order_given(harness: Harness) -> None:
    jobs = await harness.submit_many(ANY, [{"x": number} for number in range(1000)])
    assert len(set(jobs)) == 1000
    assert await _counts(harness) == (1000, 1000, 1000, 4000)
    numbers = dict(await harness.rows("select id::text, (input ->> 'x')::int from cograil.jobs"))
    assert [numbers[job] for job in jobs] == list(range(1000))


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({}, "missing_input"),
        ({"name": 5}, "invalid_type"),
        ({"name": "Ada", "nmae": "Bob"}, "unknown_input"),
        ({"name": "Ada", "times": "many"}, "invalid_type"),
    ],
)
async def test_no_job_of_several_with_one_bad_input_is_made(
    harness: Harness, inputs: dict[str, Any], code: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        await harness.submit_many(HELLO, [{"name": "fine"}, inputs, {"name": "fine too"}])
    assert [problem.code for problem in caught.value.problems] == [code]
    assert await _counts(harness) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    "value", ["\0", "\ud800", float("nan"), float("inf"), 2**70, object()], ids=lambda v: repr(v)[:20]
)
async def test_input_that_the_database_cannot_keep_is_refused_by_name(harness: Harness, value: Any) -> None:
    with pytest.raises(InvalidInput):
        await harness.submit(ANY, {"x": [value]})
    assert await _counts(harness) == (0, 0, 0, 0)


@pytest.mark.parametrize("priority", [-1, 11])
async def test_a_priority_outside_zero_to_ten_is_the_callers_mistake(harness: Harness, priority: int) -> None:
    with pytest.raises(InvalidInput, match="priority"):
        await harness.submit(FREE, priority=priority)


async def test_an_unknown_workflow_or_version_is_refused(harness: Harness) -> None:
    await harness.publish(FREE)
    for name, version in (("nobody", None), ("free", 2)):
        with pytest.raises(WorkflowNotFound, match=name):
            async with harness.db.transaction("submit") as tx:
                await submit(
                    tx, harness.engine_context, [Submission("free"), Submission(name, version=version)]
                )
    assert await _counts(harness) == (0, 0, 0, 0)


async def test_tasks_are_claimed_by_priority_and_then_by_age(harness: Harness) -> None:
    order = [(0, "a"), (5, "b"), (10, "c"), (5, "d"), (0, "e")]
    names = {await harness.submit(FREE, priority=priority): name for priority, name in order}
    worker = await harness.manual_worker()
    claimed = [names[(await worker.claim_one()).job_id] for _ in order]
    assert "".join(claimed) == "cbdae"


async def test_a_batch_of_claims_comes_in_that_order_too(harness: Harness) -> None:
    jobs = [await harness.submit(FREE, priority=priority) for priority in (1, 3, 2, 3)]
    items = await (await harness.manual_worker()).claim(3)
    assert [jobs.index(item.job_id) for item in items] == [1, 3, 2]


async def test_later_nodes_keep_the_priority_of_their_job(harness: Harness) -> None:
    urgent = await harness.submit(HELLO, {"name": "Ada"}, priority=9)
    worker = await harness.manual_worker()
    assert await worker.report(await worker.claim_one(), {"message": "hi"})
    for _ in range(3):
        await harness.submit(FREE)
    await harness.advance()
    assert (await worker.claim_one()).job_id == urgent


async def test_a_job_is_held_back_until_its_moment(harness: Harness, eventually: Any) -> None:
    moment = datetime.now(UTC) + timedelta(hours=1)
    job = await harness.submit(FREE, not_before=moment)
    assert await harness.advance() == 0
    assert (await harness.job(job))["status"] == "pending"
    assert await harness.rows("select id from cograil.tasks") == []
    assert await harness.rows("select wake_at from cograil.jobs") == [(moment,)]


async def test_a_job_that_was_held_back_starts_when_its_moment_comes(harness: Harness) -> None:
    async with harness.running():
        moment = datetime.now(UTC) + timedelta(seconds=0.4)
        job = await harness.submit(FREE, not_before=moment)
        ended = await harness.ended(job)
    assert ended["status"] == "completed"
    assert ended["started_at"] >= moment


async def test_a_moment_in_the_past_is_now(harness: Harness) -> None:
    job = await harness.submit(FREE, not_before=datetime(2001, 1, 1, tzinfo=UTC))
    assert (await harness.job(job))["status"] == "running"


async def test_a_job_stays_with_the_version_it_began_with(harness: Harness) -> None:
    first = await harness.publish(HELLO)
    job = await harness.submit(HELLO, {"name": "Ada"}, definition_id=None)
    newer = HELLO.replace("workflow_id: hello", "workflow_id: hello\nversion: 2").replace("said:", "shouted:")
    await harness.publish(newer)
    async with harness.running():
        old, new = (
            await harness.ended(job),
            await harness.ended(await harness.submit(newer, {"name": "Ada"}, definition_id=None)),
        )
    assert (old["workflow_version"], new["workflow_version"]) == (1, 2)
    assert "said" in old["result"]["again"]["echoed_params"]
    assert "shouted" in new["result"]["again"]["echoed_params"]
    assert await harness.rows("select definition_id from cograil.jobs where id = %(id)s", id=job) == [
        (first,)
    ]


async def _counts(harness: Harness) -> tuple[int, ...]:
    tables = ("jobs", "nodes", "tasks", "events")
    return tuple([(await harness.rows(f"select count(*) from cograil.{table}"))[0][0] for table in tables])


STRICT = """
workflow_id: strict
nodes:
  first: {handler: echo, queue: default, next: each}
  each: {type: fan_out, source: [1], QUEUE task: {handler: echo}, next: all}
  all: {type: fan_in}
"""


async def test_where_queues_must_be_named_a_workflow_without_is_refused(harness: Harness) -> None:
    harness.engine_context.strict_queues = True
    with pytest.raises(QueueNotNamed, match="does not name a queue for each;"):
        await harness.submit(STRICT.replace("QUEUE", ""))
    assert (await _counts(harness))[0] == 0
    await harness.submit(STRICT.replace("QUEUE", "queue: q,"))


def test_the_setting_for_strict_queues_reaches_submit() -> None:
    assert make_engine_context(Settings(queues=QueueSettings(strict=True))).strict_queues
    assert not make_engine_context(Settings()).strict_queues


@pytest.mark.parametrize(("names", "status"), [((), "not named"), (("q",), None)])
async def test_a_part_that_starts_where_queues_must_be_named_and_are_not_is_not_ready(
    harness: Harness, names: tuple[str, ...], status: str | None
) -> None:
    settings = Settings(queues=QueueSettings(strict=True, names=names))
    problem = (await ProcessHealth(harness.db, {}, queue_checks(settings)).checks()).get("queues")
    assert problem is None if status is None else (problem or "").startswith(status)
