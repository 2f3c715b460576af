"""Subworkflows: a job inside a job, from its birth to its end, and what the two tell each other."""

from __future__ import annotations

from typing import Any

import pytest
from lab import Hand, Lab

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


async def children_of(lab: Lab, job: str) -> list[str]:
    """The jobs that were made for this one, oldest first."""
    query = "select id::text from cograil.jobs where parent_job = %(id)s order by id"
    return [row[0] for row in await lab.rows(query, id=job)]


async def begin(lab: Lab, text: str = PARENT) -> tuple[str, str]:
    """A parent and its child."""
    await lab.publish(CHILD)
    job = await lab.submit(text, correlation_id="c", submitted_by="ann", priority=3)
    (child,) = await children_of(lab, job)
    return job, child


async def end(lab: Lab, hand: Hand, outcome: dict[str, Any] | Failed) -> None:
    await hand.report(await hand.claim_one(), outcome)
    await lab.advance()


async def test_a_child_that_takes_too_long_is_cancelled_and_followed_by_another(lab: Lab) -> None:
    job, child = await begin(
        lab, PARENT.replace("type: subworkflow", "type: subworkflow\n    timeout_seconds: 60")
    )
    hand = await lab.hand()
    await hand.claim_one()
    await lab.rows("update cograil.nodes set not_before = now() where node_id = 'sub'")
    await lab.rows("update cograil.jobs set wake_at = now() where id = %(id)s", id=job)
    await lab.advance()
    assert ((await lab.job(child))["status"], (await lab.job(child))["error"]["message"]) == (
        "cancelled",
        "it took too long",
    )
    assert len(await children_of(lab, job)) == 2
    assert await lab.findings() == []
    await end(lab, hand, {"n": 8})
    assert ((await lab.statuses(job))["sub"], (await lab.nodes(job))["sub"]["attempt"]) == ("completed", 2)
    types = await lab.event_types(job, "sub")
    assert types == [
        "node_ready",
        "child_started",
        "node_timeout",
        "task_failed",
        "node_retry",
        "child_started",
        "node_completed",
    ]
    assert await lab.findings() == []


async def test_a_child_is_born_with_its_parents_decision(lab: Lab) -> None:
    job, child = await begin(lab)
    made = await lab.job(child)
    assert made["status"] == "running"
    assert made["input_params"] == {"n": 7}
    assert (made["correlation_id"], made["submitted_by"], made["priority"]) == ("c", "ann", 3)
    rows = await lab.rows(
        "select parent_job::text, parent_node from cograil.jobs where id = %(id)s", id=child
    )
    assert rows == [(job, "sub")]
    ((linked,),) = await lab.rows(
        "select child_job::text from cograil.nodes where job_id = %(id)s and node_id = 'sub'", id=job
    )
    assert linked == child
    assert (await lab.statuses(job))["sub"] == "waiting"
    assert await lab.event_types(job, "sub") == ["node_ready", "child_started"]
    assert (await (await lab.hand()).claim_one()).job_id == child


async def test_the_result_of_the_child_is_the_output_of_the_node(lab: Lab) -> None:
    job, child = await begin(lab)
    hand = await lab.hand()
    await end(lab, hand, {"n": 8})
    output = (await lab.nodes(job))["sub"]["output"]
    assert (output["job_id"], output["status"], output["result"]["work"]) == (child, "completed", {"n": 8})
    assert (await hand.claim_one()).params == {"got": 8, "job": child}


async def test_parent_and_child_run_to_their_end_by_themselves(lab: Lab) -> None:
    await lab.publish(CHILD)
    job = await lab.submit(PARENT.replace("{{ output.result.work.n }}", "{{ output.status }}"))
    async with lab.running():
        assert (await lab.ended(job))["status"] == "completed"
    assert await lab.statuses(job) == {"sub": "completed", "after": "completed"}


async def test_a_failed_child_is_tried_again_by_a_new_job(lab: Lab) -> None:
    job, child = await begin(lab)
    hand = await lab.hand()
    await end(lab, hand, Failed("oops", "no", retryable=False))
    first, second = await children_of(lab, job)
    assert first == child
    assert (await lab.statuses(job))["sub"] == "waiting"
    await end(lab, hand, {"n": 1})
    assert (await lab.nodes(job))["sub"]["output"]["job_id"] == second
    kinds = ["node_ready", "child_started", "task_failed", "node_retry", "child_started", "node_completed"]
    assert await lab.event_types(job, "sub") == kinds


async def test_when_no_attempt_is_left_the_node_fails_with_the_childs_error(lab: Lab) -> None:
    job, _ = await begin(lab)
    hand = await lab.hand()
    await end(lab, hand, Failed("oops", "no", retryable=False))
    await end(lab, hand, Failed("oops", "no", retryable=False))
    ended = await lab.job(job)
    _, last = await children_of(lab, job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "child_failed")
    assert ended["error"]["details"]["job_id"] == last
    assert ended["error"]["details"]["error"]["code"] == "oops"


