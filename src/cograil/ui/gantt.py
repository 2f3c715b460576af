"""The timeline of a job as a drawing: a row for each node, a bar for each attempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cograil.model.states import NODE_TERMINAL
from cograil.model.workflow import Workflow
from cograil.store.job_queries import View
from cograil.store.job_snapshot import JobSnapshot

ROW = 26  # the height of a row; places along it are in percent, so that a chart fits every screen
TICKS = 6
LEAST_WIDTH = 0.3
Spread = Mapping[str, Mapping[int, tuple[int, int]]]


@dataclass(slots=True)
class Stretch:
    """An attempt, or a wait: from when to when, and how it ended."""

    first: datetime
    last: datetime | None = None
    status: str = "running"
    title: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch on paper: where it begins and how long it is, in percent of the row."""

    x: float
    width: float
    status: str
    title: str


@dataclass(frozen=True, slots=True)
class Row:
    """A node on paper. `spread` has, for a fan-out, how high each stretch of time is, well and not."""

    node_id: str
    status: str
    bars: list[Bar]
    spread: list[tuple[float, float, float, float]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Chart:
    """All of it."""

    rows: list[Row]
    ticks: list[tuple[float, str]]


def retold(events: Iterable[View]) -> dict[str, list[Stretch]]:
    """The stretches of each node, from its events."""
    found: dict[str, list[Stretch]] = {}
    for event in events:
        name, kind, at = event["node_id"], event["event_type"], event["created_at"]
        if name is None:
            continue
        mine = found.setdefault(name, [])
        if kind == "node_dispatched":
            mine.append(Stretch(at, status="dispatched", title=f"attempt {event['data'].get('attempt', '')}"))
        elif kind in ("node_started", "approval_requested", "child_started"):
            _begin(mine, kind, event)
        elif kind in ("node_completed", "node_failed", "task_failed"):
            _end(mine, "completed" if kind == "node_completed" else "failed", at)
    return found


def _end(mine: list[Stretch], status: str, at: datetime) -> None:
    """What the orchestrator does itself has no length, and still a place."""
    if mine and mine[-1].last is None:
        mine[-1].last, mine[-1].status = at, status
    elif not mine:
        mine.append(Stretch(at, at, status, "at once"))


def _begin(mine: list[Stretch], kind: str, event: View) -> None:
    told = event["data"].get("started_at")
    at = datetime.fromisoformat(told) if isinstance(told, str) else event["created_at"]
    if kind == "node_started" and mine and mine[-1].last is None:
        mine[-1].first, mine[-1].status = at, "running"
    else:
        is_work = kind == "node_started" and "waits_until" not in event["data"]
        mine.append(Stretch(at, status="running" if is_work else "waiting", title="waits"))


def chart_of(
    board: JobSnapshot,
    workflow: Workflow,
    stretches: Mapping[str, list[Stretch]],
    spread: Spread,
    period: tuple[datetime, datetime],
    buckets: int,
) -> Chart:
    """The drawing: a row for each node, with places in percent of its length."""
    first, last = period
    seconds = max((last - first).total_seconds(), 0.001)
    scale = 100 / seconds
    rows = []
    for name in workflow.nodes:
        card = board.nodes.get(name)
        bars = [_bar(one, first, last, scale, card.status if card else "") for one in stretches.get(name, ())]
        heights = _heights(spread.get(name, {}), buckets)
        rows.append(Row(name, card.status if card else "pending", bars, heights))
    ticks = [(round(100 * i / TICKS, 2), _told(timedelta(seconds=seconds * i / TICKS))) for i in range(TICKS)]
    return Chart(rows, ticks)


def _bar(one: Stretch, first: datetime, last: datetime, scale: float, status: str) -> Bar:
    end = one.last or last
    shown = one.status if one.last is not None or status not in NODE_TERMINAL else status
    x = min(100 - LEAST_WIDTH, max(0.0, (one.first - first).total_seconds() * scale))
    width = max(LEAST_WIDTH, (end - one.first).total_seconds() * scale)
    told = f"{one.title}, {shown}, {_told(end - one.first)}".lstrip(", ")
    return Bar(round(x, 2), round(min(width, 100 - x), 2), shown, told)


def _heights(spread: Mapping[int, tuple[int, int]], buckets: int) -> list[tuple[float, float, float, float]]:
    """(x, width, height of those that ended well, height of the others) of each stretch of time."""
    most = max((sum(pair) for pair in spread.values()), default=0)
    width = 100 / buckets
    high = ROW - 8
    return [
        (
            round(place * width, 2),
            round(width, 2),
            round(high * a / most, 1),
            round(high * b / most, 1),
        )
        for place, (a, b) in sorted(spread.items())
    ]


def _told(length: timedelta) -> str:
    seconds = length.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
