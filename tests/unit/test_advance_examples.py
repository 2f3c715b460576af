"""What `advance` decides about order, branches and failures: one example per rule of the language."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.job_rows import T0
from tests.support.memory_job import Job

DIAMOND = """
workflow_id: w
nodes:
  a: {handler: h, next: [b, c], retry: {max_attempts: 1}}
  b: {handler: h, next: d, retry: {max_attempts: 1}}
  c: {handler: h, next: d, retry: {max_attempts: 1}}
  d: {handler: h}
"""


def test_a_job_begins_with_every_node_that_waits_for_none() -> None:
    job = Job("workflow_id: w\nnodes: {a: {handler: h}, b: {handler: h}, c: {handler: h, depends_on: a}}")
    assert set(job.tasks) == {"a", "b"}
    assert job.status == "running"
    assert job.events() == ["job_created", "job_started"]


def test_a_join_waits_for_all_that_lead_to_it() -> None:
    job = Job(DIAMOND)
    job.complete("a")
    job.complete("b")
    assert job["d"] == "pending"
    job.complete("c")
    assert job["d"] == "dispatched"
    job.complete("d")
    assert job.status == "completed"


def test_start_and_end_do_nothing_and_are_done_at_once() -> None:
    job = Job(
        "workflow_id: w\nnodes: {START: {type: start, next: a}, a: {handler: h, next: END}, END: {type: end}}"
    )
    assert job["START"] == "completed"
    job.complete("a", {"x": 1})
    assert job["END"] == "completed"
    assert job.result.keys() == {"a", "_provenance"}


def test_a_job_waits_for_its_time() -> None:
    later = T0 + timedelta(seconds=60)
    job = Job("workflow_id: w\nnodes: {a: {handler: h}}", not_before=later)
    assert job.status == "pending"
    assert job.wakes_in() == 60
    job.sleep(60)
    assert set(job.tasks) == {"a"}


def test_the_result_has_all_outputs_and_their_provenance() -> None:
    job = Job("workflow_id: w\nversion: 3\nnodes: {a: {handler: h, next: b}, b: {handler: h}}")
    job.complete("a", {"x": 1})
    job.sleep(5)
    job.complete("b", {"y": [2]})
    assert job.result == {
        "a": {"x": 1},
        "b": {"y": [2]},
        "_provenance": {
            "workflow_id": "w",
            "workflow_version": 3,
            "job_id": "job",
            "completed_at": job.now.isoformat(),
        },
    }


# -- branches ---------------------------------------------------------------------------------------

OPERATORS = [
    ("x == 5", {"x": 5}, {"x": "5"}),
    ("x != 5", {"x": 6}, {"x": 5}),
    ("x < 5", {"x": 4}, {"x": 5}),
    ("x > 5", {"x": 6}, {"x": 5}),
    ("x <= 5", {"x": 5}, {"x": 6}),
    ("x >= 5", {"x": 5}, {"x": 4}),
    ("x in ['a', 'b']", {"x": "a"}, {"x": "c"}),
    ("x not_in ['a', 'b']", {"x": "c"}, {"x": "a"}),
    ("x contains 'in'", {"x": "contains"}, {"x": "no"}),
    ("x starts_with 'in'", {"x": "inside"}, {"x": "outside in"}),
    ("x ends_with 'in'", {"x": "tin"}, {"x": "into"}),
    ("is_null(x)", {"x": None}, {"x": 0}),
    ("is_not_null(x)", {"x": 0}, {"x": None}),
    ("x == 1 and y == 2", {"x": 1, "y": 2}, {"x": 1, "y": 1}),
    ("x == 1 or y == 2", {"x": 0, "y": 2}, {"x": 0, "y": 1}),
    ("not (x == 1)", {"x": 2}, {"x": 1}),
    ("true", {"x": 0}, None),
    ("false", None, {"x": 0}),
]


@pytest.mark.parametrize(
    ("condition", "holds", "fails"), OPERATORS, ids=[condition for condition, _, _ in OPERATORS]
)
@pytest.mark.parametrize("root", ["inputs", "output", "nodes.first.output"])
def test_a_condition_chooses_the_branch(condition: str, holds: object, fails: object, root: str) -> None:
    text = condition.replace("is_null(x", f"is_null({root}.x").replace(
        "is_not_null(x", f"is_not_null({root}.x"
    )
    text = " ".join(f"{root}.{w}" if w in "xy" else w.replace("(x", f"({root}.x") for w in text.split())
    workflow = f"""