async def test_a_child_that_somebody_cancelled_is_not_tried_again(lab: Lab) -> None:
    job, child = await begin(lab)
    await lab.cancel(child, reason="not this one")
    await lab.advance()
    ended = await lab.job(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "child_cancelled")
    assert "not this one" in ended["error"]["message"]
    assert await children_of(lab, job) == [child]


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
async def test_what_cannot_be_made_fails_the_node_and_makes_nothing(lab: Lab, text: str, code: str) -> None:
    await lab.publish(CHILD)
    job = await lab.submit(text)
    assert (await lab.nodes(job))["sub"]["error"]["code"] == code
    assert (await lab.job(job))["status"] == "failed"
    assert await lab.rows("select count(*) from cograil.jobs") == [(1,)]


async def test_a_child_keeps_the_version_it_began_with(lab: Lab) -> None:
    job, child = await begin(lab)
    await lab.publish(CHILD.replace("version: 1", "version: 2"))
    hand = await lab.hand()
    assert (await lab.job(child))["workflow_version"] == 1
    await end(lab, hand, Failed("oops", "no", retryable=False))
    _, second = await children_of(lab, job)
    assert (await lab.job(second))["workflow_version"] == 2  # the newest when it starts


async def test_a_version_that_is_named_is_taken(lab: Lab) -> None:
    await lab.publish(CHILD)
    await lab.publish(CHILD.replace("version: 1", "version: 2"))
    job = await lab.submit(PARENT.replace("workflow_id: child,", "workflow_id: child, version: 1,"))
    (child,) = await children_of(lab, job)
    assert (await lab.job(child))["workflow_version"] == 1


async def test_cancel_reaches_the_child_and_its_running_handler(lab: Lab) -> None:
    job, child = await begin(lab)
    hand = await lab.hand()
    item = await hand.claim_one()
    assert await lab.cancel(job) == "cancelled"
    assert (await lab.job(child))["status"] == "running"  # nobody locks the two together
    await lab.advance()
    assert (await lab.job(child))["status"] == "cancelled"
    assert (await hand.heartbeat()).task_ids == frozenset()
    assert not await hand.report(item, {"n": 1})
    assert await lab.rows("select 1 from cograil.inbox where kind <> 'late'") == []


async def test_a_child_that_was_done_before_the_cancel_stays_done(lab: Lab) -> None:
    job, child = await begin(lab)
    hand = await lab.hand()
    await hand.report(await hand.claim_one(), {"n": 1})
    await lab.cancel(job)
    await lab.advance()
    assert (await lab.job(child))["status"] == "completed"
    assert (await lab.job(job))["status"] == "cancelled"


async def test_the_parents_deadline_and_fail_fast_reach_the_child(lab: Lab) -> None:
    job, child = await begin(lab, PARENT.replace("nodes:", "timeout_seconds: 60\nnodes:"))
    past = "now() - interval '1 s'"
    query = f"update cograil.jobs set deadline = {past}, wake_at = {past} where id = %(id)s"
    await lab.rows(query, id=job)
    await lab.advance()
    assert (await lab.job(job))["error"]["code"] == "job_timeout"
    assert (await lab.job(child))["status"] == "cancelled"
    fast = PARENT.replace(
        "nodes:", "fail_fast: true\nnodes:\n  bad: {handler: bad, retry: {max_attempts: 1}}"
    )
    job = await lab.submit(fast)
    (child,) = await children_of(lab, job)
    hand = await lab.hand()
    (item,) = await hand.claim(handlers=["bad"])
    await hand.report(item, Failed("oops", "no"))
    await lab.advance()
    assert (await lab.job(job))["error"]["code"] == "oops"
    assert (await lab.job(child))["status"] == "cancelled"


async def test_a_tree_without_an_end_stops_at_its_tenth_generation(lab: Lab) -> None:
    await lab.publish(CIRCLE.format("there", "back"))
    await lab.publish(CIRCLE.format("back", "there"))
    job = await lab.submit(CIRCLE.format("there", "back"))
    assert len(await lab.rows("select 1 from cograil.jobs")) == 2  # a tree is not made at once
    await lab.advance()
    assert len(await lab.rows("select 1 from cograil.jobs")) == 11
    ((last,),) = await lab.rows(
        "select id::text from cograil.jobs j where not exists"
        " (select 1 from cograil.jobs c where c.parent_job = j.id)"
    )
    assert (await lab.job(last))["error"]["code"] == "subworkflow_too_deep"
    assert (await lab.job(job))["error"]["code"] == "child_failed"


