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
DOCUMENT = read_workflow(EXAMPLE).document

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
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 99999) | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in inner:
        found += places(member, (*path, key))
    return found


def changed(path: tuple[Any, ...], value: Any) -> Any:
    document = json.loads(json.dumps(DOCUMENT))
    target = document
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return document


@settings(deadline=None)
@given(st.sampled_from(places(DOCUMENT)), values)
def test_any_value_at_any_place_is_a_workflow_or_a_list_of_problems(
    path: tuple[Any, ...], value: Any
) -> None:
    document = changed(path, value)
    with contextlib.suppress(InvalidWorkflow):
        assert load_workflow(document).nodes
    with contextlib.suppress(InvalidWorkflow):
        assert read_workflow(json.dumps(document)).document == document


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, len(EXAMPLE)),
    st.integers(0, 20),
    st.text(max_size=8) | st.sampled_from(list("&*!|>%@`{}[]:?-#")),
)
def test_any_change_of_the_text_is_a_workflow_or_a_list_of_problems(at: int, cut: int, put: str) -> None:
    text = EXAMPLE[:at] + put + EXAMPLE[at + cut :]
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
    ],
    ids=["unknown targets", "unknown references", "unknown keys", "cycles", "repetitions", "templates"],
)
def test_a_file_with_as_many_mistakes_as_fit_is_answered_in_seconds(text: str) -> None:
    begun = time.perf_counter()
    with pytest.raises(InvalidWorkflow) as caught:
        read_workflow(text)
    assert len(caught.value.problems) == 101
    assert time.perf_counter() - begun < 20  # 1 to 3 s on an idle machine
