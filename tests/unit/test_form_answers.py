"""Patterns and answers of forms: linear time, a bounded amount of work, and clear refusals."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from cograil.definitions import load_workflow, read_workflow
from cograil.definitions.form_answers import MAX_ANSWER_PROBLEMS, find_misfits
from cograil.definitions.linear_patterns import PatternError, compile_pattern
from cograil.errors import InvalidWorkflow


def found(form: Any, data: Any) -> list[tuple[str, str]]:
    return [(problem.code, problem.pointer) for problem in find_misfits(form, data)]


FORM = """\
workflow_id: w
nodes:
  q:
    type: approval
    approval:
      message: m
      form:
        properties:
          note: {pattern: '%s'}
"""


@pytest.mark.parametrize("pattern", ["(?=a)b", "(?<!a)b", r"(a)\1", "a{2000}", "[", "(" * 3000])
def test_a_pattern_that_re2_does_not_know_is_refused_at_its_place(pattern: str) -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow(FORM % pattern)
    (problem,) = caught.value.problems
    assert (problem.code, problem.line, problem.column) == ("invalid_form", 9, 27)
    assert "cannot be used" in problem.message


def test_the_message_says_what_kind_of_pattern_is_wanted() -> None:
    with pytest.raises(PatternError, match="without lookaround and backreferences"):
        compile_pattern("(?=a)")


def test_a_stored_workflow_with_such_a_pattern_can_still_be_read() -> None:
    document = {
        "workflow_id": "w",
        "nodes": {"q": {"type": "approval", "approval": {"message": "m", "form": {"pattern": "(?=a)b"}}}},
    }
    form = load_workflow(document).nodes["q"].approval
    assert form is not None
    assert form.form is not None
    (problem,) = find_misfits(form.form, "ab")
    assert (problem.code, "publish the workflow" in problem.message) == ("invalid_form", True)


@pytest.mark.parametrize("keyword", ["unevaluatedProperties", "unevaluatedItems"])
def test_keywords_that_need_another_engine_are_refused(keyword: str) -> None:
    form = json.dumps({"message": "m", "form": {keyword: False}})
    with pytest.raises(InvalidWorkflow, match="not supported"):
        read_workflow(f"{{workflow_id: w, nodes: {{q: {{type: approval, approval: {form}}}}}}}")


@pytest.mark.parametrize(
    ("form", "data"),
    [
        ({"pattern": "^(a|a)*$"}, "a" * 200_000 + "!"),
        ({"patternProperties": {"^(a+)+$": True}, "additionalProperties": False}, {"a" * 60 + "!": 1}),
        ({"pattern": "(a|b)*a(a|b){400}$"}, "ab" * 100_000),
        ({"uniqueItems": True}, [{"x": [index]} for index in range(20_000)] + [{"x": [1.0]}]),
        ({"items": {"allOf": [{"type": "object"}] * 500}}, [1] * 10_000),
        ({"items": {"enum": [[index] * 50 for index in range(200)]}}, [[0] * 50] * 800),
        ({"contains": {"const": {"x": list(range(1000))}}}, [{"x": list(range(999))}] * 60),
    ],
)
def test_hostile_answers_are_refused_soon(form: Any, data: Any) -> None:
    began_at = time.thread_time()
    assert find_misfits(form, data)
    assert time.thread_time() - began_at < 5


def test_too_much_work_is_said_so() -> None:
    form = {"items": {"allOf": [{"type": "integer"}] * 500}}
    assert found(form, [1] * 10_000) == [("form_too_costly", "/data")]


def test_the_number_of_problems_is_limited() -> None:
    assert len(find_misfits({"items": {"type": "string"}}, [1] * 1000)) == MAX_ANSWER_PROBLEMS


@pytest.mark.parametrize(
    ("form", "data", "is_fit"),
    [
        ({"pattern": "b"}, "abc", True),
        ({"pattern": "^b"}, "abc", False),
        ({"pattern": "^\\d{3}$"}, "123\n", False),
        ({"pattern": "^\\u00e9+$"}, "éé", True),
        ({"pattern": "^\\\\u$"}, "\\u", True),
        ({"pattern": "x"}, 5, True),
        ({"uniqueItems": True}, [1, 1.0], False),
        ({"uniqueItems": True}, [1, True, "1", None, [1], [True], {"a": 1}], True),
        ({"uniqueItems": False}, [1, 1], True),
        (
            {"properties": {"a": {}}, "patternProperties": {"^x": {"type": "integer"}}},
            {"a": 1, "xy": 2},
            True,
        ),
        ({"patternProperties": {"^x": {"type": "integer"}}}, {"xy": "2"}, False),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {"xy": 1, "z": 1}, False),
        ({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}, {"a": 1, "b": "x"}, True),
        ({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}, {"b": 1}, False),
        ({"additionalProperties": False}, [1], True),
        ({"$defs": {"n": {"minimum": 3}}, "items": {"$ref": "#/$defs/n"}}, [3, 2], False),
    ],
)
def test_keywords_mean_what_json_schema_says(form: Any, data: Any, is_fit: bool) -> None:
    assert (find_misfits(form, data) == []) is is_fit


def test_a_problem_has_its_place() -> None:
    form = {"properties": {"list": {"items": {"patternProperties": {"^a": {"type": "string"}}}}}}
    assert found(form, {"list": [{}, {"a/b": 1}]}) == [("invalid_value", "/data/list/1/a~1b")]
