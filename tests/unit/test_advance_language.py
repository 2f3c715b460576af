"""Approvals, subworkflows, `when` and `fail_fast` in `advance`: one example for each rule."""

from __future__ import annotations

from datetime import timedelta

import orjson
import pytest
from tests.support.memory_job import Job

from cograil.model.job import CancelRequested

ASK = """
workflow_id: ask
nodes:
  q:
    type: approval
    approval: {message: "really, {{ inputs.who }}?", timeout_seconds: 10, on_timeout: WAY}
    next: b
  b: {handler: h, params: {d: "{{ output.decision }}"}}
"""
SUB = """
workflow_id: sub
nodes:
  s: {type: subworkflow, retry: {max_attempts: 2, initial_delay_seconds: 5}, next: b,
      subworkflow: {workflow_id: w, version: 3, inputs: {x: "{{ inputs.x }}"}}}
  b: {handler: h, params: {r: "{{ output.result.y }}"}}
"""
FAST = """
workflow_id: fast
fail_fast: true
nodes:
  a: {handler: h, retry: {max_attempts: 1}}
  b: {handler: h, next: c}
  c: {handler: h}
"""


def ask(way: str = "reject") -> Job:
    return Job(ASK.replace("WAY", way), {"who": "Ada"})


def test_an_approval_waits_and_says_until_when() -> None:
    job = ask()
    assert (job["q"], job.wakes_in()) == ("waiting", 10)
    assert job.data("approval_requested", "q")["message"] == "really, Ada?"


@pytest.mark.parametrize(("name", "decision"), [("approve", "approved"), ("reject", "rejected")])
def test_an_answer_completes_it_and_what_follows_reads_the_decision(name: str, decision: str) -> None:
    job = ask()
    job.signal("q", name, by="ann", reason="r", data={"x": 1})
    assert job.output("q") == {"decision": decision, "by": "ann", "reason": "r", "data": {"x": 1}}
    assert job.params("b") == {"d": decision}
    assert job.wakes_in() is None


def test_a_second_answer_is_only_recorded() -> None:
    job = ask()
    job.signal("q", "approve")
    job.signal("q", "reject")
    assert job.output("q")["decision"] == "approved"
    assert job.data("warning", "q")["code"] == "late_signal"


def test_silence_rejects_or_fails_as_the_workflow_says() -> None:
    job = ask()
    job.sleep(10)
    assert job.output("q") == {"decision": "rejected", "by": None, "reason": "timeout", "data": None}
    job = ask("fail")
    job.sleep(10)
    assert (job["q"], job.error["code"]) == ("failed", "approval_timeout")


def test_an_answer_at_the_deadline_is_too_late() -> None:
    job = ask()
    job.now = job.rows.nodes["q"].not_before or job.now
    job.signal("q", "approve")
    assert job.output("q")["reason"] == "timeout"


def test_an_approval_whose_message_cannot_be_told_fails() -> None:
    job = Job(ASK.replace("WAY", "reject"))
    assert (job["q"], job.error["code"]) == ("failed", "template_undefined")


def test_a_subworkflow_waits_for_the_job_it_asked_for() -> None:
    job = Job(SUB, {"x": 1})
    assert job["s"] == "waiting"
    child = job.children["s"]
    assert (child.workflow_id, child.workflow_version, child.state.input_text) == ("w", 3, b'{"x":1}')
    job.end_child("s", output={"y": 2})
    assert job.output("s") == {"job_id": child.state.job_id, "status": "completed", "result": {"y": 2}}
    assert job.params("b") == {"r": 2}


def test_a_failed_child_is_followed_by_another_and_a_cancelled_one_is_not() -> None:
    job = Job(SUB, {"x": 1})
    first = job.children["s"].state.job_id
    job.end_child("s", "failed")
    assert (job["s"], job.wakes_in()) == ("ready", 5)
    job.sleep(5)
    assert job["s"] == "waiting"
    assert job.children["s"].state.job_id != first
    job.end_child("s", "cancelled")
    assert (job.status, job.error["code"]) == ("failed", "child_cancelled")


def test_a_child_that_takes_too_long_is_told_to_stop_and_followed_by_another() -> None:
    job = Job(SUB.replace("type: subworkflow", "type: subworkflow, timeout_seconds: 10"), {"x": 1})
    first, late = job.children["s"].state.job_id, job.child_ended("s", "cancelled")
    assert job.wakes_in() == 10
    job.now += timedelta(seconds=10)
    assert job.advance().stops_children == ("s",)
    assert (job["s"], job.wakes_in(), job.data("task_failed", "s")["error"]["code"]) == (
        "ready",
        5,
        "timeout",
    )
    job.advance(late)
    assert job["s"] == "ready"
    job.sleep(5)
    assert (job["s"], job.row("s").attempt, job.wakes_in()) == ("waiting", 2, 10)
    assert job.children["s"].state.job_id != first
    job.sleep(10)
    assert (job.status, job.error["code"], job.events("s").count("node_timeout")) == ("failed", "timeout", 2)


