"""What `advance` decides when a node fails, or cannot even begin: one readable example per rule."""

from __future__ import annotations

from tests.support.memory_job import Job


def test_a_failed_node_in_the_middle_ends_the_job() -> None:
    job = Job("workflow_id: w\nnodes: {a: {handler: h, next: b}, b: {handler: h, next: c}, c: {handler: h}}")
    job.complete("a")
    job.fail("b", "broken", retryable=False)
    assert job.statuses == {"a": "completed", "b": "failed", "c": "skipped"}
    assert job.data("node_skipped", "c") == {"reason": "upstream_failed"}
    assert job.status == "failed"
    assert job.error == {
        "code": "broken",
        "message": "broken!",
        "node_id": "b",
        "failed_nodes": ["b"],
    }


def test_independent_branches_run_on_after_a_failure() -> None:
    job = Job("workflow_id: w\nnodes: {a: {handler: h}, b: {handler: h, next: c}, c: {handler: h}}")
    job.fail("a", retryable=False)
    assert job.status == "running"
    job.complete("b")
    job.complete("c")
    assert job.status == "failed"


def test_the_error_of_the_job_is_the_first_one() -> None:
    job = Job("workflow_id: w\nnodes: {a: {handler: h}, b: {handler: h}}")
    job.fail("b", "first", retryable=False)
    job.sleep(1)
    job.fail("a", "second", retryable=False)
    assert job.error["code"] == "first"
    assert job.error["node_id"] == "b"
    assert job.error["failed_nodes"] == ["a", "b"]


def test_an_optional_node_may_fail() -> None:
    job = Job("workflow_id: w\nnodes: {a: {handler: h, required: false, next: b}, b: {handler: h}}")
    job.fail("a", retryable=False)
    assert job.statuses == {"a": "failed", "b": "dispatched"}
    job.complete("b")
    assert job.status == "completed"
    assert job.result.keys() == {"b", "_provenance"}


def test_a_value_that_is_not_there_fails_the_node_before_it_is_handed_out() -> None:
    job = Job(
        """
workflow_id: w
nodes:
  a: {handler: h, next: b}
  b: {handler: h, params: {x: "{{ nodes.a.output.x }}"}}
"""
    )
    job.complete("a", {"y": 1})
    assert job["b"] == "failed"
    assert job.error["code"] == "template_undefined"
    assert job.dispatched == [("a", 1)]
    assert job.status == "failed"


def test_a_number_that_no_json_can_hold_fails_the_node() -> None:
    job = Job(
        'workflow_id: w\nnodes: {a: {handler: h, params: {x: "{{ inputs.n + inputs.n + inputs.n }}"}}}',
        {"n": 2**63 - 1},
    )
    assert job["a"] == "failed"
    assert job.error["code"] == "invalid_number"


def test_params_keep_the_types_of_what_they_name() -> None:
    job = Job(
        """
workflow_id: w
nodes:
  a: {handler: h, next: b}
  b: {handler: h, params: {n: "{{ output.n }}", all: "{{ nodes.a.output }}", t: "n={{ inputs.n }}"}}
""",
        {"n": 3},
    )
    job.complete("a", {"n": 1.5})
    assert job.params("b") == {"n": 1.5, "all": {"n": 1.5}, "t": "n=3"}


def test_successors_of_an_optional_node_can_read_why_it_failed() -> None:
    job = Job(
        """
workflow_id: w
nodes:
  a: {handler: h, required: false, retry: {max_attempts: 1}, next: b}
  b: {handler: h, params: {is_there: "{{ nodes.a.status }}", why: "{{ nodes.a.error }}"}, next: c}
  c: {handler: h, params: {why: "{{ nodes.b.error }}"}}
"""
    )
    job.fail("a", "busy")
    assert job.params("b") == {"is_there": "failed", "why": {"code": "busy", "message": "busy!"}}
    job.complete("b")
    assert job.params("c") == {"why": None}
