"""What a job is given must fit what its workflow declares."""

from __future__ import annotations

import pytest

from cograil.definitions import apply_inputs, read_workflow
from cograil.errors import InvalidInput
from cograil.model.workflow import InputSpec, Json, Workflow

DECLARED = """\
inputs:
  name: {type: string, description: Who.}
  count: {type: integer, default: 3}
  ratio: {type: number, required: false}
  flag: {type: boolean, default: false}
  files: {type: array, default: []}
  options: {type: object, default: null}
"""


def workflow(inputs: str = DECLARED) -> Workflow:
    return read_workflow(f"workflow_id: w\n{inputs}nodes:\n  a: {{handler: h}}\n")


def refused(inputs: dict[str, Json]) -> list[tuple[str, str]]:
    with pytest.raises(InvalidInput) as caught:
        apply_inputs(workflow(), inputs)
    return [(problem.code, problem.pointer) for problem in caught.value.problems]


def test_declared_inputs_are_kept_with_the_workflow() -> None:
    declared = workflow().inputs
    assert declared is not None
    assert declared["name"] == InputSpec("name", "string", description="Who.")
    assert declared["count"] == InputSpec("count", "integer", default=3, has_default=True)
    assert declared["options"].has_default


def test_defaults_fill_what_is_not_given_and_an_optional_input_is_null() -> None:
    assert apply_inputs(workflow(), {"name": "x"}) == {
        "name": "x",
        "count": 3,
        "ratio": None,
        "flag": False,
        "files": [],
        "options": None,
    }


def test_a_given_input_wins_over_the_default() -> None:
    inputs = {"name": "", "count": 0, "ratio": 2, "flag": True, "files": [1], "options": {"a": 1}}
    assert apply_inputs(workflow(), inputs) == inputs


def test_a_number_may_be_an_integer_but_a_boolean_is_neither() -> None:
    assert apply_inputs(workflow(), {"name": "x", "ratio": 1})["ratio"] == 1
    assert refused({"name": "x", "ratio": True, "count": False}) == [
        ("invalid_type", "/input_params/count"),
        ("invalid_type", "/input_params/ratio"),
    ]


def test_null_is_for_what_may_be_left_out_or_is_null_by_default() -> None:
    assert apply_inputs(workflow(), {"name": "x", "ratio": None, "options": None})["ratio"] is None
    assert refused({"name": None, "count": None}) == [
        ("invalid_type", "/input_params/name"),
        ("invalid_type", "/input_params/count"),
    ]


def test_all_inputs_that_do_not_fit_are_named_at_once() -> None:
    assert refused({"count": "3", "files": {}, "options": [], "flag": 1, "nmae": "x", "a/b": 1}) == [
        ("unknown_input", "/input_params/nmae"),
        ("unknown_input", "/input_params/a~1b"),
        ("missing_input", "/input_params/name"),
        ("invalid_type", "/input_params/count"),
        ("invalid_type", "/input_params/flag"),
        ("invalid_type", "/input_params/files"),
        ("invalid_type", "/input_params/options"),
    ]


def test_an_undeclared_input_suggests_a_declared_one() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'name'"):
        apply_inputs(workflow(), {"nam": "x"})
    with pytest.raises(InvalidInput, match="known inputs: none"):
        apply_inputs(workflow("inputs: {}\n"), {"nam": "x"})


def test_a_workflow_without_declared_inputs_takes_any() -> None:
    inputs = {"anything": [1, {"x": None}]}
    applied = apply_inputs(workflow(""), inputs)
    assert applied == inputs
    assert applied is not inputs
