"""What `advance` decides about attempts, fan-outs and retries by hand: one readable example per rule."""

from __future__ import annotations

from typing import Any

import pytest
from one_job import Job

from cograil.model.job import Bounds, More, Reported
from cograil.model.outcome import Completed

# -- attempts ---------------------------------------------------------------------------------------


def retried(retry: str, **settings: Any) -> Job:
    return Job(f"workflow_id: w\nnodes: {{a: {{handler: h, retry: {{{retry}}}}}}}", **settings)


def delays(job: Job, failures: int) -> list[float]:
    found = []
    for _ in range(failures):
        job.fail("a")
        found.append(job.wakes_in() or 0.0)
        job.sleep(found[-1])
    return found


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


@pytest.mark.parametrize(("dice", "expected"), [(0.0, 5.0), (0.5, 10.0), (0.75, 12.5)])
def test_jitter_spreads_a_delay_by_the_dice(dice: float, expected: float) -> None:
    job = retried("initial_delay_seconds: 10, jitter: 0.5", dice=lambda: dice)
    assert delays(job, 1) == [expected]


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
    for _ in range(3):
        job.lose("a")
    assert job.status == "failed"
    assert job.error["code"] == "poison"
    assert len(job.dispatched) == 3


def test_an_attempt_out_of_time_has_failed_and_is_tried_again() -> None:
    job = retried("max_attempts: 2, initial_delay_seconds: 3")
    job.lose("a", "timeout")
    assert job["a"] == "ready"
    assert job.wakes_in() == 3
    job.sleep(3)
    job.fail("a", "timeout")
    assert job.events("a").count("node_timeout") == 2
    assert job.error["code"] == "timeout"


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
    assert job.data("node_completed", "a") == {"duration_seconds": 2.0}


# -- fan-out, fan-in --------------------------------------------------------------------------------

FAN = """
workflow_id: w
nodes:
  split:
    type: fan_out
    source: "{{ inputs.list }}"
    task: {handler: h, params: {it: "{{ item }}", at: "{{ index }}"}, retry: {max_attempts: 1}}
    next: gather
  gather: {type: fan_in, aggregation: MODE}
"""


def fan(count: int, mode: str = "collect", **settings: Any) -> Job:
    given = {"list": [{"n": number} for number in range(count)]}
    return Job(FAN.replace("MODE", mode), given, **settings)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_each_element_is_a_child_with_its_item_and_index(count: int) -> None:
    job = fan(count)
    assert list(job.tasks) == [f"split__{index}" for index in range(count)]
    for index in range(count):
        assert job.params(f"split__{index}") == {"it": {"n": index}, "at": index}
        assert job.row(f"split__{index}").parent == "split"
        assert job.row(f"split__{index}").index == index
        job.complete(f"split__{index}", {"out": index})
    assert job.status == "completed"
    assert job.output("split") == {
        "fan_out_count": count,
        "child_node_ids": [f"split__{index}" for index in range(count)],
    }
    assert job.output("gather") == {"results": [{"out": index} for index in range(count)], "count": count}
    assert job.result.keys() == {"split", "gather", "_provenance"}


def test_results_are_in_the_order_of_the_list_whatever_the_order_of_the_ends() -> None:
    job = fan(3)
    job.advance(job.completed("split__2", {"n": 2}), job.completed("split__0", {"n": 0}))
    job.complete("split__1", {"n": 1})
    assert job.output("gather")["results"] == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_all_children_may_end_in_one_pass() -> None:
    job = fan(3)
    job.advance(*[job.completed(name, {"n": name}) for name in list(job.tasks)])
    assert job.output("gather")["count"] == 3


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("collect", {"results": [{"n": 1, "l": [1]}, {"n": 2.5, "l": [], "b": True}], "count": 2}),
        ("concat", {"results": [1], "count": 1}),
        ("sum", {"total": 3.5, "count": 2}),
        ("first", {"result": {"n": 1, "l": [1]}, "count": 2}),
        ("last", {"result": {"n": 2.5, "l": [], "b": True}, "count": 2}),
    ],
)
def test_a_fan_in_puts_the_outputs_together(mode: str, expected: object) -> None:
    job = fan(2, mode)
    job.complete("split__0", {"n": 1, "l": [1]})
    job.complete("split__1", {"n": 2.5, "l": [], "b": True})
    assert job.output("gather") == expected


@pytest.mark.parametrize("mode", ["first", "last"])
def test_the_first_and_last_of_nothing_is_null(mode: str) -> None:
    assert fan(0, mode).output("gather") == {"result": None, "count": 0}


