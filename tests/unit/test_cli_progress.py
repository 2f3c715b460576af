"""The picture of a running job: one line for each node, whatever it is and however many children it has."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from cograil.cli.display.job_progress import draw_job
from cograil.definitions import read_workflow
from cograil.store.job_progress_queries import JobProgressSnapshot, NodeProgressSnapshot

NOW = datetime(2026, 1, 31, 9, tzinfo=UTC)

WORKFLOW = read_workflow("""
workflow_id: flow
nodes:
  START: {type: start, next: first}
  first: {handler: echo, next: split}
  split: {type: fan_out, source: [1], task: {handler: echo}, next: last}
  last: {handler: echo, next: END}
  END: {type: end}
""")


def picture(
    width: int = 80, height: int = 30, status: str = "running", **nodes: NodeProgressSnapshot
) -> list[str]:
    return draw(WORKFLOW, width, height, status, nodes)


def draw(
    workflow: Any, width: int, height: int, status: str, nodes: dict[str, NodeProgressSnapshot]
) -> list[str]:
    seen = JobProgressSnapshot("job-id", status, NOW - timedelta(seconds=5), NOW, None, NOW, nodes)
    screen = io.StringIO()
    Console(file=screen, width=width, highlight=False).print(draw_job(workflow, seen, NOW, width, height))
    return [line.rstrip() for line in screen.getvalue().splitlines()]


def test_a_job_is_a_headline_and_a_line_for_each_node_that_does_something() -> None:
    lines = picture(first=NodeProgressSnapshot("first", "completed", 1, NOW - timedelta(seconds=1), NOW))
    assert "flow  job-id  running 5.00 s" in lines[0]
    assert [line.split()[1] for line in lines[1:]] == ["first", "split", "last"]
    assert lines[1].endswith("1.00 s")


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (
            NodeProgressSnapshot(
                "first", "ready", 1, not_before=NOW + timedelta(seconds=2), error_message="no luck"
            ),
            "attempt 2 in 2.00 s: no luck",
        ),
        (NodeProgressSnapshot("first", "waiting", not_before=NOW + timedelta(seconds=90)), "1 m 30 s left"),
        (
            NodeProgressSnapshot("first", "failed", 3, error_code="boom", error_message="it broke"),
            "it broke [boom]",
        ),
        (NodeProgressSnapshot("first", "skipped", skip_reason="branch"), "not taken"),
        (NodeProgressSnapshot("first", "skipped", skip_reason="upstream_failed"), "a dependency failed"),
        (NodeProgressSnapshot("first", "skipped", skip_reason="when"), "its `when` condition is false"),
        (NodeProgressSnapshot("first", "dispatched", 2), "queued attempt 2"),
        (NodeProgressSnapshot("first", "running", 1, message="half way"), "half way"),
        (NodeProgressSnapshot("first", "completed", 1, taken_branch="large"), "took large"),
        (NodeProgressSnapshot("first", "running", 1, current=3, out_of=4), "3/4"),
        (NodeProgressSnapshot("first", "completed", 1, current=3, out_of=4), "4/4"),
    ],
)
def test_a_node_says_what_it_is_at(node: NodeProgressSnapshot, words: str) -> None:
    assert words in picture(first=node)[1]


def test_a_node_that_asks_says_how_to_answer_and_not_how_long_it_waits() -> None:
    workflow = read_workflow("workflow_id: w\nnodes:\n  ask: {type: approval, approval: {message: m}}\n")
    node = NodeProgressSnapshot("ask", "waiting", not_before=NOW + timedelta(seconds=90))
    assert "cograil approve" in draw(workflow, 80, 30, "running", {"ask": node})[1]


def test_ten_thousand_children_are_one_line_with_a_bar() -> None:
    node = NodeProgressSnapshot("split", "running", total=10_000, ended=2_500, failed=1, backing_off=7)
    lines = picture(split=node)
    assert len(lines) == 4
    assert "━━━━━" in lines[2]
    assert "2500/10000" in lines[2]
    assert "7 wait for a retry" in lines[2]


def test_a_fan_out_over_nothing_has_a_full_bar_or_none_but_no_error() -> None:
    assert "0/0" in picture(split=NodeProgressSnapshot("split", "completed", total=0))[2]


def test_no_line_is_wider_than_the_terminal() -> None:
    node = NodeProgressSnapshot("first", "failed", 3, error_code="boom", error_message="x" * 500 + "\x1b[2J")
    split = NodeProgressSnapshot("split", "running", total=10_000, ended=9_999)
    for width in (60, 80, 120):
        lines = picture(width=width, first=node, split=split)
        assert len(lines) == 4
        assert all(len(line) <= width for line in lines)
        assert "\x1b" not in "".join(lines)


def test_more_nodes_than_lines_are_folded_and_what_moves_is_kept() -> None:
    names = [f"n{number}" for number in range(50)]
    chain = "\n".join(f"  {name}: {{handler: echo, next: n{i + 1}}}" for i, name in enumerate(names[:-1]))
    workflow = read_workflow(f"workflow_id: long\nnodes:\n{chain}\n  n49: {{handler: echo}}\n")
    nodes = {name: NodeProgressSnapshot(name, "completed", 1) for name in names[:20]}
    nodes["n20"] = NodeProgressSnapshot("n20", "running", 1)
    lines = draw(workflow, 80, 15, "running", nodes)
    assert len(lines) <= 15
    assert any("n20" in line for line in lines)
    assert lines[-1].endswith("pending")
    assert "completed" in lines[-1]
