"""Expressions cost steps: a node has a limit, a pass an allowance, and neither changes what is decided."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.memory_job import Job

from cograil.definitions.conditions import compile_condition
from cograil.definitions.templates import compile_template
from cograil.engine.advance import Evaluation
from cograil.model.evaluation_budget import AllowanceSpent, Budget, ExpressionTooCostly
from cograil.model.job import Bounds
from cograil.model.workflow import RenderError

NUMBERS = list(range(1000))


def steps_of(condition: str, **inputs: Any) -> int:
    budget = Budget()
    compile_condition(condition).render({"inputs": inputs}, budget)
    return budget.used


# -- counting ---------------------------------------------------------------------------------------


def test_a_comparison_of_lists_counts_their_members() -> None:
    assert steps_of("inputs.a == inputs.b", a=NUMBERS, b=list(NUMBERS)) >= 1000
    assert steps_of("inputs.a == inputs.b", a=NUMBERS, b=NUMBERS[1:]) < 10, "their lengths differ"


def test_a_nested_comparison_counts_all_members() -> None:
    rows = [{"x": [index]} for index in NUMBERS]
    assert steps_of("inputs.a == inputs.b", a=rows, b=[{"x": [index]} for index in NUMBERS]) >= 3000


def test_a_list_is_searched_once_and_then_looked_up_in() -> None:
    names = [f"name-{index}" for index in range(10_000)]
    template = compile_template("{{ item in inputs.names }}")
    budget = Budget()
    for index in range(3000):
        assert template.render({"inputs": {"names": names}, "item": f"name-{index}"}, budget) is True
        assert template.render({"inputs": {"names": names}, "item": f"none-{index}"}, budget) is False
    assert budget.used < 100_000


@pytest.mark.parametrize("size", [3, 100])
@pytest.mark.parametrize(
    ("member", "is_found"),
    [
        (1, True),
        (1.0, True),
        (True, False),
        ("1", False),
        (None, True),
        ([1], True),
        ([True], False),
        ({}, True),
    ],
)
def test_a_lookup_keeps_the_types_of_json_apart(size: int, member: Any, is_found: bool) -> None:
    members: list[Any] = [1, None, [1], {}, *["x"] * size]
    assert (
        compile_condition("inputs.m in inputs.l").render({"inputs": {"m": member, "l": members}}) is is_found
    )


def test_true_is_found_among_booleans_only() -> None:
    flags = [False] * 50
    assert not compile_condition("inputs.m in inputs.l").render({"inputs": {"m": True, "l": flags}})
    assert compile_condition("inputs.m in inputs.l").render({"inputs": {"m": True, "l": [*flags, True]}})
    assert not compile_condition("inputs.a == inputs.b").render({"inputs": {"a": [True] * 3, "b": [1] * 3}})


@pytest.mark.parametrize(
    "text",
    [
        "{{ inputs.a|tojson|length }}",
        "{{ inputs.a|join(',')|length }}",
        "{{ ('x' ~ inputs.a)|length }}",
        "{{ [inputs.a, inputs.a]|length }}",
        "{{ inputs.text|upper|length }}",
        "{{ 'b' in inputs.text }}",
    ],
)
def test_operations_that_grow_with_their_values_cost_steps(text: str) -> None:
    budget, scope = Budget(), {"inputs": {"a": NUMBERS * 20, "text": "a" * 100_000}}
    compile_template(text).render(scope, budget)
    assert budget.used > 1000


def test_the_error_names_the_expression_and_what_to_do() -> None:
    condition = compile_condition("inputs.a == inputs.b")
    with pytest.raises(
        ExpressionTooCostly, match=r"`inputs\.a == inputs\.b` needs more than 500 steps.*task"
    ):
        condition.render({"inputs": {"a": NUMBERS, "b": list(NUMBERS)}}, Budget(None, 500))
    with pytest.raises(RenderError, match=r"`x \{\{ inputs\.a \}\}` needs"):
        compile_template({"x": ["x {{ inputs.a }}"]}).render(
            {"inputs": {"a": NUMBERS * 10}}, Budget(None, 500)
        )


def test_a_template_without_a_budget_has_one() -> None:
    same = " and ".join(["inputs.a == inputs.b"] * 60)
    long = {"a": list(range(490_000)), "b": list(range(490_000))}
    with pytest.raises(ExpressionTooCostly):
        compile_condition(same).render({"inputs": long})


def test_the_clock_is_a_backstop() -> None:
    moments = iter(range(100))
    budget = Budget(None, 10**9, node_seconds=2, clock=lambda: float(next(moments)))
    for _ in range(3):
        budget.spend(50_001)
    with pytest.raises(ExpressionTooCostly, match="2 seconds"):
        budget.spend(50_001)


def test_an_allowance_ends_before_the_limit_of_the_node() -> None:
    budget = Budget(100, 1000)
    budget.spend(100)
    assert budget.is_spent
    with pytest.raises(AllowanceSpent):
        budget.spend(1)


def test_after_the_soft_allowance_the_node_at_hand_may_go_on() -> None:
    budget = Budget(100, 1000, soft_allowance=50)
    budget.spend(60)
    assert budget.is_spent
    budget.spend(40)


# -- deciding ---------------------------------------------------------------------------------------

COSTLY = """
workflow_id: costly
nodes:
  check: {handler: echo, when: "{{ inputs.a == inputs.b }}", next: after}
  after: {handler: echo}
