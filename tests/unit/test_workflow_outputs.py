"""`outputs:` of a workflow: what is refused, and what a job results in."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.memory_job import Job

from cograil.definitions import read_workflow
from cograil.errors import InvalidWorkflow

CHOICE = """
workflow_id: w
inputs: {x: {type: integer}}
nodes:
  check:
    type: conditional
    branches: [{name: big, condition: "inputs.x > 1", next: big}, {name: small, default: true, next: small}]
  big: {handler: h}
  small: {handler: h}
outputs:
  big: "{{ nodes.big.output.v }}"
  either: "{{ nodes.big.output.v | default(nodes.small.output.v) }}"
  text: "of {{ inputs.x }}"
  deep: {list: ["{{ inputs.x }}", 1]}
  none: null
"""


@pytest.mark.parametrize(("x", "ran", "big"), [(5, "big", 7), (1, "small", None)])
def test_the_result_is_exactly_the_outputs(x: int, ran: str, big: Any) -> None:
    job = Job(CHOICE, {"x": x})
    job.complete(ran, {"v": 7})
    assert job.status == "completed"
    expected = {"big": big, "either": 7, "text": f"of {x}", "deep": {"list": [x, 1]}, "none": None}
    assert job.result == expected
    assert "warning" not in job.events()


def test_an_output_that_cannot_be_filled_in_is_null_and_says_so() -> None:
    text = "workflow_id: w\nnodes: {a: {handler: h}}\noutputs: {x: '{{ nodes.a.output.typo }}', y: 1}"
    job = Job(text)
    job.complete("a", {"v": 7})
    assert (job.status, job.result) == ("completed", {"x": None, "y": 1})
    assert job.events().count("warning") == 1


def test_a_workflow_of_one_task_with_outputs_is_ended_by_an_orchestrator() -> None:
    text = "workflow_id: w\nnodes: {a: {handler: h}}\n"
    assert read_workflow(text).is_one_task
    assert not read_workflow(f"{text}outputs: {{x: 1}}\n").is_one_task


@pytest.mark.parametrize(
    ("output", "code", "hint"),
    [
        ("{{ nodes.aa.output }}", "dag_unknown_node", "did you mean 'a'"),
        ("{{ output.x }}", "template_undefined", "use nodes.<id>.output"),
        ("{{ item }}", "template_undefined", "item is not available here"),
        ("{{ inputs.y }}", "unknown_input", "'y' is not declared"),
        ("{{ nodes.a.output", "template_syntax", ""),
    ],
)
def test_wrong_outputs_are_told_with_their_place(output: str, code: str, hint: str) -> None:
    head = "workflow_id: w\ninputs: {x: {type: string}}\nnodes: {a: {handler: h}}\n"
    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow(f'{head}outputs:\n  fine: 1\n  out: "{output}"\n')
    (problem,) = caught.value.problems
    assert (problem.code, problem.pointer, problem.line, problem.column) == (code, "/outputs/out", 6, 8)
    assert hint in problem.message


def test_names_of_outputs_are_like_those_of_inputs() -> None:
    with pytest.raises(InvalidWorkflow, match="invalid_id"):
        read_workflow("workflow_id: w\nnodes: {a: {handler: h}}\noutputs: {'a b': 1}\n")
