"""`when` of a node and `fail_fast` of a workflow."""

from __future__ import annotations

import pytest

from cograil.definitions import read_workflow
from cograil.model.workflow import RenderError, WorkflowNode


def node(text: str) -> WorkflowNode:
    return read_workflow(f"workflow_id: w\nnodes:\n  a: {text}\n").nodes["a"]


def test_when_is_a_condition_with_or_without_braces() -> None:
    for written in ("'{{ inputs.x > 1 }}'", "inputs.x > 1"):
        when = node(f"{{handler: h, when: {written}}}").when
        assert when is not None
        assert [when.render({"inputs": {"x": x}}) for x in (1, 2)] == [False, True]
    for written in ("false", "'false'", "'{{ false }}'"):
        when = node(f"{{type: wait, wait: {{seconds: 1}}, when: {written}}}").when
        assert when is not None
        assert when.render({}) is False
    assert node("{handler: h, when: null}").when is None


def test_a_when_that_is_neither_true_nor_false_cannot_be_rendered() -> None:
    when = node("{handler: h, when: '{{ inputs.x }}'}").when
    assert when is not None
    with pytest.raises(RenderError) as caught:
        when.render({"inputs": {"x": 1}})
    assert caught.value.code == "condition_not_boolean"


@pytest.mark.parametrize(
    "written",
    [
        "{handler: h",
        "{type: http, http: {url: 'http://x'}",
        "{type: conditional, branches: [{default: true}]",
        "{type: fan_out, source: [], task: {handler: h}",
        "{type: wait, wait: {seconds: 1}",
        "{type: approval, approval: {message: m}",
        "{type: subworkflow, subworkflow: {workflow_id: x}",
    ],
)
def test_every_type_but_start_and_end_may_have_a_when(written: str) -> None:
    assert node(f"{written}, when: inputs.x}}").when is not None


def test_fail_fast_is_off_unless_written() -> None:
    for written, expected in (("", False), ("fail_fast: false\n", False), ("fail_fast: true\n", True)):
        text = f"workflow_id: w\n{written}nodes: {{a: {{handler: h}}}}\n"
        assert read_workflow(text).fail_fast is expected