"""


def test_a_node_over_its_budget_fails_and_is_named() -> None:
    job = Job(COSTLY, {"a": NUMBERS, "b": NUMBERS}, bounds=Bounds(node_steps=500))
    error = job.rows.nodes["check"].error
    assert (job.rows.status, error["code"]) == ("failed", "expression_too_costly")
    assert "node check: `{{ inputs.a == inputs.b }}` needs more than 500 steps" in error["message"]


CHAIN = """
workflow_id: chain
nodes:
  a: {type: conditional, condition: "{{ 5 in inputs.l }}", branches: {true: b, false: b}}
  b: {type: conditional, condition: "{{ 6 in inputs.l }}", branches: {true: c, false: c}}
  c: {type: conditional, condition: "{{ 7 in inputs.l }}", branches: {true: fan, false: fan}}
  fan: {type: fan_out, source: "{{ inputs.l }}", task: {handler: echo, params: {x: "{{ item in inputs.l }}"}}}
  last: {depends_on: [c], handler: echo}
"""


def drive(evaluation: Evaluation, bounds: Bounds | None = None) -> tuple[Job, int]:
    job, passes = Job(CHAIN, {"l": NUMBERS[:200]}, bounds=bounds or Bounds(), evaluation=evaluation), 1
    while job.to_expand:
        job.advance()
        passes += 1
        assert passes < 1000, "it does not come to an end"
    return job, passes


def test_a_pass_without_steps_goes_on_in_the_next_one() -> None:
    whole, passes = drive(Evaluation())
    assert passes == 1
    sliced, many = drive(Evaluation(steps=600))
    assert many > 4
    assert set(sliced.tasks) == set(whole.tasks)
    assert len(sliced.dispatched) == 201
    assert sliced.rows.inputs == whole.rows.inputs


@pytest.mark.parametrize("steps", [300, 450, 900, 1700])
def test_the_size_of_slices_does_not_matter(steps: int) -> None:
    sliced, _ = drive(Evaluation(steps=steps))
    assert set(sliced.tasks) == set(drive(Evaluation())[0].tasks)


def test_a_pass_that_is_too_small_decides_nothing() -> None:
    job = Job(CHAIN, {"l": NUMBERS}, evaluation=Evaluation(steps=10))
    assert (job.rows.status, job.tasks, job.to_expand) == ("running", {}, ["a"])
    job.evaluation = Evaluation()
    job.advance()
    assert len(job.tasks) == 1001


def test_after_a_costly_child_the_others_of_the_pass_fail_without_being_evaluated() -> None:
    job, passes = drive(Evaluation(steps=2000), Bounds(node_steps=450, chunk=50))
    children = [state for name, state in job.rows.nodes.items() if name.startswith("fan__")]
    assert {state.status for state in children} <= {"failed", "dispatched"}
    assert passes < 20


def test_a_costly_source_does_not_keep_children_from_being_made() -> None:
    """Each pass evaluates the source again; it makes one child at least."""
    text = """
workflow_id: costly_source
nodes:
  fan:
    type: fan_out
    source: "{{ inputs.items if inputs.l == inputs.m else [] }}"
    task: {handler: echo, params: {x: "{{ item }}"}}
"""
    inputs = {"items": [1, 2, 3], "l": NUMBERS, "m": NUMBERS}
    job = Job(text, inputs, evaluation=Evaluation(steps=4000, soft_steps=500))
    for _ in range(5):
        if job.to_expand:
            job.advance()
    assert sorted(job.tasks) == ["fan__0", "fan__1", "fan__2"]


def test_outputs_that_are_still_missing_are_left_for_another_pass() -> None:
    text = """
workflow_id: reads
nodes:
  a: {handler: echo, next: b}
  b: {handler: echo, params: {x: "{{ nodes.a.output.x }}"}}
"""
    job = Job(text)
    job.rows.nodes["a"].status = "completed"
    state = job.rows.load([], job.now)
    from cograil import engine
    from cograil.model.job import ExpandMore, Outputs

    def decide(defers: bool) -> Any:
        return engine.advance(
            job.workflow,
            state,
            [ExpandMore("b")],
            now=job.now,
            random=lambda: 0.5,
            outputs=Outputs(),
            evaluation=Evaluation(defers_missing=defers),
        )

    assert decide(False).missing == {"a"}
    assert (decide(True).missing, decide(True).to_expand) == (frozenset(), ["b"])
