"""Subworkflows: a job inside a job, from its birth to its end, and what the two tell each other."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.harness import Harness, ManualWorker

from cograil.model.outcome import Failed
from cograil.verbs.advance import advance_one

CHILD = """
workflow_id: child
version: 1
inputs:
  n: {type: integer}
nodes:
  work: {handler: echo, params: {n: "{{ inputs.n }}"}, retry: {max_attempts: 1}}
"""
PARENT = """
workflow_id: parent
nodes:
  sub:
    type: subworkflow
    retry: {max_attempts: 2, initial_delay_seconds: 0}
    subworkflow: {workflow_id: child, inputs: {n: 7}}
    next: after
  after: {handler: echo, params: {got: "{{ output.result.work.n }}", job: "{{ output.job_id }}"}}
"""
CIRCLE = """
workflow_id: {}
version: 1
nodes:
  sub: {{type: subworkflow, retry: {{max_attempts: 1}}, subworkflow: {{workflow_id: {}}}}}
"""


async def children_of(harness: Harness, job: str) -> list[str]:
    """The jobs that were made for this one, oldest first."""
    query = "select id::text from cograil.jobs where parent_job = %(id)s order by id"
    return [job_id for (job_id,) in await harness.rows(query, id=job)]


async def begin(harness: Harness, text: str = PARENT) -> tuple[str, str]:
    """A parent and its child."""
    await harness.publish(CHILD)
    job = await harness.submit(text, correlation_id="c", submitted_by="ann", priority=3)
    (child,) = await children_of(harness, job)
    return job, child


async def end(harness: Harness, worker: ManualWorker, outcome: dict[str, Any] | Failed) -> None:
    await worker.report(await worker.claim_one(), outcome)
    await harness.advance()


async def test_a_child_that_takes_too_long_is_cancelled_and_followed_by_another(harness: Harness) -> None:
    job, child = await begin(
        harness, PARENT.replace("type: subworkflow", "type: subworkflow\n    timeout_seconds: 60")
    )
    worker = await harness.manual_worker()
    await worker.claim_one()
    await harness.rows("update cograil.nodes set not_before = now() where node_id = 'sub'")
    await harness.rows("update cograil.jobs set wake_at = now() where id = %(id)s", id=job)
    await harness.advance()
    assert ((await harness.job(child))["status"], (await harness.job(child))["error"]["message"]) == (
        "cancelled",
        "it took too long",
    )
    assert len(await children_of(harness, job)) == 2
    assert await harness.findings() == []
    await end(harness, worker, {"n": 8})
    assert ((await harness.statuses(job))["sub"], (await harness.nodes(job))["sub"]["attempt"]) == (
        "completed",
        2,
    )
    types = await harness.event_types(job, "sub")
    assert types == [
        "node_ready",
        "child_started",
        "node_timeout",
        "task_failed",
        "node_retry",
        "child_started",
        "node_completed",
    ]
    assert await harness.findings() == []


async def test_a_child_is_born_with_its_parents_decision(harness: Harness) -> None:
    job, child = await begin(harness)
    made = await harness.job(child)
    assert made["status"] == "running"
    assert made["input_params"] == {"n": 7}
    assert (made["correlation_id"], made["submitted_by"], made["priority"]) == ("c", "ann", 3)
    rows = await harness.rows(
        "select parent_job::text, parent_node from cograil.jobs where id = %(id)s", id=child
    )
    assert rows == [(job, "sub")]
    ((linked,),) = await harness.rows(
        "select child_job::text from cograil.nodes where job_id = %(id)s and node_id = 'sub'", id=job
    )
    assert linked == child
    assert (await harness.statuses(job))["sub"] == "waiting"
    assert await harness.event_types(job, "sub") == ["node_ready", "child_started"]
    assert (await (await harness.manual_worker()).claim_one()).job_id == child


async def test_the_result_of_the_child_is_the_output_of_the_node(harness: Harness) -> None:
    job, child = await begin(harness)
    worker = await harness.manual_worker()
    await end(harness, worker, {"n": 8})
    output = (await harness.nodes(job))["sub"]["output"]
    assert (output["job_id"], output["status"], output["result"]["work"]) == (child, "completed", {"n": 8})
    assert (await worker.claim_one()).params == {"got": 8, "job": child}


async def test_parent_and_child_run_to_their_end_by_themselves(harness: Harness) -> None:
    await harness.publish(CHILD)
    job = await harness.submit(PARENT.replace("{{ output.result.work.n }}", "{{ output.status }}"))
    async with harness.running():
        assert (await harness.ended(job))["status"] == "completed"
    assert await harness.statuses(job) == {"sub": "completed", "after": "completed"}


async def test_a_failed_child_is_tried_again_by_a_new_job(harness: Harness) -> None:
    job, child = await begin(harness)
    worker = await harness.manual_worker()
    await end(harness, worker, Failed("oops", "no", retryable=False))
    first, second = await children_of(harness, job)
    assert first == child
    assert (await harness.statuses(job))["sub"] == "waiting"
    await end(harness, worker, {"n": 1})
    assert (await harness.nodes(job))["sub"]["output"]["job_id"] == second
    kinds = ["node_ready", "child_started", "task_failed", "node_retry", "child_started", "node_completed"]
    assert await harness.event_types(job, "sub") == kinds


async def test_when_no_attempt_is_left_the_node_fails_with_the_childs_error(harness: Harness) -> None:
    job, _ = await begin(harness)
    worker = await harness.manual_worker()
    await end(harness, worker, Failed("oops", "no", retryable=False))
    await end(harness, worker, Failed("oops", "no", retryable=False))
    ended = await harness.job(job)
    _, last = await children_of(harness, job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "child_failed")
    assert ended["error"]["details"]["job_id"] == last
    assert ended["error"]["details"]["error"]["code"] == "oops"


async def test_a_child_that_somebody_cancelled_is_not_tried_again(harness: Harness) -> None:
    job, child = await begin(harness)
    await harness.cancel(child, reason="not this one")
    await harness.advance()
    ended = await harness.job(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "child_cancelled")
    assert "not this one" in ended["error"]["message"]
    assert await children_of(harness, job) == [child]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (PARENT.replace("workflow_id: child,", "workflow_id: nowhere,"), "workflow_not_found"),
        (PARENT.replace("workflow_id: child,", "workflow_id: child, version: 9,"), "workflow_not_found"),
        (PARENT.replace("n: 7", "n: seven"), "invalid_input"),
        (PARENT.replace("n: 7", "m: 7"), "invalid_input"),
        (PARENT.replace("n: 7", "n: '{{ inputs.no }}'"), "template_undefined"),
    ],
)
async def test_a_child_that_cannot_be_made_fails_the_node_and_makes_nothing(
    harness: Harness, text: str, code: str
) -> None:
    await harness.publish(CHILD)
    job = await harness.submit(text)
    assert (await harness.nodes(job))["sub"]["error"]["code"] == code
    assert (await harness.job(job))["status"] == "failed"
    assert await harness.rows("select count(*) from cograil.jobs") == [(1,)]


async def test_a_child_keeps_the_version_it_began_with(harness: Harness) -> None:
    job, child = await begin(harness)
    await harness.publish(CHILD.replace("version: 1", "version: 2"))
    worker = await harness.manual_worker()
    assert (await harness.job(child))["workflow_version"] == 1
    await end(harness, worker, Failed("oops", "no", retryable=False))
    _, second = await children_of(harness, job)
    assert (await harness.job(second))["workflow_version"] == 2  # the newest when it starts


async def test_a_version_that_is_named_is_taken(harness: Harness) -> None:
    await harness.publish(CHILD)
    await harness.publish(CHILD.replace("version: 1", "version: 2"))
    job = await harness.submit(PARENT.replace("workflow_id: child,", "workflow_id: child, version: 1,"))
    (child,) = await children_of(harness, job)
    assert (await harness.job(child))["workflow_version"] == 1


async def test_cancel_reaches_the_child_and_its_running_handler(harness: Harness) -> None:
    job, child = await begin(harness)
    worker = await harness.manual_worker()
    item = await worker.claim_one()
    assert await harness.cancel(job) == "cancelled"
    assert (await harness.job(child))["status"] == "running"  # nobody locks the two together
    await harness.advance()
    assert (await harness.job(child))["status"] == "cancelled"
    assert (await worker.heartbeat()).task_ids == frozenset()
    assert not await worker.report(item, {"n": 1})
    assert await harness.rows("select 1 from cograil.inbox where kind <> 'late'") == []


async def test_a_child_that_was_done_before_the_cancel_stays_done(harness: Harness) -> None:
    job, child = await begin(harness)
    worker = await harness.manual_worker()
    await worker.report(await worker.claim_one(), {"n": 1})
    await harness.cancel(job)
    await harness.advance()
    assert (await harness.job(child))["status"] == "completed"
    assert (await harness.job(job))["status"] == "cancelled"


async def test_the_parents_deadline_and_fail_fast_reach_the_child(harness: Harness) -> None:
    job, child = await begin(harness, PARENT.replace("nodes:", "timeout_seconds: 60\nnodes:"))
    past = "now() - interval '1 s'"
    query = f"update cograil.jobs set deadline = {past}, wake_at = {past} where id = %(id)s"
    await harness.rows(query, id=job)
    await harness.advance()
    assert (await harness.job(job))["error"]["code"] == "job_timeout"
    assert (await harness.job(child))["status"] == "cancelled"
    fast = PARENT.replace(
        "nodes:", "fail_fast: true\nnodes:\n  bad: {handler: bad, retry: {max_attempts: 1}}"
    )
    job = await harness.submit(fast)
    (child,) = await children_of(harness, job)
    worker = await harness.manual_worker()
    (item,) = await worker.claim(handlers=["bad"])
    await worker.report(item, Failed("oops", "no"))
    await harness.advance()
    assert (await harness.job(job))["error"]["code"] == "oops"
    assert (await harness.job(child))["status"] == "cancelled"


async def test_a_tree_without_an_end_stops_at_its_tenth_generation(harness: Harness) -> None:
    await harness.publish(CIRCLE.format("there", "back"))
    await harness.publish(CIRCLE.format("back", "there"))
    job = await harness.submit(CIRCLE.format("there", "back"))
    assert len(await harness.rows("select 1 from cograil.jobs")) == 2  # a tree is not made at once
    await harness.advance()
    assert len(await harness.rows("select 1 from cograil.jobs")) == 11
    ((last,),) = await harness.rows(
        "select id::text from cograil.jobs j where not exists"
        " (select 1 from cograil.jobs c where c.parent_job = j.id)"
    )
    assert (await harness.job(last))["error"]["code"] == "subworkflow_too_deep"
    assert (await harness.job(job))["error"]["code"] == "child_failed"


async def test_a_child_that_ends_at_once_is_news_for_its_parent(harness: Harness) -> None:
    await harness.publish(
        "workflow_id: child\ninputs: {n: {type: integer}}\nnodes:\n  w: {type: wait, wait: {seconds: 0}}\n"
    )
    job = await harness.submit(PARENT.replace("{{ output.result.work.n }}", "{{ output.status }}"))
    assert await harness.advance() == 1
    assert (await harness.statuses(job)) == {"sub": "completed", "after": "dispatched"}


async def test_a_retried_job_keeps_a_subworkflow_that_completed(harness: Harness) -> None:
    job, child = await begin(harness, PARENT.replace("after: {", "after: {retry: {max_attempts: 1}, "))
    worker = await harness.manual_worker()
    await end(harness, worker, {"n": 5})
    await end(harness, worker, Failed("oops", "no"))
    again = await harness.retry(job)
    assert (await harness.nodes(again))["sub"]["output"]["job_id"] == child
    assert (await worker.claim_one()).params["got"] == 5
    assert await children_of(harness, again) == []
    third = await harness.retry(job, "sub")
    assert len(await children_of(harness, third)) == 1


async def test_a_failed_subworkflow_can_be_retried_in_place(harness: Harness) -> None:
    text = PARENT[: PARENT.index("    next:")].replace("type: subw", "required: false\n    type: subw")
    job, _ = await begin(harness, text + "  hold: {handler: hold}\n")
    worker = await harness.manual_worker()
    for _ in range(2):
        (item,) = await worker.claim(handlers=["echo"])
        await worker.report(item, Failed("oops", "no", retryable=False))
        await harness.advance()
    assert (await harness.statuses(job))["sub"] == "failed"
    await harness.retry(job, "sub")
    assert (await harness.statuses(job))["sub"] == "waiting"
    assert len(await children_of(harness, job)) == 3


async def test_old_news_of_a_child_change_nothing(harness: Harness) -> None:
    job, _ = await begin(harness)
    worker = await harness.manual_worker()
    item = await worker.claim_one()
    await worker.report(item, Failed("oops", "no", retryable=False))
    async with harness.db.transaction("test") as tx:
        await advance_one(tx, harness.engine_context, item.job_id)
    copy = """insert into cograil.inbox (job_id, kind, node_id, attempt, error)
        select job_id, kind, node_id, attempt, error from cograil.inbox where kind = 'child'"""
    await harness.rows(copy)
    await harness.advance()
    assert len(await children_of(harness, job)) == 2
    assert (await harness.event_types(job, "sub")).count("node_retry") == 1


async def test_the_doctor_sees_families_that_lost_touch(harness: Harness) -> None:
    async def codes_after(query: str, undo: str) -> list[str]:
        await harness.rows(query)
        codes = [finding.code for finding in await harness.findings()]
        await harness.rows(undo)
        return codes

    job, child = await begin(harness)
    unlink = "update cograil.jobs set parent_node = 'x' where parent_job is not null"
    assert await codes_after(unlink, unlink.replace("'x'", "'sub'")) == ["I03"]
    worker = await harness.manual_worker()
    await worker.report(await worker.claim_one(), {"n": 1})
    async with harness.db.transaction("test") as tx:
        await advance_one(tx, harness.engine_context, child)
    deafen = "update cograil.inbox set attempt = 9 where kind = 'child'"
    assert await codes_after(deafen, deafen.replace("9", "1")) == ["I03"]
    await harness.advance()
    job = await harness.submit(PARENT)
    await harness.cancel(job)
    spare = "update cograil.inbox set kind = 'more' where kind = 'cancel'"
    assert await codes_after(spare, "update cograil.inbox set kind = 'cancel' where kind = 'more'") == ["I02"]


async def test_a_crash_between_any_two_statements_leaves_all_or_nothing(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The birth, the end and the cancel of a child, cut off at every statement of their transactions."""
    await harness.publish(CHILD)
    job = await _despite_crashes(harness, monkeypatch, lambda: harness.submit(PARENT))
    assert len(await harness.rows("select 1 from cograil.jobs")) == 2
    worker = await harness.manual_worker()
    await worker.report(await worker.claim_one(), Failed("oops", "no", retryable=False))
    await _despite_crashes(harness, monkeypatch, harness.advance)
    first, second = await children_of(harness, job)
    assert (await harness.job(first))["status"] == "failed"
    await _despite_crashes(harness, monkeypatch, lambda: harness.cancel(job))
    await _despite_crashes(harness, monkeypatch, harness.advance)
    assert [(await harness.job(job_id))["status"] for job_id in (job, second)] == ["cancelled", "cancelled"]


class Crash(Exception):
    """The connection broke."""


async def _despite_crashes(harness: Harness, monkeypatch: pytest.MonkeyPatch, act: Any) -> Any:
    """Do this, crashing before its first statement, its second, ... until it comes through."""
    for allowed in range(100):
        left = allowed

        def point(name: str) -> None:
            nonlocal left
            left -= 1
            if left < 0 and not name.endswith("commit.after"):
                raise Crash(name)

        with monkeypatch.context() as patch:
            patch.setattr("cograil.fault_injection.is_on", True)
            patch.setattr("cograil.fault_injection.point", point)
            try:
                return await act()
            except Crash:
                pass
        assert await harness.findings() == []
    raise AssertionError("it never came through")
