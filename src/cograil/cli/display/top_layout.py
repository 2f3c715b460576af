"""Layout of `cograil top` for a terminal of any size; the least important rows are omitted first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cograil.cli.display.formatting import STATE_STYLES, ago, duration, number
from cograil.cli.display.output import plain, state, table
from cograil.model.states import DISPLAY_STATUSES

BARS = "▁▂▃▄▅▆▇█"
PLAIN_BARS = "._-=+*#@"
MAX_NAME = 20
GAP = 2  # between columns
SHORT_ID = 18  # a prefix of an id that other commands accept
WIDE = 110  # with at least this many columns two sections are side by side
DEFAULT_HEIGHT = 60  # without a terminal
Rows = list[list[RenderableType]]


def render_frame(
    frame: dict[str, Any], width: int, height: int, note: str = "", *, is_plain: bool = False
) -> Group:
    """Render a frame in at most this many columns and lines."""
    parts: list[RenderableType] = [
        _headline(frame, note),
        _jobs(frame),
        _throughput_bars(frame, width, is_plain),
    ]
    sections = [
        _section("queue", ("queued", "held", "running", "oldest", "workers", ""), _queues(frame)),
        _section("worker", ("busy", "queues", "heartbeat", "up"), _workers(frame)),
        _section("waits longest", ("job", "since", "why"), _waiting(frame)),
        _section("fails, last day", ("node", "times", "last", "why"), _failing(frame)),
    ]
    lines = height - len(parts) - 1
    if width >= WIDE:
        parts += _side_by_side(sections, lines, width)
    else:
        parts += _stack(sections, lines, width)
    return Group(*parts)


def _headline(frame: dict[str, Any], note: str) -> Text:
    live = [process for process in frame["orchestrators"] if process["is_live"]]
    line = Text.assemble(
        ("cograil top", "bold"), f"  {frame['at']:%H:%M:%S}", no_wrap=True, overflow="ellipsis"
    )
    line.append(f"  orchestrators {len(live)}", "" if live else "bold red")
    inbox_seconds = frame["oldest_news_seconds"]
    if inbox_seconds is not None and inbox_seconds > 1:
        line.append(f"  inbox waits {duration(inbox_seconds)}", "yellow")
    if frame["missing_handlers"]:
        line.append("  no worker has ", "bold red")
        line.append(plain(", ".join(frame["missing_handlers"])))
    if note:
        line.append(f"  {note}", "bold red")
    return line


def _jobs(frame: dict[str, Any]) -> Text:
    line = Text("jobs", style="bold", no_wrap=True, overflow="ellipsis")
    for status in DISPLAY_STATUSES:
        count = frame["jobs"].get(status, 0)
        line.append(f"  {status} ", "not bold dim")
        line.append(
            number(count) + ("+" if frame["truncated"] else ""),
            STATE_STYLES[status] if count else "not bold dim",
        )
    return line


def _throughput_bars(frame: dict[str, Any], width: int, is_plain: bool) -> Text:
    """Draw the ended jobs per minute as bars."""
    ended = [minute["ended"] for minute in frame["throughput"]["minutes"]]
    visible = ended[-max(5, min(len(ended), width - 40)) :]
    peak, bars = max(visible, default=0), PLAIN_BARS if is_plain else BARS
    drawn = "".join(bars[0] if not peak else bars[round(n / peak * (len(bars) - 1))] for n in visible)
    rate = frame["throughput"]["ended_per_minute"]
    line = Text("ended", style="bold", no_wrap=True, overflow="ellipsis")
    line.append(f"  {drawn}", "not bold green")
    return line.append(f"  {rate:.1f} per minute, peak {peak}", "not bold dim")


class _Section:
    """A table that shows as many rows as fit."""

    def __init__(self, columns: tuple[str, ...], rows: Rows) -> None:
        self._columns, self.rows = columns, rows

    def render(self, lines: int, width: int) -> RenderableType:
        rows = table(*self._columns, right=("queued", "held", "running", "oldest", "workers", "times"))
        visible = self.rows if len(self.rows) < lines else self.rows[: max(0, lines - 2)]
        for row in visible:
            rows.add_row(*row)
        for column, cells in zip(rows.columns, self._widths(visible, width), strict=True):
            column.no_wrap, column.overflow, column.width = True, "ellipsis", cells
        if len(visible) < len(self.rows):
            rows.add_row(Text(f"and {len(self.rows) - len(visible)} more", style="dim"))
        return rows

    def _widths(self, visible: Rows, width: int) -> list[int | None]:
        """Return the width of each column. If space is short, names are cut; the last column gets the rest.

        Without explicit widths, rich drops whole columns in the middle for a long last column.
        """
        wanted = [
            max([len(name), *(len(str(row[index])) for row in visible if index < len(row))])
            for index, name in enumerate(self._columns)
        ]
        first = [min(MAX_NAME, cells) for cells in wanted[:-1]]
        left = width - sum(first) - GAP * len(first)
        if sum(wanted) + GAP * len(first) <= width or left < len(self._columns[-1]):
            return [None] * len(wanted)
        return [*first, left]

    @property
    def wanted(self) -> int:
        """Return the number of lines, including the header."""
        return len(self.rows) + 1


def _section(name: str, columns: tuple[str, ...], rows: Rows) -> _Section:
    return _Section((name, *columns), rows or [[Text("none", style="dim")]])


def _stack(sections: Iterable[_Section], room: int, width: int) -> list[RenderableType]:
    """Stack the sections; each gets the lines it needs, or its share."""
    parts: list[RenderableType] = []
    left = [section for section in sections if room > 4]
    while left:
        share = max(3, room // len(left) - 1)
        section = left.pop(0)
        lines = min(section.wanted, share if left else max(3, room - 1))
        parts += [Text(""), section.render(lines + 1 if lines == section.wanted else lines, width)]
        room -= lines + 1
        if room < 4:
            break
    return parts


def _side_by_side(sections: list[_Section], room: int, width: int) -> list[RenderableType]:
    """Put queues beside workers, and waiting and failing jobs below."""
    first = Table.grid(padding=(0, 3, 0, 0), expand=False)
    top = min(max(section.wanted for section in sections[:2]), max(3, room // 2))
    halves = (width // 2 - 2, width - width // 2 - 2)
    for half in halves:
        first.add_column(width=half)
    first.add_row(
        *(
            section.render(top + (section.wanted <= top), half)
            for section, half in zip(sections[:2], halves, strict=True)
        )
    )
    return [Text(""), first, *_stack(sections[2:], room - top - 1, width)]


def _queues(frame: dict[str, Any]) -> Rows:
    rows: Rows = []
    for queue in sorted(frame["queues"], key=lambda queue: (-queue["depth"], queue["queue"])):
        is_unserved = queue["depth"] and not queue["workers"]
        note = (
            Text("paused", style="yellow")
            if queue["is_paused"]
            else Text("no worker" if is_unserved else "", "red")
        )
        age = queue["oldest_seconds"]
        rows.append(
            [
                plain(queue["queue"]),
                Text(number(queue["depth"]) + ("+" if queue["depth_truncated"] else "")),
                Text(number(queue["held"])),
                Text(number(queue["running"])),
                Text("" if age is None else duration(age), style="yellow" if (age or 0) > 60 else ""),
                Text(number(queue["workers"])),
                note,
            ]
        )
    return rows


def _workers(frame: dict[str, Any]) -> Rows:
    return [
        [
            plain(worker["name"], "" if worker["is_live"] else "red"),
            Text(busy(worker)),
            plain(", ".join(worker["queues"]) if worker["queues"] else "all"),
            Text(
                ago(worker["pulsed_at"], frame["at"]) if worker["is_live"] else "lost",
                "" if worker["is_live"] else "red",
            ),
            Text(duration((frame["at"] - worker["started_at"]).total_seconds())),
        ]
        for worker in frame["workers"]
    ]


def _waiting(frame: dict[str, Any]) -> Rows:
    return [
        [
            plain(job["workflow_id"]),
            Text(job["job_id"][:SHORT_ID], style="dim"),
            Text(duration((frame["at"] - job["created_at"]).total_seconds())),
            state(job["status"])
            if job["why"] is None
            else plain(f"{job['why']['kind']}: {job['why']['message']}"),
        ]
        for job in frame["waiting"]
    ]


def _failing(frame: dict[str, Any]) -> Rows:
    return [
        [
            plain(failure["workflow_id"]),
            plain(failure["node_id"]),
            Text(number(failure["occurrences"]), style="red"),
            Text(ago(failure["last_seen"], frame["at"])),
            plain(f"{failure['error_code']}: {failure['error_message']}"),
        ]
        for failure in frame["failing"]
    ]


def busy(process: Mapping[str, Any]) -> str:
    """Return the used and total capacity of a worker, as of its last heartbeat."""
    info = process["info"] or {}
    return f"{info['running']}/{info['concurrency']}" if "running" in info else ""
