"""Whatever a file holds: a workflow or a list of problems, never another error, and never for long."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cograil.definitions import load_workflow, read_workflow
from cograil.errors import InvalidWorkflow, Problem

EXAMPLE = (Path(__file__).parents[2] / "examples" / "legacy.yaml").read_text(encoding="utf-8")
WIDE_EXAMPLE = """\
workflow_id: wide
fail_fast: true
limits: {concurrency: 2, rate: 10/s, key: "{{ inputs.file_size }}"}
nodes:
  ask:
    type: approval
    when: "{{ inputs.file_size > 1 }}"
    approval:
      message: "Go on with {{ inputs.file_size }}?"
      approvers: [ada]
      form:
        type: object
        properties: {note: {$ref: "#/$defs/note"}, kind: {enum: [a, b]}}
        patternProperties: {"^x": {items: {anyOf: [{type: string, pattern: "^a"}, {multipleOf: 2}]}}}
        required: [note]
        $defs: {note: {type: string, maxLength: 5}}
      timeout_seconds: 5
      on_timeout: fail
    next: route
  route:
    type: subworkflow
    subworkflow: {workflow_id: other, version: 1, inputs: {a: ["{{ nodes.ask.output.by }}"]}}
    next: call
  call:
    type: http
    limits: {rate: {count: 1, per_seconds: 2}, key: a}
    http:
      method: POST
      url: "https://example.com/{{ inputs.file_size }}"
      headers: {Accept: text/plain}
      body: {a: [1, "{{ nodes.route.output }}"]}
      expect_status: [200, 4xx]
"""
EXAMPLES = [EXAMPLE, WIDE_EXAMPLE]
DOCUMENTS = [read_workflow(text).document for text in EXAMPLES]

words = st.sampled_from(
    [
        "",
        "a",
        "START",
        "END",
        "route",
        "true",
        "{{ inputs.file_size }}",
        "{{ nodes.route.output }}",
        "{{",
        "< 5",
        "__1",
        "#",
        "#/$defs/note",
        "$ref",
        "$id",
        "http://",
        "http://[",
        "1/s",
        "2xx",
        "a{99999999999999999999}",
        "(" * 2_000,
    ]
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 99999)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    paths = [path] if path else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in inner:
        paths += places(member, (*path, key))
    return paths


PLACES = [(number, path) for number, document in enumerate(DOCUMENTS) for path in places(document)]


def changed(place: tuple[int, tuple[Any, ...]], value: Any) -> Any:
    number, path = place
    document = json.loads(json.dumps(DOCUMENTS[number]))
    target = document
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return document


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(PLACES), values)
def test_any_value_at_any_place_is_a_workflow_or_a_list_of_problems(
    place: tuple[int, tuple[Any, ...]], value: Any
) -> None:
    document = changed(place, value)
    with contextlib.suppress(InvalidWorkflow):
        assert load_workflow(document).nodes
    with contextlib.suppress(InvalidWorkflow):
        assert read_workflow(json.dumps(document)).document == document


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(EXAMPLES),
    st.integers(0, len(WIDE_EXAMPLE)),
    st.integers(0, 20),
    st.text(max_size=8) | st.sampled_from(list("&*!|>%@`{}[]:?-#")),
)
def test_any_change_of_the_text_is_a_workflow_or_a_list_of_problems(
    example: str, at: int, cut: int, put: str
) -> None:
    text = example[:at] + put + example[at + cut :]
    problems: tuple[Problem, ...] = ()
    try:
        read_workflow(text)
    except InvalidWorkflow as error:
        problems = error.problems
    assert all(problem.line and problem.column for problem in problems)


def many(line: str, count: int) -> str:
    return "workflow_id: w\nnodes:\n" + "".join(line.format(i) for i in range(count))


@pytest.mark.parametrize(
    "text",
    [
        many("  node_number_{0}: {{handler: h, next: nodes_number_{0}}}\n", 1_000),
        many("  n{0}: {{handler: h, params: {{x: '{{{{ nodes.m{0}.output }}}}'}}}}\n", 1_000),
        many("  n{0}: {{handler: h, nxt: n0, hendler: h, quue: q}}\n", 1_000),
        "workflow_id: w\nnodes:\n"
        + "".join(
            f"  a{i}: {{handler: h, next: b{i}}}\n  b{i}: {{handler: h, next: a{i}}}\n" for i in range(500)
        ),
        "workflow_id: w\nnodes:\n  a: {handler: h, next: [" + "x, " * 20_000 + "]}\n",
        "workflow_id: w\nnodes:\n  a: {handler: h, params: {x: [" + "'{{', " * 20_000 + "]}}\n",
        many("  n{0}: {{type: approval, approval: {{message: m, form: {{type: x}}}}}}\n", 1_000),
        "workflow_id: w\nnodes:\n  a: {type: approval, approval: {message: m, form: {allOf: ["
        + "{type: x}, " * 1_000
        + "]}}}\n",
    ],
    ids=[
        "unknown targets",
        "unknown references",
        "unknown keys",
        "cycles",
        "repetitions",
        "templates",
        "forms",
        "a large form",
    ],
)
def test_a_file_with_as_many_mistakes_as_fit_is_answered_in_seconds(text: str) -> None:
    begun = time.process_time()
    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow(text)
    assert len(caught.value.problems) == 101
    assert time.process_time() - begun < 20  # 1 to 3 s on an idle machine


def test_a_file_with_as_many_forms_as_fit_is_answered_in_seconds() -> None:
    form = f"{{allOf: [{'{}, ' * 4_500}]}}"
    begun = time.process_time()
    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow(
            many("  n{0}: {{type: approval, approval: {{message: m, form: FORM}}}}\n", 10).replace(
                "FORM", form
            )
        )
    assert [problem.code for problem in caught.value.problems] == ["invalid_form"]
    assert time.process_time() - begun < 20