workflow_id: w
nodes:
  first: {{handler: h, next: choose}}
  choose:
    type: conditional
    branches:
      - {{name: yes, condition: "{text}", next: one}}
      - {{name: no, default: true, next: two}}
  one: {{handler: h}}
  two: {{handler: h}}
"""
    for values, taken, untaken in ((holds, "one", "two"), (fails, "two", "one")):
        if isinstance(values, dict):
            job = Job(workflow, values)
            job.complete("first", values)
            assert (job[taken], job[untaken]) == ("dispatched", "skipped")


def test_the_first_branch_that_matches_wins_and_the_output_names_the_others() -> None:
    job = Job(
        """
workflow_id: w
nodes:
  choose:
    type: conditional
    condition_field: inputs.size
    branches:
      - {name: rest, default: true, next: c}
      - {name: small, condition: "< 10", next: a}
      - {name: medium, condition: "< 100", next: b}
  a: {handler: h}
  b: {handler: h}
  c: {handler: h}
""",
        {"size": 5},
    )
    assert job.output("choose") == {"taken_branch": "small", "skipped_branches": ["medium", "rest"]}
    assert job.statuses == {"choose": "completed", "a": "dispatched", "b": "skipped", "c": "skipped"}
    assert job.data("node_skipped", "b") == {"reason": "branch"}


SHORT = """
workflow_id: w
nodes:
  choose:
    type: conditional
    condition: "{{ inputs.go }}"
    branches: {true: a, false: b}
  a: {handler: h, next: [a2, join]}
  a2: {handler: h}
  b: {handler: h, next: join}
  join: {handler: h}
"""


def test_nodes_behind_an_untaken_branch_are_skipped_and_a_join_runs_on() -> None:
    job = Job(SHORT, {"go": False})
    assert job.statuses == {
        "choose": "completed",
        "a": "skipped",
        "a2": "skipped",
        "b": "dispatched",
        "join": "pending",
    }
    job.complete("b")
    assert job["join"] == "dispatched"
    job.complete("join")
    assert job.status == "completed"
    assert "a" not in job.result


def test_a_condition_that_cannot_be_decided_fails_the_conditional() -> None:
    job = Job(SHORT, {"other": 1})
    assert job["choose"] == "failed"
    assert job.status == "failed"
    assert job.error["node_id"] == "choose"
    assert job.error["code"] == "template_undefined"


def test_an_end_is_never_skipped() -> None:
    job = Job(
        """
workflow_id: w
nodes:
  choose: {type: conditional, condition: "{{ inputs.go }}", branches: {true: a, false: finish}}
  a: {handler: h, next: stop}
  stop: {type: end}
  finish: {type: end}
""",
        {"go": False},
    )
    assert job.statuses == {
        "choose": "completed",
        "a": "skipped",
        "stop": "completed",
        "finish": "completed",
    }
    assert job.status == "completed"


GATE = """
workflow_id: w
nodes:
  choose: {handler: h, next: gate}
  gate: {type: conditional, condition: "{{ output.go }}", branches: {true: x, false: y}}
  slow: {handler: h, retry: {max_attempts: 1}}
  x: {handler: h, depends_on: slow, next: after}
  y: {handler: h, next: after}
  after: {handler: h}
