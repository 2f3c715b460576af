"""What `advance` decides when somebody retries a failed node of a running job: one example per rule."""

from __future__ import annotations

import pytest
from tests.support.fan_out_jobs import FAN, fan_out_job
from tests.support.memory_job import Job

from cograil.model.job import Bounds

BUSY = """
workflow_id: w
nodes:
  other: {handler: h}
  a: {handler: h, params: {x: "{{ inputs.x }}"}, retry: {max_attempts: 1}, next: b}
  b: {handler: h, next: c}
  c: {handler: h}
"""


def test_a_failed_node_of_a_running_job_is_tried_again_and_what_it_took_down_is_open() -> None:
    job = Job(BUSY, {"x": 1})
    job.fail("a")
    assert job["b"] == job["c"] == "skipped"
    job.retry("a")
    assert job.tasks["a"].attempt == 2
    assert job["b"] == job["c"] == "pending"
    for name in ("a", "b", "c", "other"):
        job.complete(name)
    assert job.status == "completed"


def test_a_retry_by_hand_gives_all_attempts_anew() -> None:
    job = Job(BUSY.replace("max_attempts: 1", "max_attempts: 2, initial_delay_seconds: 0"), {"x": 1})
    job.fail("a")
    job.fail("a")
    job.retry("a")
    job.fail("a")
    assert job["a"] == "dispatched"
    job.fail("a")
    assert job["a"] == "failed"
    assert [attempt for name, attempt in job.dispatched if name == "a"] == [1, 2, 3, 4]


@pytest.mark.parametrize("node", ["other", "b", "nobody"])
def test_only_a_failed_node_is_tried_again(node: str) -> None:
    job = Job(BUSY, {"x": 1})
    job.fail("a")
    before = len(job.rows.events)
    job.retry(node)
    assert len(job.rows.events) == before


def test_a_node_that_never_was_handed_out_is_tried_again_from_its_params() -> None:
    job = Job(
        """
workflow_id: w
nodes:
  other: {handler: h}
  a: {handler: h, next: b}
  b: {handler: h, params: {x: "{{ nodes.a.output.x }}"}}
"""
    )
    job.complete("a", {})
    assert job["b"] == "failed"
    job.retry("b")
    assert job["b"] == "failed"
    assert job.events("b") == ["node_ready", "node_failed", "node_retry", "node_failed"]


def test_a_conditional_and_a_fan_in_can_be_tried_again() -> None:
    job = Job(
        FAN.replace("MODE", "sum")
        + "  other: {handler: h, next: choose}\n"
        + '  choose: {type: conditional, condition: "{{ output.go }}", branches: {true: z, false: END}}\n'
        + "  z: {handler: h}\n",
        {"list": [1]},
    )
    job.complete("other", {})
    job.retry("choose")
    assert job["choose"] == "failed"
    assert job["z"] == "skipped"
    assert job.row("z").skip_reason == "upstream_failed"


def test_a_failed_child_is_tried_again_and_the_fan_in_opens() -> None:
    job = Job(FAN.replace("MODE", "collect") + "  other: {handler: h}\n", {"list": [1, 2, 3]})
    job.advance(job.failed("split__0"), job.failed("split__1"), job.completed("split__2", {"n": 3}))
    assert job["gather"] == "failed"
    job.retry("split__0")
    assert (job["split"], job["gather"]) == ("running", "pending")
    job.complete("split__0", {"n": 1})
    assert job.row("gather").error["children"] == ["split__1"]
    assert job.row("gather").error["message"] == "1 of 3 children failed: split__1"
    job.retry("split__1")
    job.complete("split__1", {"n": 2})
    assert job.output("gather")["results"] == [{"n": 1}, {"n": 2}, {"n": 3}]
    job.complete("other")
    assert job.status == "completed"


def test_a_child_whose_params_could_not_be_rendered_can_be_tried_again() -> None:
    text = FAN.replace("MODE", "collect").replace('"{{ item }}"', '"{{ item.n }}"')
    job = Job(text + "  other: {handler: h}\n", {"list": [{"n": 1}, {}]})
    assert job["split__1"] == "failed"
    job.retry("split__1")
    assert job["split__1"] == "failed"
    job.complete("split__0")
    assert job["gather"] == "failed"
    job.retry("split__1")
    assert job["gather"] == "failed"
    job.complete("other")
    assert job.status == "failed"


def test_a_deadline_that_comes_with_a_retry_begins_nothing_new() -> None:
    job = Job("timeout_seconds: 10\n" + BUSY.strip(), {"x": 1})
    job.fail("a")
    job.now = job.rows.deadline or job.now
    job.retry("a")
    assert job.status == "failed"
    assert job["a"] == "failed"
    assert job.events("a").count("node_retry") == 0


def test_a_cancel_that_comes_with_more_children_makes_none() -> None:
    job = fan_out_job(5, bounds=Bounds(chunk=2))
    assert job.to_expand
    job.cancel()
    made = len(job.dispatched)
    assert job.status == "cancelled"
    assert made == 2
