"""The Gantt chart of a job: a row for each node, a bar for each attempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cograil.model.states import NODE_TERMINAL
from cograil.model.workflow import Workflow
from cograil.store.job_queries import View
from cograil.store.job_snapshot import JobSnapshot

ROW = 26  # the height of a row; horizontal positions are in percent, so that a chart fits every screen
TICKS = 6
MIN_WIDTH = 0.3
Spread = Mapping[str, Mapping[int, tuple[int, int]]]


@dataclass(slots=True)
class TimeSpan:
    """The time span of an attempt or a wait, and its result."""

    first: datetime
    last: datetime | None = None
    status: str = "running"
    title: str = ""


@dataclass(frozen=True, slots=True)
class GanttBar:
    """A bar: position and width, in percent of the row."""

    x: float
    width: float
    status: str
    title: str


@dataclass(frozen=True, slots=True)
class GanttRow:
    """The row of a node. `spread` has the bars of the ended children of a fan-out."""

    node_id: str
    status: str
    bars: list[GanttBar]
    spread: list[tuple[float, float, float, float]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class GanttChart:
    """The rows, and the ticks of the time axis."""

    rows: list[GanttRow]
    ticks: list[tuple[float, str]]


def time_spans(events: Iterable[View]) -> dict[str, list[TimeSpan]]:
    """Return the time spans of each node, from its events."""
    stretches: dict[str, list[TimeSpan]] = {}
    for event in events:
        name, kind, at = event["node_id"], event["event_type"], event["created_at"]
        if name is None:
            continue
        node_stretches = stretches.setdefault(name, [])
        if kind == "node_dispatched":
            node_stretches.append(
                TimeSpan(at, status="dispatched", title=f"attempt {event['data'].get('attempt', '')}")
            )
        elif kind in ("node_started", "approval_requested", "child_started"):
            _begin(node_stretches, kind, event)
        elif kind in ("node_completed", "node_failed", "task_failed"):
            _end(node_stretches, "completed" if kind == "node_completed" else "failed", at)
    return stretches


def _end(stretches: list[TimeSpan], status: str, at: datetime) -> None:
    """End the last span. A node that the orchestrator runs itself has a span of length zero."""
    if stretches and stretches[-1].last is None:
        stretches[-1].last, stretches[-1].status = at, status
    elif not stretches:
        stretches.append(TimeSpan(at, at, status, "at once"))


def _begin(mine: list[TimeSpan], kind: str, event: View) -> None:
    started_at = event["data"].get("started_at")
    at = datetime.fromisoformat(started_at) if isinstance(started_at, str) else event["created_at"]
    if kind == "node_started" and mine and mine[-1].last is None:
        mine[-1].first, mine[-1].status = at, "running"
    else:
        is_work = kind == "node_started" and "waits_until" not in event["data"]
        mine.append(TimeSpan(at, status="running" if is_work else "waiting", title="waits"))


def chart_of(
    board: JobSnapshot,
    workflow: Workflow,
    stretches: Mapping[str, list[TimeSpan]],
    spread: Spread,
    period: tuple[datetime, datetime],
    buckets: int,
) -> GanttChart:
    """Return the chart, with positions in percent of the row."""
    first, last = period
    seconds = max((last - first).total_seconds(), 0.001)
    scale = 100 / seconds
    rows = []
    for name in workflow.nodes:
        card = board.nodes.get(name)
        bars = [
            _bar(stretch, first, last, scale, card.status if card else "")
            for stretch in stretches.get(name, ())
        ]
        heights = _heights(spread.get(name, {}), buckets)
        rows.append(GanttRow(name, card.status if card else "pending", bars, heights))
    ticks = [
        (round(100 * i / TICKS, 2), _duration_text(timedelta(seconds=seconds * i / TICKS)))
        for i in range(TICKS)
    ]
    return GanttChart(rows, ticks)


def _bar(stretch: TimeSpan, first: datetime, last: datetime, scale: float, status: str) -> GanttBar:
    end = stretch.last or last
    shown = stretch.status if stretch.last is not None or status not in NODE_TERMINAL else status
    x = min(100 - MIN_WIDTH, max(0.0, (stretch.first - first).total_seconds() * scale))
    width = max(MIN_WIDTH, (end - stretch.first).total_seconds() * scale)
    title = f"{stretch.title}, {shown}, {_duration_text(end - stretch.first)}".lstrip(", ")
    return GanttBar(round(x, 2), round(min(width, 100 - x), 2), shown, title)


def _heights(spread: Mapping[int, tuple[int, int]], buckets: int) -> list[tuple[float, float, float, float]]:
    """Return (x, width, height of completed, height of other children) of each bucket of time."""
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


def _duration_text(length: timedelta) -> str:
    seconds = length.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