async def test_a_child_that_ends_at_once_is_news_for_its_parent(lab: Lab) -> None:
    await lab.publish(
        "workflow_id: child\ninputs: {n: {type: integer}}\nnodes:\n  w: {type: wait, wait: {seconds: 0}}\n"
    )
    job = await lab.submit(PARENT.replace("{{ output.result.work.n }}", "{{ output.status }}"))
    assert await lab.advance() == 1
    assert (await lab.statuses(job)) == {"sub": "completed", "after": "dispatched"}


async def test_a_retried_job_keeps_a_subworkflow_that_completed(lab: Lab) -> None:
    job, child = await begin(lab, PARENT.replace("after: {", "after: {retry: {max_attempts: 1}, "))
    hand = await lab.hand()
    await end(lab, hand, {"n": 5})
    await end(lab, hand, Failed("oops", "no"))
    again = await lab.retry(job)
    assert (await lab.nodes(again))["sub"]["output"]["job_id"] == child
    assert (await hand.claim_one()).params["got"] == 5
    assert await children_of(lab, again) == []
    third = await lab.retry(job, "sub")
    assert len(await children_of(lab, third)) == 1


async def test_a_failed_subworkflow_can_be_retried_in_place(lab: Lab) -> None:
    text = PARENT[: PARENT.index("    next:")].replace("type: subw", "required: false\n    type: subw")
    job, _ = await begin(lab, text + "  hold: {handler: hold}\n")
    hand = await lab.hand()
    for _ in range(2):
        (item,) = await hand.claim(handlers=["echo"])
        await hand.report(item, Failed("oops", "no", retryable=False))
        await lab.advance()
    assert (await lab.statuses(job))["sub"] == "failed"
    await lab.retry(job, "sub")
    assert (await lab.statuses(job))["sub"] == "waiting"
    assert len(await children_of(lab, job)) == 3


async def test_old_news_of_a_child_change_nothing(lab: Lab) -> None:
    job, _ = await begin(lab)
    hand = await lab.hand()
    item = await hand.claim_one()
    await hand.report(item, Failed("oops", "no", retryable=False))
    async with lab.db.transaction("test") as tx:
        await advance_one(tx, lab.engine_context, item.job_id)
    copy = """insert into cograil.inbox (job_id, kind, node_id, attempt, error)
        select job_id, kind, node_id, attempt, error from cograil.inbox where kind = 'child'"""
    await lab.rows(copy)
    await lab.advance()
    assert len(await children_of(lab, job)) == 2
    assert (await lab.event_types(job, "sub")).count("node_retry") == 1


async def test_the_doctor_sees_families_that_lost_touch(lab: Lab) -> None:
    async def codes_after(query: str, undo: str) -> list[str]:
        await lab.rows(query)
        codes = [finding.code for finding in await lab.findings()]
        await lab.rows(undo)
        return codes

    job, child = await begin(lab)
    unlink = "update cograil.jobs set parent_node = 'x' where parent_job is not null"
    assert await codes_after(unlink, unlink.replace("'x'", "'sub'")) == ["I03"]
    hand = await lab.hand()
    await hand.report(await hand.claim_one(), {"n": 1})
    async with lab.db.transaction("test") as tx:
        await advance_one(tx, lab.engine_context, child)
    deafen = "update cograil.inbox set attempt = 9 where kind = 'child'"
    assert await codes_after(deafen, deafen.replace("9", "1")) == ["I03"]
    await lab.advance()
    job = await lab.submit(PARENT)
    await lab.cancel(job)
    spare = "update cograil.inbox set kind = 'more' where kind = 'cancel'"
    assert await codes_after(spare, "update cograil.inbox set kind = 'cancel' where kind = 'more'") == ["I02"]


async def test_a_crash_between_any_two_statements_leaves_all_or_nothing(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The birth, the end and the cancel of a child, cut off at every statement of their transactions."""
    await lab.publish(CHILD)
    job = await _despite_crashes(lab, monkeypatch, lambda: lab.submit(PARENT))
    assert len(await lab.rows("select 1 from cograil.jobs")) == 2
    hand = await lab.hand()
    await hand.report(await hand.claim_one(), Failed("oops", "no", retryable=False))
    await _despite_crashes(lab, monkeypatch, lab.advance)
    first, second = await children_of(lab, job)
    assert (await lab.job(first))["status"] == "failed"
    await _despite_crashes(lab, monkeypatch, lambda: lab.cancel(job))
    await _despite_crashes(lab, monkeypatch, lab.advance)
    assert [(await lab.job(job_id))["status"] for job_id in (job, second)] == ["cancelled", "cancelled"]


class Crash(Exception):
    """The connection broke."""


async def _despite_crashes(lab: Lab, monkeypatch: pytest.MonkeyPatch, act: Any) -> Any:
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
        assert await lab.findings() == []
    raise AssertionError("it never came through")
