"""Conditions of branches: every operator on every type it knows, and errors for all others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cograil.definitions.conditions import compile_condition, compile_condition_field, compile_match
from cograil.definitions.expressions import TemplateError
from cograil.definitions.templates import compile_template
from cograil.model.workflow import RenderError, Template

SCOPE: dict[str, Any] = {
    "inputs": {"limit": 100, "name": "tile_01.tif", "on": True, "off": False, "nothing": None},
    "nodes": {
        "load": {"output": {"size": 100, "kind": "raster", "tags": ["a", 1]}, "status": "completed"},
        "skipped": {"status": "skipped"},
    },
    "output": {"size": 50, "kind": "vector", "deep": {"er": [5, 6]}, "size_mb": 7.5, "flag": True},
}


def holds(text: str, subject: Any = ..., scope: dict[str, Any] = SCOPE) -> Any:
    if subject is ...:
        return compile_condition(text).render(scope)
    about = compile_condition_field("output.subject")
    return compile_condition(text, subject=about).render({"output": {"subject": subject}})


def failure(text: str, subject: Any = ...) -> RenderError:
    with pytest.raises(RenderError) as caught:
        holds(text, subject)
    return caught.value


def refusal(text: str) -> TemplateError:
    with pytest.raises(TemplateError) as caught:
        compile_condition(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("output.size == 50", True),
        ("output.size != 50", False),
        ("output.size < 50", False),
        ("output.size < 51", True),
        ("output.size <= 50", True),
        ("output.size <= 49", False),
        ("output.size > 49.5", True),
        ("output.size > 50", False),
        ("output.size >= 50", True),
        ("output.size >= 51", False),
        ("output.size<=50", True),
        ("output.size>=51", False),
        ("nodes.load.output.size <= inputs.limit", True),
        ("nodes.load.output.size >= inputs.limit", True),
        ("'a' < 'b'", True),
        ("'b' <= 'a'", False),
        ("output.kind in ['raster', 'vector']", True),
        ("output.kind in ['raster']", False),
        ("output.kind not_in ['raster']", True),
        ("output.kind not_in ['vector']", False),
        ("output.kind not in ['vector']", False),
        ("not output.kind in ['raster']", True),
        ("'if' in inputs.name", True),
        ("'size' in output", True),
        ("nodes.load.output.tags contains 'a'", True),
        ("nodes.load.output.tags contains 'b'", False),
        ("nodes.load.output.tags contains 1.0", True),
        ("nodes.load.output.tags contains true", False),
        ("inputs.name contains 'tile'", True),
        ("inputs.name contains 'in'", False),
        ("output contains 'kind'", True),
        ("not output contains 'nope'", True),
        ("inputs.name starts_with 'tile_'", True),
        ("inputs.name starts_with '.tif'", False),
        ("inputs.name ends_with '.tif'", True),
        ("inputs.name ends_with 'tile_'", False),
        ("is_null(inputs.nothing)", True),
        ("is_null(inputs.name)", False),
        ("is_null(inputs.gone.deeper)", True),
        ("is_null(nodes.skipped.output)", True),
        ("is_not_null(inputs.name)", True),
        ("is_not_null(inputs.nothing)", False),
        ("is_not_null( inputs.gone )", False),
        ("not is_null(inputs.gone)", False),
        ("is_null(inputs.gone) or inputs.gone > 5", True),
        ("is_not_null(inputs.gone) and inputs.gone > 5", False),
        ("true", True),
        ("False", False),
        ("inputs.on", True),
        ("not inputs.on", False),
        ("inputs.off or inputs.on and inputs.off", False),
        ("(inputs.on or inputs.off) and not inputs.off", True),
        ("inputs.on or inputs.off and inputs.off", True),
        ("not inputs.off == true", True),
        ("output.deep.er.1 == 6 and output.deep['er'][0] == 5", True),
        ("nodes.load.status == 'completed'", True),
        ("nodes.skipped.status != 'completed'", True),
        ("nodes.skipped.output.x|default(0) == 0", True),
        ("output.size + 1 > 50", True),
        ("-1 < 0", True),
        ("{{ output.size < 100 }}", True),
        ("{{ output.size }} < 100", True),
        ("{{ inputs.name }} starts_with 'x' or {{ output.flag }}", True),
        (" {{- output.size > 100 -}}\n", False),
        ("output.kind == \"vector\"", True),
        ("output.kind == 'and or not'", False),
        ("upstream.output.size == 50", True),
        ("inputs.nothing == null", True),
        ("true if output.size == 50 else false", True),
    ],
)  # fmt: skip
def test_a_condition_holds_or_not(text: str, expected: bool) -> None:
    assert holds(text) is expected


@pytest.mark.parametrize(
    ("text", "subject", "expected"),
    [
        ("< 100", 99, True),
        ("< 100", 100, False),
        ("<= 100", 100, True),
        ("<=100", 101, False),
        (">= 100", 100, True),
        (">= 100", 99, False),
        ("> 100", 100, False),
        ("== 'raster'", "raster", True),
        ("!= 'raster'", "raster", False),
        ("== true", True, True),
        ("== true", 1, False),
        ("in ['a', 'b']", "b", True),
        ("not_in ['a', 'b']", "b", False),
        ("not in ['a', 'b']", "c", True),
        ("contains 'x'", ["x"], True),
        ("contains 'x'", "y", False),
        ("not contains 'x'", "y", True),
        ("starts_with 'a'", "abc", True),
        ("ends_with 'a'", "abc", False),
        ("is_null", None, True),
        ("is_null", 0, False),
        ("is_not_null", 0, True),
        (">= 10 and < 20", 15, True),
        (">= 10 and < 20", 20, False),
        ("< 10 or > 20", 15, False),
        ("is_null or == ''", "", True),
        ("(< 10)", 5, True),
        ("{{ < 10 }}", 5, True),
        ("output.subject == 5", 5, True),
    ],
)
def test_an_operator_with_nothing_before_it_looks_at_the_condition_field(
    text: str, subject: Any, expected: bool
) -> None:
    assert holds(text, subject) is expected


def test_a_condition_field_that_is_missing_is_null_for_is_null_and_an_error_for_the_others() -> None:
    subject = compile_condition_field("gone")

    assert compile_condition("is_null", subject=subject).render(SCOPE) is True
    with pytest.raises(RenderError, match=r"output\.gone is not defined"):
        compile_condition("< 5", subject=subject).render(SCOPE)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        ("5", 5, False),
        (None, None, True),
        (None, False, False),
        (None, "", False),
        ([1, [2.0]], [1.0, [2]], True),
        ([1], [True], False),
        ([1], [1, 2], False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"b": 1}, False),
        ([], {}, False),
    ],
)
def test_equality_is_that_of_json(left: Any, right: Any, expected: bool) -> None:
    scope = {"inputs": {"left": left, "right": right}}

    assert holds("inputs.left == inputs.right", scope=scope) is expected
    assert holds("inputs.right == inputs.left", scope=scope) is expected
    assert holds("inputs.left != inputs.right", scope=scope) is not expected
    assert holds("inputs.left in [inputs.right]", scope=scope) is expected


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False), st.integers())
def test_the_orders_of_numbers_agree(left: float, right: int) -> None:
    scope = {"inputs": {"a": left, "b": right}}
    less, more, same = (holds(f"inputs.a {op} inputs.b", scope=scope) for op in ("<", ">", "=="))

    assert [less, more, same].count(True) == 1
    assert holds("inputs.a <= inputs.b", scope=scope) is (less or same)
    assert holds("inputs.a >= inputs.b", scope=scope) is (more or same)


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("< 5", None),
        (">= 5", "5"),
        ("< 5", True),
        ("> []", []),
        ("< 'a'", 1),
        ("contains 5", "five"),
        ("contains 'a'", None),
        ("contains 'a'", 5),
        ("contains 5", {"5": 1}),
        ("in 5", 5),
        ("in 'abc'", None),
        ("starts_with 'a'", None),
        ("starts_with 1", "a"),
        ("ends_with 'a'", ["a"]),
    ],
)
def test_types_that_do_not_fit_are_an_error_and_not_false(text: str, subject: Any) -> None:
    assert failure(text, subject).code == "condition_type"


@pytest.mark.parametrize(
    "text",
    [
        "output.size",
        "output.kind",
        "inputs.nothing",
        "output.deep",
        "1",
        "output.size and true",
        "true and output.size",
        "false or output.kind",
        "not output.size",
        "true if output.size else false",
        "{{ output.kind }}",
    ],
)
def test_a_condition_must_be_true_or_false(text: str) -> None:
    assert failure(text).code == "condition_not_boolean"


@pytest.mark.parametrize(
    "text", ["inputs.gone", "inputs.gone == null", "output.a.b < 5", "inputs.nothing.x == 1"]
)
def test_a_missing_field_fails_the_condition(text: str) -> None:
    assert failure(text).code == "template_undefined"


def test_operands_that_do_not_decide_are_not_evaluated() -> None:
    assert holds("true or inputs.gone") is True
    assert holds("false and inputs.gone") is False
    assert holds("true or false or inputs.gone") is True


def test_not_a_number_has_no_order() -> None:
    assert failure("< 5", float("nan")).code == "invalid_number"


@pytest.mark.timeout(5)
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "template_syntax"),
        ("< 100", "template_syntax"),
        ("is_null", "template_syntax"),
        ("output.size <", "template_syntax"),
        ("output.size = 5", "template_syntax"),
        ("output.size === 5", "template_syntax"),
        ("output.size < 5 < 6", "template_syntax"),
        ("output.a && output.b", "template_syntax"),
        ("output.kind == 'x", "template_syntax"),
        ("(output.flag", "template_syntax"),
        ("output.flag)", "template_syntax"),
        ("{{ output.flag", "template_syntax"),
        ("output.flag }}", "template_syntax"),
        ("and", "template_syntax"),
        ("size < 100", "template_undefined"),
        ("nodes.load.size < 100", "template_undefined"),
        ("env.HOME == 'x'", "template_forbidden"),
        ("secrets.K == 'x'", "secret_not_allowed_here"),
        ("output.size * 2 > 5", "template_forbidden"),
        ("len(output.size) > 5", "template_forbidden"),
        ("{% if true %}", "template_forbidden"),
        ("nodes[inputs.name].output", "template_forbidden"),
        ("(" * 5000 + "true" + ")" * 5000, "template_too_complex"),
        ("true" + " and true" * 5000, "template_too_complex"),
        ("not " * 1000 + "true", "template_too_complex"),
    ],
)
def test_a_broken_or_forbidden_condition_is_refused_when_it_is_compiled(text: str, code: str) -> None:
    assert refusal(text).code == code


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ nodes.load.output.size }}", 100),
        ("{{ inputs.limit + 1 }}", 101),
        ("nodes.load.output.size", 100),
        ("inputs.limit", 100),
        ("output.size", 50),
        ("upstream.output.size", 50),
        ("size", 50),
        ("size_mb", 7.5),
        (" deep.er.1 ", 6),
        ("deep['er'][0]", 5),
        ("output", SCOPE["output"]),
    ],
)
def test_a_condition_field_is_a_template_or_a_path_into_the_output_before(text: str, expected: Any) -> None:
    assert compile_condition_field(text).render(SCOPE) == expected


def test_a_path_of_several_fields_is_followed_to_its_end() -> None:
    assert holds("output.deep.er contains 6")
    assert not compile_condition("== 5", subject=compile_condition_field("deep.er.1")).render(SCOPE)


@pytest.mark.parametrize("text", ["", "size + 1", "a b", "'size'", "size < 100", "a..b", "size()"])
def test_a_condition_field_that_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(TemplateError):
        compile_condition_field(text)


def test_a_condition_says_what_it_reads_and_what_its_subject_reads() -> None:
    subject = compile_condition_field("{{ nodes.load.output.size }}")
    condition: Template = compile_condition(
        "< 5 or is_null(nodes.other.output) or inputs.on", subject=subject
    )

    assert condition.references == {"load", "other"}
    assert not condition.uses_output
    assert compile_condition("inputs.on").input_names == {"on"}
    assert compile_condition("< 5", subject=compile_condition_field("size")).uses_output


@pytest.mark.parametrize(
    ("value", "key", "expected"),
    [
        (True, True, True),
        (False, True, False),
        (False, False, True),
        (True, "true", False),
        ("true", True, False),
        ("light", "light", True),
        ("light", "heavy", False),
        (1, 1, True),
        (1.0, 1, True),
        (1, "1", False),
        (1, True, False),
        (0, False, False),
        (None, "null", False),
    ],
)
def test_a_branch_named_by_a_value_is_taken_when_the_subject_equals_it(
    value: Any, key: Any, expected: bool
) -> None:
    match = compile_match(compile_template("{{ output.x }}"), key)

    assert match.render({"output": {"x": value}}) is expected
    assert match.uses_output