@pytest.mark.parametrize("number", [2**62, 1.7e308])
def test_a_sum_that_no_json_can_hold_fails_the_fan_in(number: float) -> None:
    job = fan(2, "sum")
    job.complete("split__0", {"n": number})
    job.complete("split__1", {"n": number})
    assert job["gather"] == "failed"
    assert job.error["code"] == "invalid_number"


def test_ten_thousand_children_are_made_a_chunk_at_a_time() -> None:
    job = fan(10_000)
    assert len(job.tasks) == 1000
    early = [job.completed(f"split__{index}", {"n": index}) for index in range(1000)]
    job.advance(*early)
    assert job["split"] == "running"
    passes = 1
    while job.more:
        passes += 1
        job.advance()
    assert passes == 9
    assert len(job.dispatched) == len(set(job.dispatched)) == 10_000
    job.advance(*[job.completed(name, {"n": 1}) for name in list(job.tasks)])
    assert job.status == "completed"
    assert job.output("gather")["count"] == 10_000


def test_too_many_elements_fail_the_fan_out() -> None:
    job = fan(10_001)
    assert job.error["code"] == "fanout_too_large"


@pytest.mark.parametrize("value", [None, 5, "text", {"a": 1}])
def test_a_source_that_is_no_list_fails_the_fan_out(value: object) -> None:
    job = Job(FAN.replace("MODE", "collect"), {"list": value})
    assert job.statuses == {"split": "failed", "gather": "skipped"}
    assert job.error["code"] == "fanout_not_a_list"


def test_siblings_of_a_failed_child_finish_and_the_fan_in_names_it() -> None:
    job = fan(3)
    job.fail("split__1", "bad")
    assert job["gather"] == "pending"
    job.complete("split__0")
    job.complete("split__2")
    assert job["gather"] == "failed"
    error = job.row("gather").error
    assert error["code"] == "children_failed"
    assert error["children"] == ["split__1"]
    assert error["first"]["code"] == "bad"
    assert error["message"] == "1 of 3 children failed: split__1"
    assert job.status == "failed"


def test_only_the_first_five_failed_children_are_named() -> None:
    job = fan(7)
    job.advance(*[job.failed(name) for name in list(job.tasks)])
    assert job.row("gather").error["children"] == [f"split__{index}" for index in range(5)]
    assert job.row("gather").error["message"].startswith("7 of 7 children failed: split__0, ")


def test_the_failed_children_of_an_optional_fan_out_are_left_out() -> None:
    job = Job(
        FAN.replace("MODE", "collect").replace("type: fan_out", "type: fan_out\n    required: false"),
        {"list": [1, 2]},
    )
    job.fail("split__0")
    job.complete("split__1", {"n": 2})
    assert job.output("gather") == {"results": [{"n": 2}], "count": 1}
    assert job.status == "completed"


def test_children_are_retried_by_themselves() -> None:
    job = Job(FAN.replace("MODE", "collect").replace("max_attempts: 1", "max_attempts: 2"), {"list": [1, 2]})
    job.fail("split__0")
    job.complete("split__1", {"n": 2})
    assert job.wakes_in() == 5
    job.sleep(5)
    job.complete("split__0", {"n": 1})
    assert job.output("gather")["results"] == [{"n": 1}, {"n": 2}]


CHANGING = """
workflow_id: w
nodes:
  quick: {handler: h}
  slow: {handler: h}
  split:
    type: fan_out
    depends_on: {any_of: [quick, slow]}
    source: "{{ nodes.slow.output.list | default([1, 2, 3], true) }}"
    task: {handler: h, params: {it: "{{ item }}"}}
"""


def test_a_source_that_changes_between_two_chunks_does_not_hang_the_job() -> None:
    job = Job(CHANGING, bounds=Bounds(chunk=2))
    job.complete("quick")
    assert job.row("split").total == 3
    more, job.more = job.more, []
    job.complete("slow", {"list": [1]})
    job.advance(*[More(name) for name in more])
    for name in list(job.tasks):
        job.complete(name)
    assert job.status == "failed"
    assert job.row("split__2").error["code"] == "fanout_source_changed"


# -- retry by hand ----------------------------------------------------------------------------------

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
    job = fan(5, bounds=Bounds(chunk=2))
    assert job.more
    job.cancel()
    made = len(job.dispatched)
    assert job.status == "cancelled"
    assert made == 2
