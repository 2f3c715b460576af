"""How a job stood when one of its events had just happened."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cograil.definitions import read_workflow
from cograil.ui.graph_model import board_at, graph_of, state_of
from cograil.ui.pages.node_page import histogram

WORKFLOW = read_workflow("""
workflow_id: past
nodes:
  fetch: {handler: echo, next: spread}
  spread: {type: fan_out, source: [1, 2, 3], task: {handler: echo}, next: gather}
  gather: {type: fan_in, next: nap}
  nap: {type: wait, wait: {seconds: 5}, next: ask}
  ask: {type: approval, approval: {message: Well?}, next: pay}
  pay: {handler: echo}
""")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def told(*events: tuple[str, str | None, dict[str, Any]]) -> list[dict[str, Any]]:
    """Events, a second apart."""
    return [
        {
            "seq": n,
            "event_type": kind,
            "node_id": node,
            "data": data,
            "created_at": BEGIN + timedelta(seconds=n),
        }
        for n, (kind, node, data) in enumerate(events, 1)
    ]


def at(seconds: float) -> str:
    return (BEGIN + timedelta(seconds=seconds)).isoformat()


FETCHED: tuple[tuple[str, str | None, dict[str, Any]], ...] = (
    ("job_created", None, {}),
    ("job_started", None, {}),
    ("node_ready", "fetch", {}),
    ("node_dispatched", "fetch", {"attempt": 1}),
)


def statuses(events: list[dict[str, Any]], seq: int, **children: dict[str, int]) -> dict[str, str]:
    board = board_at(events, children, seq, WORKFLOW)
    return {name: card.status for name, card in board.nodes.items() if card.status != "pending"}


def test_a_task_that_a_worker_had_taken_ran_though_that_was_told_later() -> None:
    started = ("node_started", "fetch", {"attempt": 1, "started_at": at(4.5)})
    events = told(*FETCHED, ("warning", None, {}), started, ("node_completed", "fetch", {}))
    assert statuses(events, 4) == {"fetch": "dispatched"}
    assert statuses(events, 5) == {"fetch": "running"}
    assert statuses(events, 7) == {"fetch": "completed"}


def test_a_start_of_another_attempt_says_nothing_of_this_one() -> None:
    started = ("node_started", "fetch", {"attempt": 2, "started_at": at(4.5)})
    assert statuses(told(*FETCHED, ("warning", None, {}), started), 5) == {"fetch": "dispatched"}


def test_a_retry_makes_ready_and_opens_what_it_names() -> None:
    events = told(
        *FETCHED,
        ("node_failed", "fetch", {"error": {"message": "it broke"}}),
        ("node_skipped", "spread", {"reason": "upstream_failed"}),
        ("node_retry", "fetch", {"reopened": ["spread"], "resumed": [], "error": None}),
    )
    assert statuses(events, 6) == {"fetch": "failed", "spread": "skipped"}
    assert board_at(events, {}, 6, WORKFLOW).nodes["fetch"].error_message == "it broke"
    assert statuses(events, 7) == {"fetch": "ready"}


def test_waits_and_questions_wait() -> None:
    events = told(
        *FETCHED,
        ("node_started", "nap", {"waits_until": at(9)}),
        ("approval_requested", "ask", {"message": "Well?"}),
    )
    assert statuses(events, 6) == {"fetch": "dispatched", "nap": "waiting", "ask": "waiting"}


def test_children_are_counted_by_their_last_events() -> None:
    events = told(*FETCHED, ("node_completed", "fetch", {}), ("node_started", "spread", {"children": 3}))
    board = board_at(events, {"spread": {"node_completed": 1, "node_dispatched": 1}}, 6, WORKFLOW)
    assert board.nodes["spread"].children == {"completed": 1, "dispatched": 1, "pending": 1}
    state = state_of(board, WORKFLOW)
    assert state["counts"] == {"pending": 5, "dispatched": 1, "completed": 2}


def test_nodes_that_had_not_ended_are_cancelled_with_their_job() -> None:
    events = told(*FETCHED, ("job_cancelled", None, {"by": "ada"}))
    board = board_at(events, {}, 5, WORKFLOW)
    assert (board.status, {card.status for card in board.nodes.values()}) == ("cancelled", {"cancelled"})
    assert state_of(board, WORKFLOW)["is_over"] is True


def test_the_graph_has_every_edge_once_with_its_branches() -> None:
    graph = graph_of(WORKFLOW)
    assert [(edge["from"], edge["to"]) for edge in graph["edges"]] == [
        ("fetch", "spread"),
        ("spread", "gather"),
        ("gather", "nap"),
        ("nap", "ask"),
        ("ask", "pay"),
    ]
    assert [node["type"] for node in graph["nodes"]] == [
        "task",
        "fan_out",
        "fan_in",
        "wait",
        "approval",
        "task",
    ]


@pytest.mark.parametrize(
    "seconds", [[], [0.0], [2.0, 2.0], [0.0, 0.0, 7200.0], [0.004, 0.008, 5.1], [1.0, 1.5, 2.0]]
)
def test_a_histogram_has_every_duration_once_also_where_one_is_far_longer(seconds: list[float]) -> None:
    bars = histogram(seconds)
    assert sum(int(bar["title"].split(" took ")[0]) for bar in bars) == len(seconds)
    assert sum(bar["height"] > 0 for bar in bars) == len(set(seconds))