"""


def test_an_untaken_branch_closes_its_gate_whatever_else_the_node_depends_on() -> None:
    job = Job(GATE)
    job.complete("slow")
    job.complete("choose", {"go": False})
    assert job["x"] == "skipped"


def test_a_taken_branch_opens_its_gate_and_the_node_waits_for_the_rest() -> None:
    job = Job(GATE)
    job.complete("choose", {"go": True})
    assert job["x"] == "pending"
    job.complete("slow")
    assert job["x"] == "dispatched"


@pytest.mark.parametrize("order", ["choose first", "failure first"])
def test_an_untaken_branch_is_not_hurt_by_a_failure_whichever_comes_first(order: str) -> None:
    """It was not wanted at all: what joins after it runs in both cases."""
    job = Job(GATE)
    for step in sorted(["choose", "slow"], reverse=order != "choose first"):
        if step == "slow":
            job.fail("slow")
        else:
            job.complete("choose", {"go": False})
    assert job.row("x").skip_reason == "branch"
    job.complete("y")
    assert job["after"] == "dispatched"


def test_an_optional_conditional_that_fails_takes_no_branch() -> None:
    job = Job(SHORT.replace("type: conditional", "type: conditional\n    required: false"), {"other": 1})
    assert job.statuses == {
        "choose": "failed",
        "a": "skipped",
        "a2": "skipped",
        "b": "skipped",
        "join": "skipped",
    }
    assert job.status == "completed"


# -- any_of -----------------------------------------------------------------------------------------

ANY = """
workflow_id: w
nodes:
  choose: {type: conditional, condition: "{{ inputs.go }}", branches: {true: a, false: b}}
  a: {handler: h}
  b: {handler: h, retry: {max_attempts: 1}}
  c: {handler: h, depends_on: {any_of: [a, b]}}
"""


def test_any_of_needs_one_that_is_completed_and_skipped_does_not_count() -> None:
    job = Job(ANY, {"go": False})
    assert job["a"] == "skipped"
    assert job["c"] == "pending"
    job.complete("b")
    assert job["c"] == "dispatched"


def test_any_of_whose_last_hope_failed_is_skipped() -> None:
    job = Job(ANY, {"go": False})
    job.fail("b")
    assert job["c"] == "skipped"
    assert job.row("c").skip_reason == "upstream_failed"
    assert job.status == "failed"


def test_any_of_runs_once_though_all_of_them_complete() -> None:
    job = Job(
        "workflow_id: w\n"
        "nodes: {a: {handler: h}, b: {handler: h}, c: {handler: h, depends_on: {any_of: [a, b]}}}"
    )
    job.complete("a")
    job.complete("c")
    job.complete("b")
    assert job.dispatched.count(("c", 1)) == 1
    assert job.status == "completed"


BOTH = """
workflow_id: w
nodes:
  ask: {handler: h, next: choose}
  choose: {type: conditional, condition: "{{ output.go }}", branches: {true: a, false: END}}
  a: {handler: h}
  need: {handler: h, retry: {max_attempts: 1}}
  c: {handler: h, depends_on: {all_of: [need], any_of: [a]}, next: d}
  other: {handler: h, next: d}
  d: {handler: h}
"""


@pytest.mark.parametrize("order", [("ask", "need"), ("need", "ask")])
def test_the_end_of_a_job_does_not_depend_on_which_of_two_happens_first(order: tuple[str, str]) -> None:
    job = Job(BOTH)
    for name in order:
        if name == "need":
            job.fail("need")
        else:
            job.complete("ask", {"go": False})
    job.complete("other")
    assert job.row("c").skip_reason == "branch"
    assert job["d"] == "dispatched"


def test_a_node_says_which_of_its_alternatives_let_it_run() -> None:
    job = Job(
        "workflow_id: w\nnodes: {a: {handler: h}, b: {handler: h}, n: {handler: h},"
        " c: {handler: h, depends_on: {any_of: [a, b], all_of: [n]}}}"
    )
    job.complete("n")
    job.complete("b")
    assert job.data("node_ready", "c") == {"dependencies_met": ["n", "b"]}


def test_a_job_counts_the_children_of_its_fan_outs_among_its_nodes() -> None:
    job = Job(
        "workflow_id: w\nnodes: {f: {type: fan_out, source: [1, 2, 3], task: {handler: h}, next: g},"
        " g: {type: fan_in}}"
    )
    for index in range(3):
        job.complete(f"f__{index}")
    assert job.data("job_completed")["node_count"] == 5
