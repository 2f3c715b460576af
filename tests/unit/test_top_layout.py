"""A frame of `cograil top`: whatever is long, no column goes missing for it."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from rich.console import Console

from cograil.cli.display.top_layout import render_frame

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def frame(why: str) -> dict[str, Any]:
    waiting = {
        "workflow_id": "a_workflow_with_a_long_name",
        "job_id": "01a1ec32-6d71-7593-9305-0a59221ee7b1",
        "status": "running",
        "created_at": NOW - timedelta(minutes=13),
        "why": {"kind": "approval", "message": why},
    }
    failing = {
        "workflow_id": "w",
        "node_id": "n" * 60,
        "occurrences": 52,
        "last_seen": NOW - timedelta(minutes=5),
        "error_code": "handler_error",
        "error_message": why,
    }
    nobody: dict[str, Any] = dict.fromkeys(("queues", "workers", "orchestrators", "missing_handlers"), ())
    ended = {"minutes": [{"ended": 1}], "ended_per_minute": 1.0}
    return nobody | {
        "at": NOW,
        "jobs": {},
        "truncated": False,
        "throughput": ended,
        "oldest_news_seconds": None,
        "waiting": [waiting],
        "failing": [failing],
    }


@pytest.mark.parametrize("width", [80, 100, 120, 250])
@pytest.mark.parametrize("why", ["short", "waits for somebody " * 12])
def test_every_column_is_there_and_what_is_cut_says_so(width: int, why: str) -> None:
    paper = io.StringIO()
    Console(file=paper, width=width).print(render_frame(frame(why), width, 40))
    lines = paper.getvalue().splitlines()
    (head, waits) = next(pair for pair in pairwise(lines) if "waits longest" in pair[0])
    assert head.split()[-3:] == ["job", "since", "why"]
    assert "13 m" in waits
    assert why.strip() in waits or waits.rstrip().endswith("…")
    (head, fails) = next(pair for pair in pairwise(lines) if "fails," in pair[0])
    assert head.split()[-4:] == ["node", "times", "last", "why"]
    assert "52" in fails
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize(("width", "height"), [(200, 50), (110, 24), (80, 24), (40, 12), (20, 6)])
def test_rows_that_do_not_fit_are_left_out(width: int, height: int) -> None:
    part = frame("waits for somebody " * 12)
    full = part | {"waiting": part["waiting"] * 30, "failing": part["failing"] * 30}
    paper = io.StringIO()
    Console(file=paper, width=width).print(render_frame(full, width, height))
    lines = paper.getvalue().splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
