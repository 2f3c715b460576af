"""`subworkflow` in a workflow file."""

from __future__ import annotations

import pytest

from cograil.definitions import load_workflow, read_workflow
from cograil.errors import InvalidWorkflow, Problem
from cograil.model.workflow import NodeType, Subworkflow


def text_of(written: str) -> str:
    return f"workflow_id: w\nnodes:\n  a: {{type: subworkflow, subworkflow: {written}}}\n"


def subworkflow(written: str) -> Subworkflow:
    node = read_workflow(text_of(written)).nodes["a"]
    assert node.type is NodeType.SUBWORKFLOW
    assert node.subworkflow is not None
    return node.subworkflow


def problems(text: str) -> list[Problem]:
    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow(text)
    return list(caught.value.problems)


def test_only_the_name_is_needed() -> None:
    assert subworkflow("{workflow_id: v}") == Subworkflow("v")
    assert subworkflow("{workflow_id: v, version: null, inputs: null}") == Subworkflow("v")


def test_fields_of_a_subworkflow_are_kept() -> None:
    child = subworkflow("{workflow_id: v.1, version: 3, inputs: {a: '{{ inputs.x }}', b: 2}, description: d}")
    assert (child.workflow_id, child.version) == ("v.1", 3)
    assert child.inputs is not None
    assert child.inputs.render({"inputs": {"x": [1]}}) == {"a": [1], "b": 2}


@pytest.mark.parametrize(
    ("written", "code", "below"),
    [
        ("v", "invalid_type", ""),
        ("{}", "missing_key", ""),
        ("{workflow_id: null}", "missing_key", "/workflow_id"),
        ("{workflow_id: 5}", "invalid_type", "/workflow_id"),
        ("{workflow_id: 'v w'}", "invalid_id", "/workflow_id"),
        ("{workflow_id: v__1}", "invalid_id", "/workflow_id"),
        ("{workflow_id: '{{ inputs.x }}'}", "invalid_id", "/workflow_id"),
        ("{workflow_id: v, version: 0}", "invalid_value", "/version"),
        ("{workflow_id: v, version: 2147483648}", "invalid_value", "/version"),
        ("{workflow_id: v, version: '1'}", "invalid_type", "/version"),
        ("{workflow_id: v, inputs: [1]}", "invalid_type", "/inputs"),
        ("{workflow_id: v, inputs: '{{ inputs }}'}", "invalid_type", "/inputs"),
        ("{workflow_id: v, inputs: {a: '{{ 1 + }}'}}", "template_syntax", "/inputs/a"),
        ("{workflow_id: v, inputs: {a: '{{ nodes.z.output }}'}}", "dag_unknown_node", "/inputs/a"),
        ("{workflow_id: v, params: {}}", "unknown_key", "/params"),
        ("{workflow_id: w}", "dag_recursion", "/workflow_id"),
        ("{workflow_id: w, version: 1}", "dag_recursion", "/workflow_id"),
    ],
)
def test_a_flaw_is_reported_once_at_its_place(written: str, code: str, below: str) -> None:
    (problem,) = problems(text_of(written))
    assert (problem.code, problem.pointer, problem.line) == (code, f"/nodes/a/subworkflow{below}", 3)
    assert problem.column


def test_a_workflow_that_starts_itself_is_refused_at_every_node_that_does() -> None:
    flaws = problems(
        "workflow_id: w\nnodes:\n"
        "  a/b: {type: subworkflow, subworkflow: {workflow_id: w}}\n"
        "  b: {type: subworkflow, subworkflow: {workflow_id: w}}\n"
    )
    assert [(problem.code, problem.line, problem.column) for problem in flaws] == [
        ("invalid_id", 3, 3),
        ("dag_recursion", 3, 55),
        ("dag_recursion", 4, 53),
    ]


def test_a_workflow_without_a_name_is_not_taken_for_itself() -> None:
    text = "nodes: {a: {type: subworkflow, subworkflow: {workflow_id: ''}}}\n"
    assert [problem.code for problem in problems(text)] == ["missing_key", "invalid_id"]


def test_a_stored_document_gives_the_same_child() -> None:
    read = read_workflow(text_of("{workflow_id: v, version: 2}"))
    assert load_workflow(read.document).nodes["a"].subworkflow == Subworkflow("v", 2)
