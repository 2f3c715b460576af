"""What `advance` decides about attempts, fan-outs and retries by hand: one readable example per rule."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.memory_job import Job

from cograil.model.job import Bounds, Reported
from cograil.model.outcome import Completed, Failed

# -- attempts ---------------------------------------------------------------------------------------


def retried(retry: str, **settings: Any) -> Job:
    return Job(f"workflow_id: w\nnodes: {{a: {{handler: h, retry: {{{retry}}}}}}}", **settings)


def delays(job: Job, failures: int) -> list[float]:
    waits = []
    for _ in range(failures):
        job.fail("a")
        waits.append(job.wakes_in() or 0.0)
        job.sleep(waits[-1])
    return waits


def test_without_retry_there_are_three_attempts_after_5_and_10_seconds() -> None:
    job = Job("workflow_id: w\nnodes: {a: {handler: h}}")
    assert delays(job, 2) == [5, 10]
    job.fail("a")
    assert job["a"] == "failed"
    assert job.dispatched == [("a", 1), ("a", 2), ("a", 3)]


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [("fixed", [2, 2, 2, 2]), ("linear", [2, 4, 6, 7]), ("exponential", [2, 4, 7, 7])],
)
def test_delays_grow_up_to_the_longest(backoff: str, expected: list[float]) -> None:
    job = retried(f"max_attempts: 5, backoff: {backoff}, initial_delay_seconds: 2, max_delay_seconds: 7")
    assert delays(job, 4) == expected
    job.complete("a")
    assert job.status == "completed"


@pytest.mark.parametrize(("random", "expected"), [(0.0, 5.0), (0.5, 10.0), (0.75, 12.5)])
def test_jitter_spreads_a_delay_by_the_dice(random: float, expected: float) -> None:
    job = retried("initial_delay_seconds: 10, jitter: 0.5", random=lambda: random)
    assert delays(job, 1) == [expected]


@pytest.mark.parametrize(("after", "expected"), [(0.0, 0), (3.5, 3.5), (99.0, 30), (None, 2)])
def test_a_requested_delay_is_bounded_by_the_maximum_delay(after: float | None, expected: float) -> None:
    job = retried("max_attempts: 2, initial_delay_seconds: 2, max_delay_seconds: 30")
    task = job.tasks.pop("a")
    outcome = Failed("busy", "busy!", after_seconds=after)
    job.advance(Reported("a", task.attempt, 7, outcome, "w", job.now))
    assert (job.wakes_in() or 0.0) == expected


def test_a_requested_delay_makes_no_further_attempt() -> None:
    job = retried("max_attempts: 1")
    task = job.tasks.pop("a")
    job.advance(Reported("a", task.attempt, 7, Failed("busy", "busy!", after_seconds=1.0), "w", job.now))
    assert job["a"] == "failed"


def test_max_attempts_counts_every_execution() -> None:
    job = retried("max_attempts: 1")
    job.fail("a")
    assert job.status == "failed"
    assert job.dispatched == [("a", 1)]


def test_a_failure_that_says_so_is_not_tried_again() -> None:
    job = retried("max_attempts: 5")
    job.fail("a", retryable=False)
    assert job.status == "failed"


def test_retry_on_names_the_errors_that_are_tried_again() -> None:
    job = retried("max_attempts: 5, initial_delay_seconds: 0, retry_on: [busy]")
    job.fail("a", "busy", retryable=False)
    assert job["a"] == "dispatched"
    job.fail("a", "broken")
    assert job.status == "failed"
    assert job.error["code"] == "broken"


def test_an_attempt_that_is_tried_again_leaves_its_trace() -> None:
    job = retried("initial_delay_seconds: 1")
    job.fail("a")
    job.sleep(1)
    job.complete("a")
    assert job.events("a") == [
        "node_ready",
        "node_dispatched",
        "node_started",
        "task_failed",
        "node_retry",
        "node_dispatched",
        "node_started",
        "node_completed",
    ]
    assert job.data("task_failed", "a")["will_retry"] is True


def test_the_next_attempt_has_the_params_of_the_first() -> None:
    job = Job('workflow_id: w\nnodes: {a: {handler: h, params: {x: "{{ inputs.x }}"}}}', {"x": [1]})
    job.fail("a")
    job.sleep(5)
    assert job.tasks["a"].params is None
    assert job.params("a") == {"x": [1]}


def test_a_lost_attempt_counts_and_is_made_again_at_once() -> None:
    job = retried("max_attempts: 2")
    job.lose("a")
    assert job.tasks["a"].attempt == 2
    job.lose("a")
    assert job.status == "failed"
    assert job.error["code"] == "worker_lost"


def test_a_node_that_kills_its_worker_three_times_is_poison() -> None:
    job = retried("max_attempts: 10")
    for attempt in (1, 2, 3):
        assert job.tasks["a"].is_exclusive == (attempt == 3), "the last loss must be its own doing"
        job.lose("a")
        failed = job.data("task_failed", "a")
        assert (failed["attempt"], failed["will_retry"]) == (attempt, attempt < 3)
        assert failed["error"]["code"] == "worker_lost"
    assert job.status == "failed"
    assert job.error["code"] == "poison"
    assert len(job.dispatched) == 3


def test_a_suspect_runs_alone_in_every_attempt_that_follows() -> None:
    job = retried("max_attempts: 4, initial_delay_seconds: 0")
    job.lose("a")
    job.lose("a")
    job.fail("a")
    job.sleep(0)
    assert (job.tasks["a"].attempt, job.tasks["a"].is_exclusive) == (4, True)


def test_with_a_limit_of_one_nothing_runs_alone_and_the_first_loss_is_the_last() -> None:
    job = retried("max_attempts: 4", bounds=Bounds(poison_limit=1))
    assert not job.tasks["a"].is_exclusive
    job.lose("a")
    assert job.error["code"] == "poison"


def test_an_attempt_out_of_time_has_failed_and_is_tried_again() -> None:
    job = retried("max_attempts: 2, initial_delay_seconds: 3")
    job.lose("a", "timeout")
    assert job["a"] == "ready"
    assert job.wakes_in() == 3
    job.sleep(3)
    job.fail("a", "timeout")
    assert job.events("a").count("node_timeout") == 2
    assert job.error["code"] == "timeout"


def test_an_attempt_that_is_handed_back_is_told_and_free_and_the_next_one_begins_at_once() -> None:
    job = retried("max_attempts: 2, initial_delay_seconds: 0")
    for attempt in (1, 2, 3):
        job.lose("a", "released")
        assert job.data("warning", "a")["code"] == "released"
        assert (job.data("warning", "a")["attempt"], job.data("warning", "a")["worker"]) == (attempt, "w")
        assert job.data("node_retry", "a")["retry_count"] == 0
        assert (job["a"], job.tasks["a"].attempt) == ("dispatched", attempt + 1)
    assert job.events("a").count("node_started") == 3
    assert not job.tasks["a"].is_exclusive
    job.fail("a")
    assert job.data("node_retry", "a")["retry_count"] == 1
    job.fail("a")
    assert (job.data("node_failed", "a")["retry_count"], job.data("node_failed", "a")["max_retries"]) == (
        1,
        1,
    )


def test_news_of_an_old_attempt_are_refused_and_recorded() -> None:
    job = retried("max_attempts: 3, initial_delay_seconds: 0")
    old = Reported("a", 1, 7, Completed(b'{"old":true}'), "zombie", job.now)
    job.fail("a")
    job.advance(old)
    assert job["a"] == "dispatched"
    assert job.data("warning", "a")["code"] == "late_result"
    job.complete("a", {"new": True})
    assert job.result["a"] == {"new": True}


def test_a_node_is_seen_to_run_before_it_ends() -> None:
    job = Job("workflow_id: w\nnodes: {a: {handler: h}}")
    job.start("a")
    assert job.row("a").started_at == job.now
    job.sleep(2)
    job.complete("a")
    assert job.events("a").count("node_started") == 1
    assert job.data("node_completed", "a") == {"duration_seconds": 2.0, "worker": "w"}


def test_a_traceback_is_kept_once_in_the_event_of_the_attempt() -> None:
    job = retried("max_attempts: 2, initial_delay_seconds: 0")
    details = {"type": "KeyError", "traceback": "File ..."}
    for attempt in (1, 2):
        del job.tasks["a"]
        job.advance(Reported("a", attempt, 7, Failed("handler_error", "oh", details=details), "w", job.now))
        assert job.data("task_failed", "a")["error"]["details"] == details
        assert job.row("a").error == {
            "code": "handler_error",
            "message": "oh",
            "details": {"type": "KeyError"},
        }
        job.sleep(0)
    assert "traceback" not in str([job.data("node_retry", "a"), job.data("node_failed", "a"), job.error])
