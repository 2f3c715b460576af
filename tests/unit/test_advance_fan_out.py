"""What `advance` decides about fan-outs and fan-ins: one readable example per rule."""

from __future__ import annotations

import pytest
from tests.support.fan_out_jobs import FAN, fan_out_job
from tests.support.memory_job import Job

from cograil.model.job import Bounds, ExpandMore
from cograil.strict_json import kind_of


@pytest.mark.parametrize("count", [0, 1, 3])
def test_each_element_is_a_child_with_its_item_and_index(count: int) -> None:
    job = fan_out_job(count)
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
    job = fan_out_job(3)
    job.advance(job.completed("split__2", {"n": 2}), job.completed("split__0", {"n": 0}))
    job.complete("split__1", {"n": 1})
    assert job.output("gather")["results"] == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_all_children_may_end_in_one_pass() -> None:
    job = fan_out_job(3)
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
    job = fan_out_job(2, mode)
    job.complete("split__0", {"n": 1, "l": [1]})
    job.complete("split__1", {"n": 2.5, "l": [], "b": True})
    assert job.output("gather") == expected


@pytest.mark.parametrize("mode", ["first", "last"])
def test_the_first_and_last_of_nothing_is_null(mode: str) -> None:
    assert fan_out_job(0, mode).output("gather") == {"result": None, "count": 0}


@pytest.mark.parametrize("number", [2**62, 1.7e308])
def test_a_sum_that_no_json_can_hold_fails_the_fan_in(number: float) -> None:
    job = fan_out_job(2, "sum")
    job.complete("split__0", {"n": number})
    job.complete("split__1", {"n": number})
    assert job["gather"] == "failed"
    assert job.error["code"] == "invalid_number"


def test_ten_thousand_children_are_made_a_chunk_at_a_time() -> None:
    job = fan_out_job(10_000)
    assert len(job.tasks) == 1000
    early = [job.completed(f"split__{index}", {"n": index}) for index in range(1000)]
    job.advance(*early)
    assert job["split"] == "running"
    passes = 1
    while job.to_expand:
        passes += 1
        job.advance()
    assert passes == 9
    assert len(job.dispatched) == len(set(job.dispatched)) == 10_000
    job.advance(*[job.completed(name, {"n": 1}) for name in list(job.tasks)])
    assert job.status == "completed"
    assert job.output("gather")["count"] == 10_000


def test_children_with_large_params_are_made_a_few_at_a_time() -> None:
    """One at least, however large: what is made in one pass is written while all others wait."""
    wide = FAN.replace("MODE", "first").replace("at: ", 'all: "{{ inputs.large }}", at: ')
    inputs = {"list": list(range(40)), "large": "x" * 250_000}
    for most, made in ((4 * 1024 * 1024, [17, 17, 6]), (1, [1] * 40)):
        job = Job(wide, inputs, bounds=Bounds(chunk_bytes=most))
        passes = [len(job.dispatched)]
        while job.to_expand:
            before = len(job.dispatched)
            job.advance()
            passes.append(len(job.dispatched) - before)
        assert passes == made
        job.advance(*[job.completed(name, {"n": 1}) for name in list(job.tasks)])
        assert (job.status, len(set(job.dispatched))) == ("completed", 40)


def test_too_many_elements_fail_the_fan_out() -> None:
    job = fan_out_job(10_001)
    assert job.error["code"] == "fanout_too_large"


@pytest.mark.parametrize("value", [None, 5, "text", {"a": 1}])
def test_a_source_that_is_no_list_fails_the_fan_out(value: object) -> None:
    job = Job(FAN.replace("MODE", "collect"), {"list": value})
    assert job.statuses == {"split": "failed", "gather": "skipped"}
    assert job.error["code"] == "fanout_not_a_list"
    assert job.error["message"] == f"source of split is {kind_of(value)}, not a list"


def test_siblings_of_a_failed_child_finish_and_the_fan_in_names_it() -> None:
    job = fan_out_job(3)
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


def test_a_job_fails_with_the_error_of_its_first_failed_child() -> None:
    job = fan_out_job(3)
    job.fail("split__1", "bad")
    job.fail("split__0", "worse")
    job.complete("split__2")
    assert job["split"] == "completed"
    assert (job.error["code"], job.error["node_id"]) == ("bad", "split__1")
    assert job.error["failed_nodes"] == ["split__1", "split__0", "gather"]
    assert job.data("job_failed")["failed_nodes"] == job.error["failed_nodes"]


def test_only_the_first_five_failed_children_are_named() -> None:
    job = fan_out_job(7)
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
    more, job.to_expand = job.to_expand, []
    job.complete("slow", {"list": [1]})
    job.advance(*[ExpandMore(name) for name in more])
    for name in list(job.tasks):
        job.complete(name)
    assert job.status == "failed"
    assert job.row("split__2").error["code"] == "fanout_source_changed"
