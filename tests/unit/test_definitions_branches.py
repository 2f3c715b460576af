"""The ways out of a conditional: every form they are written in, and which one is taken."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cograil.definitions import load_workflow, read_workflow
from cograil.errors import InvalidWorkflow, Problem
from cograil.model.workflow import Branch, Json, RenderError


def branches(node: str) -> tuple[Branch, ...]:
    return read_workflow(f"workflow_id: w\nnodes:\n  a: {node}\n  b: {{handler: h}}\n").nodes["a"].branches


def problems(text: str) -> list[Problem]:
    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow(text)
    return list(caught.value.problems)


def taken(ways: tuple[Branch, ...], scope: dict[str, Json]) -> str:
    return next(branch.name for branch in ways if branch.test is None or branch.test.render(scope))


def test_two_branches_of_one_name_are_refused() -> None:
    text = "{type: conditional, branches: [{name: x, condition: 'true', next: b}, {name: x, default: true}]}"
    with pytest.raises(InvalidWorkflow) as caught:
        branches(text)
    assert [problem.code for problem in caught.value.problems] == ["duplicate_branch", "duplicate_branch"]


@pytest.mark.parametrize(
    "node",
    [
        {
            "type": "conditional",
            "condition": "'{{ inputs.x }}' == 'a'",
            "branches": {"true": "b", "false": "END"},
        },
        {
            "type": "conditional",
            "branches": [{"condition": "'{{ inputs.x }}' == 'a'", "next": "b"}, {"default": True}],
        },
        {"handler": "h", "when": "inputs.y and '{{ inputs.x }}' in ['a']"},
    ],
)
def test_braces_between_quotes_are_refused_in_a_file_and_left_alone_in_what_is_stored(node: Json) -> None:
    """They would be text, and the condition never true. Jobs are pinned to what was published before."""
    document = {"workflow_id": "w", "nodes": {"a": node, "b": {"handler": "h"}}}
    with pytest.raises(InvalidWorkflow, match="inside quotes is plain text"):
        read_workflow(json.dumps(document))
    assert load_workflow(document).nodes["a"].node_id == "a"


def test_branches_that_begin_with_an_operator_look_at_the_condition_field() -> None:
    parts = branches(
        "{type: conditional, condition_field: '{{ inputs.size }}', branches: ["
        "{name: rest, default: true}, {condition: '< 10', next: b},"
        " {name: mid, condition: '>= 10 and <= 20'}]}"
    )
    assert [branch.name for branch in parts] == ["1", "mid", "rest"]
    assert [branch.targets for branch in parts] == [("b",), (), ()]
    sizes = {9: "1", 10: "mid", 20: "mid", 21: "rest"}
    assert {size: taken(parts, {"inputs": {"size": size}}) for size in sizes} == sizes


@pytest.mark.parametrize("quote", ["", "'"])
def test_a_lone_true_or_false_is_what_the_condition_field_must_be(quote: str) -> None:
    choices = branches(
        "{type: conditional, condition_field: inputs.ok, branches: ["
        f"{{name: yes, condition: {quote}true{quote}}}, {{name: no, condition: {quote}false{quote}}},"
        " {name: rest, default: true}]}"
    )
    cases: list[tuple[Json, str]] = [(True, "yes"), (False, "no"), (None, "rest"), ("true", "rest")]
    cases += [(1, "rest"), (0, "rest"), ("", "rest")]
    assert [taken(choices, {"inputs": {"ok": value}}) for value, _ in cases] == [name for _, name in cases]
    with pytest.raises(RenderError):
        taken(choices, {"inputs": {}})


@pytest.mark.parametrize("written", ["True", "(true)", "'{{ true }}'"])
def test_a_lone_true_may_be_written_in_other_ways(written: str) -> None:
    ways = f"[{{name: yes, condition: {written}, next: b}}, {{name: rest, default: true}}]"
    choices = branches(f"{{type: conditional, condition_field: inputs.ok, branches: {ways}}}")
    assert [taken(choices, {"inputs": {"ok": value}}) for value in (True, False)] == ["yes", "rest"]


def test_true_within_an_expression_and_without_a_condition_field_is_just_true() -> None:
    field = "type: conditional, condition_field: inputs.ok"
    choices = branches(f"{{{field}, branches: [{{name: x, condition: 'true or true'}}, {{default: true}}]}}")
    assert taken(choices, {"inputs": {"ok": False}}) == "x"
    choices = branches("{type: conditional, branches: [{name: x, condition: true}, {default: true}]}")
    assert taken(choices, {"inputs": {"ok": False}}) == "x"


def test_branches_without_a_condition_field_have_whole_expressions() -> None:
    choices = branches(
        "{type: conditional, branches: [{name: a, condition: 'inputs.x in [1, 2]'}, {condition: false},"
        " {name: z, default: true, next: [b]}]}"
    )
    assert taken(choices, {"inputs": {"x": 2}}) == "a"
    assert taken(choices, {"inputs": {"x": 3}}) == "z"


def test_the_short_form_chooses_by_true_and_false() -> None:
    choices = branches(
        "{type: conditional, condition: '{{ inputs.x > 5 }}', branches: {true: b, false: END}}"
    )
    assert [(branch.name, branch.targets) for branch in choices] == [("true", ("b",)), ("false", ())]
    assert taken(choices, {"inputs": {"x": 6}}) == "true"
    assert taken(choices, {"inputs": {"x": 5}}) == "false"


@pytest.mark.parametrize("way", ["condition: '{{ inputs.z }}'", "condition_field: inputs.z"])
def test_in_the_short_form_null_takes_the_false_branch_and_nothing_else_does(way: str) -> None:
    choices = branches(f"{{type: conditional, {way}, branches: {{true: b, false: END}}}}")
    cases = {True: "true", False: "false", None: "false"}
    assert {value: taken(choices, {"inputs": {"z": value}}) for value in cases} == cases
    values: list[Any] = [0, 1, "", "true", [], {}]
    for value in values:
        with pytest.raises(RenderError, match="true or false"):
            taken(choices, {"inputs": {"z": value}})


def test_in_the_long_form_null_is_no_condition() -> None:
    choices = branches("{type: conditional, branches: [{condition: 'inputs.z', next: b}, {default: true}]}")
    with pytest.raises(RenderError, match="true or false"):
        taken(choices, {"inputs": {"z": None}})


def test_the_short_form_chooses_by_any_value_and_falls_back_on_the_default() -> None:
    choices = branches(
        "{type: conditional, condition: '{{ inputs.x }}',"
        " branches: {default: END, light: b, '404': b, 'null': b, true: b}}"
    )
    cases = {"light": "light", 404: "404", None: "null", True: "true", "heavy": "default"}
    assert {value: taken(choices, {"inputs": {"x": value}}) for value in cases} == cases


def test_a_condition_field_may_choose_by_value_too() -> None:
    choices = branches("{type: conditional, condition_field: inputs.x, branches: {light: b, default: END}}")
    assert taken(choices, {"inputs": {"x": "light"}}) == "light"


@pytest.mark.parametrize("key", ["condition", "condition_field"])
def test_branches_by_true_and_false_need_a_boolean(key: str) -> None:
    choices = branches(
        f"{{type: conditional, {key}: '{{{{ inputs.x }}}}', branches: {{true: b, false: END}}}}"
    )
    assert taken(choices, {"inputs": {"x": False}}) == "false"
    with pytest.raises(RenderError) as caught:
        taken(choices, {"inputs": {"x": "true"}})
    assert caught.value.code == "condition_not_boolean"


def test_branches_by_name_are_those_of_a_list() -> None:
    fields = "type: conditional, condition_field: inputs.size"
    by_name = branches(
        f"{{{fields}, branches: {{heavy: {{default: true}}, light: {{condition: '< 100', next: b}}}}}}"
    )
    assert [(branch.name, branch.targets) for branch in by_name] == [("light", ("b",)), ("heavy", ())]
    assert [taken(by_name, {"inputs": {"size": size}}) for size in (99, 100)] == ["light", "heavy"]


def test_branches_by_name_may_have_whole_expressions() -> None:
    choices = branches(
        "{type: conditional, branches: {one: {condition: inputs.x == 1}, rest: {default: true}}}"
    )
    assert [taken(choices, {"inputs": {"x": x}}) for x in (1, 2)] == ["one", "rest"]


def test_branches_by_name_need_one_default() -> None:
    two = "{type: conditional, branches: {true: {default: true}, false: {default: true}}}"
    none = "{type: conditional, branches: {true: {condition: 'true'}, false: {condition: 'false'}}}"
    for text, code in ((two, "many_default_branches"), (none, "no_default_branch")):
        with pytest.raises(InvalidWorkflow) as caught:
            branches(text)
        assert [problem.code for problem in caught.value.problems] == [code]


def test_a_default_without_a_name_is_called_default() -> None:
    parts = branches("{type: conditional, branches: [{default: true}, {condition: 'true', next: b}]}")
    assert [branch.name for branch in parts] == ["1", "default"]


@pytest.mark.parametrize("field", ["'{{ 1 + }}'", "5"])
def test_a_condition_field_that_is_wrong_is_reported_once(field: str) -> None:
    ways = "[{condition: '< 5'}, {default: true}]"
    text = f"{{type: conditional, condition_field: {field}, branches: {ways}}}"
    with pytest.raises(InvalidWorkflow) as caught:
        branches(text)
    assert [problem.pointer for problem in caught.value.problems] == ["/nodes/a/condition_field"]


@pytest.mark.parametrize("branches", ["", ", branches: 5"])
def test_the_deciding_field_is_checked_where_the_branches_are_unreadable(branches: str) -> None:
    nodes = (
        f"  a: {{type: conditional, condition: '{{{{ 1 + }}}}'{branches}}}\n"
        f"  b: {{type: conditional, condition_field: '{{{{ nodes.q.output }}}}'{branches}}}\n"
    )
    codes = {problem.code for problem in problems(f"workflow_id: w\nnodes:\n{nodes}")}
    assert codes == {"invalid_type" if branches else "missing_key", "template_syntax", "dag_unknown_node"}


def test_a_branch_without_a_condition_is_told_at_its_own_line() -> None:
    text = (
        "workflow_id: w\nnodes:\n  a:\n    type: conditional\n    branches:\n"
        "      - {condition: 'true', next: END}\n      - {next: END}\n      - {default: true, next: END}\n"
    )
    (problem,) = problems(text)
    assert (problem.code, problem.line, problem.column) == ("missing_key", 7, 9)