def test_a_child_that_ended_in_time_counts_though_nobody_looked() -> None:
    job = Job(SUB.replace("type: subworkflow", "type: subworkflow, timeout_seconds: 10"), {"x": 1})
    job.now += timedelta(seconds=20)
    job.end_child("s", output={"y": 2})
    assert job["s"] == "completed"


@pytest.mark.parametrize(("timeout", "end"), [(4, "failed"), (5, "failed"), (6, "completed")])
def test_a_wait_must_be_shorter_than_its_timeout(timeout: float, end: str) -> None:
    text = "workflow_id: w\nnodes: {a: {type: wait, wait: {seconds: 5}, timeout_seconds: TIME}}"
    job = Job(text.replace("TIME", str(timeout)))
    assert job.wakes_in() == min(timeout, 5)
    job.sleep(min(timeout, 5))
    assert job["a"] == end
    assert ("node_timeout" in job.events("a")) == (end == "failed")


def test_an_approval_without_a_time_of_its_own_has_that_of_its_node() -> None:
    text = "workflow_id: w\nnodes: {a: {type: approval, timeout_seconds: 7, approval: {message: well?}}}"
    assert Job(text).wakes_in() == 7
    assert Job(text.replace("well?", "well?, timeout_seconds: 3")).wakes_in() == 3


def test_the_end_of_an_earlier_child_is_old_news() -> None:
    job = Job(SUB, {"x": 1})
    old = job.child_ended("s", "failed")
    job.advance(old)
    job.sleep(5)
    job.advance(old)
    assert (job["s"], job.row("s").attempt) == ("waiting", 2)


def test_a_job_that_cannot_be_made_fails_the_node() -> None:
    job = Job(SUB, {"x": 1}, refuses={"w"})
    assert (job["s"], job.error["code"], job.children) == ("failed", "workflow_not_found", {})
    assert job.events("s") == ["node_ready", "node_failed"]


def test_a_cancel_from_the_inbox_asks_for_the_tasks_to_be_revoked_first() -> None:
    job = Job(FAST)
    job.advance(CancelRequested("parent", "gone"))
    assert (job.status, job.was_revoked, job.tasks) == ("cancelled", True, {})
    job = Job(SUB, {"x": 1})
    changes = job.advance(CancelRequested("parent", "gone"))
    assert (job.status, job.was_revoked, changes.cancels_children) == ("cancelled", False, True)


def test_the_first_failure_ends_a_job_that_fails_fast_and_what_was_reported_counts() -> None:
    job = Job(FAST)
    job.advance(job.failed("a"), job.completed("b"))
    assert (job.status, job.was_revoked) == ("failed", True)
    assert job.statuses == {"a": "failed", "b": "completed", "c": "cancelled"}
    assert job.error["node_id"] == "a"


@pytest.mark.parametrize("way", ["seconds: 0", "seconds: 5"])
def test_a_failure_found_while_settling_lets_nothing_begin(way: str) -> None:
    job = Job(
        "workflow_id: w\nfail_fast: true\nnodes:\n"
        f"  w: {{type: wait, wait: {{{way}}}}}\n"
        "  q: {type: approval, approval: {message: m}}\n"
        "  s: {type: subworkflow, subworkflow: {workflow_id: w2}}\n"
        "  t: {handler: h}\n"
        "  f: {type: fan_out, source: [1], task: {handler: h}}\n"
        "  c: {type: conditional, condition: inputs.nothing, branches: {true: t2, false: t3}}\n"
        "  t2: {handler: h}\n  t3: {handler: h}\n"
    )
    assert (job.status, job.error["node_id"]) == ("failed", "c")
    assert not {event.type for event in job.rows.events} & {
        "node_dispatched",
        "approval_requested",
        "child_started",
    }
    assert (job.tasks, job.children) == ({}, {})
    assert job["w"] == ("completed" if way == "seconds: 0" else "cancelled")


def test_an_unwanted_node_counts_as_an_untaken_branch() -> None:
    text = (
        "workflow_id: w\nnodes:\n  a: {handler: h, when: inputs.go, next: b}\n  b: {handler: h}\n"
        "  c: {handler: h, depends_on: {any_of: [a, d]}}\n  d: {handler: h}\n"
    )
    job = Job(text, {"go": False})
    assert (job["a"], job.row("a").skip_reason) == ("skipped", "when")
    assert (job["b"], job.row("b").skip_reason) == ("skipped", "branch")
    assert job["c"] == "pending"
    job.complete("d")
    assert job["c"] == "dispatched"
    assert Job(text, {"go": True})["a"] == "dispatched"
    assert Job(text)["a"] == "failed"


@pytest.mark.parametrize(("size", "ran"), [(5, "big"), (1, "small")])
def test_output_behind_several_branches_is_that_of_the_branch_that_ran(size: int, ran: str) -> None:
    job = Job(
        """
workflow_id: w
nodes:
  check:
    type: conditional
    branches: [{name: big, condition: "inputs.x > 1", next: big}, {name: small, default: true, next: small}]
  big: {handler: h}
  small: {handler: h}
  join: {handler: h, depends_on: {any_of: [big, small]}, params: {x: "{{ upstream.output.x }}"}}
""",
        {"x": size},
    )
    job.complete(ran, {"x": ran})
    assert orjson.loads(job.tasks["join"].params or b"") == {"x": ran}
