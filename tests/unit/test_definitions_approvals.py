"""`approval` in a workflow file, and the JSON Schema that is its form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cograil.definitions import load_workflow, read_workflow
from cograil.errors import InvalidWorkflow, Problem
from cograil.model.workflow import Approval, NodeType


def text_of(approval: str) -> str:
    return f"workflow_id: w\nnodes:\n  a:\n    type: approval\n    approval: {approval}\n"


def approval(written: str) -> Approval:
    node = read_workflow(text_of(written)).nodes["a"]
    assert node.type is NodeType.APPROVAL
    assert node.approval is not None
    return node.approval


def problems(written: str) -> list[Problem]:
    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow(text_of(written))
    return list(caught.value.problems)


def with_form(form: Any) -> str:
    return json.dumps({"message": "m", "form": form})


def test_only_the_message_is_needed() -> None:
    question = approval("{message: Go on?}")
    assert question == Approval(question.message)
    assert question.message.render({}) == "Go on?"
    assert (question.approvers, question.form, question.timeout_seconds, question.on_timeout) == (
        (),
        None,
        None,
        "reject",
    )


def test_fields_of_an_approval_are_kept() -> None:
    question = approval(
        "{message: 'Pay {{ inputs.sum }}?', approvers: [ada, grace@example.com, ada],"
        " form: {type: object, required: [note]}, timeout_seconds: 0.5, on_timeout: fail}"
    )
    assert question.message.render({"inputs": {"sum": 5}}) == "Pay 5?"
    assert question.approvers == ("ada", "grace@example.com")
    assert question.form == {"type": "object", "required": ["note"]}
    assert (question.timeout_seconds, question.on_timeout) == (0.5, "fail")


def test_a_message_is_text_even_when_it_is_a_single_value() -> None:
    message = approval("{message: '{{ inputs.x }}'}").message
    assert message.render({"inputs": {"x": "plain"}}) == "plain"
    assert message.render({"inputs": {"x": {"a": [1]}}}) == '{"a":[1]}'


def test_a_form_is_no_template() -> None:
    form = {"properties": {"x": {"default": "{{ not an expression"}}}
    assert approval(with_form(form)).form == form


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("{}", [("missing_key", "/nodes/a/approval")]),
        ("go", [("invalid_type", "/nodes/a/approval")]),
        ("{message: null}", [("missing_key", "/nodes/a/approval/message")]),
        ("{message: ' '}", [("invalid_value", "/nodes/a/approval/message")]),
        ("{message: [m]}", [("invalid_type", "/nodes/a/approval/message")]),
        (f"{{message: {'m' * 10_001}}}", [("invalid_value", "/nodes/a/approval/message")]),
        ("{message: '{{ 1 + }}'}", [("template_syntax", "/nodes/a/approval/message")]),
        ("{message: m, approvers: ada}", [("invalid_type", "/nodes/a/approval/approvers")]),
        ("{message: m, approvers: []}", [("invalid_value", "/nodes/a/approval/approvers")]),
        ("{message: m, approvers: [ada, 5]}", [("invalid_type", "/nodes/a/approval/approvers/1")]),
        ("{message: m, approvers: ['{{ inputs.x }}']}", [("invalid_type", "/nodes/a/approval/approvers/0")]),
        ("{message: m, timeout_seconds: 0}", [("invalid_value", "/nodes/a/approval/timeout_seconds")]),
        ("{message: m, timeout_seconds: 1e9}", [("invalid_value", "/nodes/a/approval/timeout_seconds")]),
        ("{message: m, timeout_seconds: 1h}", [("invalid_type", "/nodes/a/approval/timeout_seconds")]),
        ("{message: m, on_timeout: approve}", [("invalid_value", "/nodes/a/approval/on_timeout")]),
        ("{message: m, on_timeout: 5}", [("invalid_type", "/nodes/a/approval/on_timeout")]),
        ("{message: m, aprovers: [ada]}", [("unknown_key", "/nodes/a/approval/aprovers")]),
        ("{message: m, form: [1]}", [("invalid_type", "/nodes/a/approval/form")]),
        ("{message: m, form: true}", [("invalid_type", "/nodes/a/approval/form")]),
        ("{message: *x}", [("yaml_alias", "/nodes/a/approval/message")]),
        ("{message: m, form: {type: [*x]}}", [("yaml_alias", "/nodes/a/approval/form/type/0")]),
    ],
)
def test_a_flaw_is_reported_once_at_its_place(written: str, expected: list[tuple[str, str]]) -> None:
    flaws = problems(written)
    assert [(problem.code, problem.pointer) for problem in flaws] == expected
    assert all(problem.line == 5 and problem.column for problem in flaws)


def test_all_flaws_are_reported_at_once_with_their_places() -> None:
    flaws = problems(
        "\n"
        "      message: '{{ nodes.b.output }}'\n"
        "      approvers: []\n"
        "      on_timeout: rejct\n"
        "      form:\n"
        "        type: objekt\n"
        "        properties:\n"
        "          note: {type: string, maxLength: -1}\n"
        "          more: {$ref: '#/$defs/more'}\n"
        "        required: note"
    )
    assert [(problem.code, problem.line, problem.column) for problem in flaws] == [
        ("dag_unknown_node", 6, 16),
        ("invalid_value", 7, 18),
        ("invalid_value", 8, 19),
        ("invalid_form", 10, 15),
        ("invalid_form", 12, 43),
        ("invalid_form", 13, 24),
        ("invalid_form", 14, 19),
    ]
    assert "did you mean 'reject'?" in flaws[2].message
    assert "'objekt' is not one of ['array', 'boolean'" in flaws[3].message


@pytest.mark.parametrize(
    ("form", "path"),
    [
        ({"type": "text"}, "/type"),
        ({"properties": {"a": 5}}, "/properties/a"),
        ({"properties": ["a"]}, "/properties"),
        ({"required": ["a", "a"]}, "/required"),
        ({"anyOf": []}, "/anyOf"),
        ({"items": {"pattern": "("}}, "/items/pattern"),
        ({"pattern": "a{99999999999999999999}"}, "/pattern"),
        ({"pattern": "(" * 5_000}, "/pattern"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "/$schema"),
        ({"$ref": "https://example.com/schema"}, "/$ref"),
        ({"$ref": "file:///etc/passwd"}, "/$ref"),
        ({"$ref": "other#/$defs/a"}, "/$ref"),
        ({"allOf": [{"$ref": "#/$defs/a"}]}, "/allOf/0/$ref"),
        ({"$ref": "#/required", "required": ["a"]}, "/$ref"),
        ({"$defs": {"a": {"$id": "https://example.com/"}}}, "/$defs/a/$id"),
        ({"$defs": {"a": {"$anchor": "a"}}, "$ref": "#a"}, "/$defs/a/$anchor"),
        ({"$dynamicRef": "#a"}, "/$dynamicRef"),
        ({"$ref": "#"}, ""),
        ({"properties": {"a": {"$ref": "#"}}}, ""),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/a"}}}}, ""),
    ],
)
def test_a_form_that_is_no_schema_or_no_safe_one_is_refused(form: Any, path: str) -> None:
    refusals = {(problem.code, problem.pointer) for problem in problems(with_form(form))}
    assert ("invalid_form", f"/nodes/a/approval/form{path}") in refusals


def test_a_form_may_refer_to_its_own_parts() -> None:
    form = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "properties": {
            "a": {"$ref": "#/$defs/a~1b"},
            "b": {"$ref": "#/$defs/a~1b"},
            "c": {"$ref": "#/anyOf/0"},
            "$ref": {"type": "string"},
            "$id": {"type": "string"},
        },
        "anyOf": [{"type": "object"}],
        "$defs": {"a/b": {"enum": [1, 2]}, "all": True, "c": {"$ref": "#/%24defs/all"}},
    }
    assert approval(with_form(form)).form == form


def test_a_form_that_unfolds_without_bounds_is_refused() -> None:
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(20)}
    (problem,) = problems(with_form({"$ref": "#/$defs/d0", "$defs": {**doubling, "d20": {}}}))
    assert "parts when every $ref is expanded" in problem.message
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(400)}
    (problem,) = problems(with_form({"$ref": "#/$defs/d0", "$defs": {**chain, "d400": {}}}))
    assert problem.code == "invalid_form"


def test_a_form_has_a_size() -> None:
    enum = {"enum": ["x" * 100] * 200}
    assert [problem.code for problem in problems(with_form(enum))] == ["invalid_value"]
    assert [problem.code for problem in problems(with_form({"anyOf": [{}] * 2_000}))] == ["invalid_form"]
    assert approval(with_form({"anyOf": [{}] * 100})).form


def test_a_stored_document_gives_the_same_question() -> None:
    read = read_workflow(text_of("{message: 'Go {{ inputs.x }}?', approvers: [ada], form: {type: object}}"))
    loaded = load_workflow(read.document)
    question, other = read.nodes["a"].approval, loaded.nodes["a"].approval
    assert question is not None
    assert other is not None
    assert (question.approvers, question.form) == (other.approvers, other.form)
    assert other.message.render({"inputs": {"x": 1}}) == "Go 1?"


def test_a_node_reads_what_its_question_shows() -> None:
    text = (
        "  b: {handler: h, next: a}\n"
        + text_of("{message: '{{ nodes.b.output.x }}'}").partition("nodes:\n")[2]
    )
    assert read_workflow(f"workflow_id: w\nnodes:\n{text}").nodes["a"].reads == {"b"}
