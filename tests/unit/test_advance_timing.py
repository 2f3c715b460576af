"""What `advance` decides about time: cancels, deadlines, late results and waits, one example per rule."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.job_rows import T0
from tests.support.memory_job import Job

ONE = "workflow_id: w\nnodes: {a: {handler: h}}"
FORK = """
workflow_id: w
nodes: {a: {handler: h, next: [b, c]}, b: {handler: h}, c: {handler: h, next: d}, d: {handler: h}}
"""

# -- cancel, deadline -------------------------------------------------------------------------------


def test_cancel_closes_every_node_that_is_open() -> None:
    job = Job(FORK)
    job.complete("a")
    job.cancel(job.completed("b"))
    assert job.status == "cancelled"
    assert job.statuses == {"a": "completed", "b": "completed", "c": "cancelled", "d": "cancelled"}
    assert job.data("job_cancelled") == {"by": "ann", "reason": "no longer needed"}


def test_a_result_reported_before_a_cancel_counts() -> None:
    job = Job(ONE)
    job.cancel(job.completed("a", {"x": 1}))
    assert job.status == "completed"
    assert job.result["a"] == {"x": 1}


def test_a_pending_job_can_be_cancelled() -> None:
    job = Job(ONE, not_before=T0 + timedelta(days=1))
    job.cancel()
    assert job.status == "cancelled"
    assert job["a"] == "cancelled"
    assert job.wakes_in() is None


def test_a_job_over_its_deadline_is_failed() -> None:
    job = Job("workflow_id: w\ntimeout_seconds: 60\nnodes: {a: {handler: h, next: b}, b: {handler: h}}")
    assert job.wakes_in() == 60
    job.sleep(59)
    assert job.status == "running"
    job.sleep(1)
    assert job.status == "failed"
    assert job.error == {"code": "job_timeout", "message": "the job did not end within 60 seconds"}
    assert job.statuses == {"a": "cancelled", "b": "cancelled"}


def test_a_late_result_is_recorded_even_after_the_end() -> None:
    job = Job(ONE)
    job.lose("a")
    job.late("a", 1)
    job.complete("a")
    job.late("a", 1)
    assert job.status == "completed"
    assert job.events("a").count("warning") == 2
    assert job.data("warning", "a")["code"] == "late_result"


# -- wait -------------------------------------------------------------------------------------------


def test_wait_seconds_takes_no_worker() -> None:
    job = Job("workflow_id: w\nnodes: {p: {type: wait, wait: {seconds: 1.5}, next: a}, a: {handler: h}}")
    assert job["p"] == "waiting"
    assert not job.tasks
    assert job.wakes_in() == 1.5
    job.sleep(1.5)
    assert job["p"] == "completed"
    assert set(job.tasks) == {"a"}


def test_wait_until_a_time_from_a_template() -> None:
    workflow = 'workflow_id: w\nnodes: {p: {type: wait, wait: {until: "{{ inputs.at }}"}}}'
    job = Job(workflow, {"at": "2030-01-01T02:00:00+01:00"})
    assert job.wakes_in() == 3600
    job.sleep(3600)
    assert job.status == "completed"
    assert Job(workflow, {"at": "2029-12-31T23:59:59z"}).status == "completed"


@pytest.mark.parametrize(
    "at", ["soon", "2030-01-01T00:00:00", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00", None]
)
def test_a_time_that_is_none_fails_the_wait(at: object) -> None:
    job = Job('workflow_id: w\nnodes: {p: {type: wait, wait: {until: "{{ inputs.at }}"}}}', {"at": at})
    assert job.status == "failed"
    assert job.error["code"] == "invalid_wait"


def test_an_invalid_time_is_reported_with_a_valid_example() -> None:
    job = Job('workflow_id: w\nnodes: {p: {type: wait, wait: {until: "{{ inputs.at }}"}}}', {"at": "soon"})
    assert job.error["message"] == "wait.until of p is 'soon', not a time such as 2026-01-31T09:00:00Z"


@pytest.mark.parametrize("seconds", ["1", -1, True, 1e300, 315_360_001, None])
def test_a_wait_of_no_sensible_number_of_seconds_fails(seconds: object) -> None:
    job = Job('workflow_id: w\nnodes: {p: {type: wait, wait: {seconds: "{{ inputs.s }}"}}}', {"s": seconds})
    assert job.status == "failed"
    assert job.error["code"] == "invalid_wait"
