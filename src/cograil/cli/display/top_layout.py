"""A frame of `cograil top`, for a terminal of any size: what does not fit is left out, the least first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cograil.cli.display.formatting import STATE_STYLES, ago, duration, number
from cograil.cli.display.output import plain, state, table
from cograil.cli.display.top_data import busy
from cograil.model.states import DISPLAY_STATUSES

BARS = "▁▂▃▄▅▆▇█"
PLAIN_BARS = "._-=+*#@"
MAX_NAME = 20
GAP = 2  # between columns
SHORT_ID = 18  # a beginning of an id that is enough for other commands
WIDE = 110  # from so many columns on two sections stand beside each other
TALL = 60  # of a frame that nobody sees on a terminal
Rows = list[list[RenderableType]]


def draw(frame: dict[str, Any], width: int, height: int, note: str = "", *, is_plain: bool = False) -> Group:
    """The frame in at most so many columns and lines."""
    parts: list[RenderableType] = [_headline(frame, note), _jobs(frame), _sparks(frame, width, is_plain)]
    sections = [
        _section("queue", ("queued", "held", "running", "oldest", "workers", ""), _queues(frame)),
        _section("worker", ("busy", "queues", "heartbeat", "up"), _workers(frame)),
        _section("waits longest", ("job", "since", "why"), _waiting(frame)),
        _section("fails, last day", ("node", "times", "last", "why"), _failing(frame)),
    ]
    room = height - len(parts) - 1
    if width >= WIDE:
        parts += _beside(sections, room, width)
    else:
        parts += _below(sections, room, width)
    return Group(*parts)


def _headline(frame: dict[str, Any], note: str) -> Text:
    live = [one for one in frame["orchestrators"] if one["is_live"]]
    line = Text.assemble(
        ("cograil top", "bold"), f"  {frame['at']:%H:%M:%S}", no_wrap=True, overflow="ellipsis"
    )
    line.append(f"  orchestrators {len(live)}", "" if live else "bold red")
    news = frame["oldest_news_seconds"]
    if news is not None and news > 1:
        line.append(f"  inbox waits {duration(news)}", "yellow")
    if frame["missing_handlers"]:
        line.append("  nobody has ", "bold red")
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


def _sparks(frame: dict[str, Any], width: int, is_plain: bool) -> Text:
    """What ended in each minute, as bars."""
    ended = [one["ended"] for one in frame["throughput"]["minutes"]]
    shown = ended[-max(5, min(len(ended), width - 40)) :]
    most, bars = max(shown, default=0), PLAIN_BARS if is_plain else BARS
    drawn = "".join(bars[0] if not most else bars[round(one / most * (len(bars) - 1))] for one in shown)
    rate = frame["throughput"]["ended_per_minute"]
    line = Text("ended", style="bold", no_wrap=True, overflow="ellipsis")
    line.append(f"  {drawn}", "not bold green")
    return line.append(f"  {rate:.1f} a minute, at most {most}", "not bold dim")


class _Section:
    """A table of which as many rows are shown as there is room for."""

    def __init__(self, columns: tuple[str, ...], rows: Rows) -> None:
        self._columns, self.rows = columns, rows

    def drawn(self, lines: int, width: int) -> RenderableType:
        made = table(*self._columns, right=("queued", "held", "running", "oldest", "workers", "times"))
        shown = self.rows if len(self.rows) < lines else self.rows[: max(0, lines - 2)]
        for row in shown:
            made.add_row(*row)
        for column, room in zip(made.columns, self._widths(shown, width), strict=True):
            column.no_wrap, column.overflow, column.width = True, "ellipsis", room
        if len(shown) < len(self.rows):
            made.add_row(Text(f"and {len(self.rows) - len(shown)} more", style="dim"))
        return made

    def _widths(self, shown: Rows, width: int) -> list[int | None]:
        """What each column gets. Where not all have room, names are cut, and the last one has what is left.

        Said here: left alone, the table takes away whole columns from the middle for a long last one.
        """
        wanted = [
            max([len(name), *(len(str(row[place])) for row in shown if place < len(row))])
            for place, name in enumerate(self._columns)
        ]
        first = [min(MAX_NAME, cells) for cells in wanted[:-1]]
        left = width - sum(first) - GAP * len(first)
        if sum(wanted) + GAP * len(first) <= width or left < len(self._columns[-1]):
            return [None] * len(wanted)
        return [*first, left]

    @property
    def wanted(self) -> int:
        """Lines, with its head."""
        return len(self.rows) + 1


def _section(name: str, columns: tuple[str, ...], rows: Rows) -> _Section:
    return _Section((name, *columns), rows or [[Text("none", style="dim")]])


def _below(sections: Iterable[_Section], room: int, width: int) -> list[RenderableType]:
    """One below the other; each gets what it wants, or its share of what is there."""
    parts: list[RenderableType] = []
    left = [section for section in sections if room > 4]
    while left:
        share = max(3, room // len(left) - 1)
        section = left.pop(0)
        lines = min(section.wanted, share if left else max(3, room - 1))
        parts += [Text(""), section.drawn(lines + 1 if lines == section.wanted else lines, width)]
        room -= lines + 1
        if room < 4:
            break
    return parts


def _beside(sections: list[_Section], room: int, width: int) -> list[RenderableType]:
    """Queues beside workers, and below them what waits and what fails."""
    first = Table.grid(padding=(0, 3, 0, 0), expand=False)
    top = min(max(one.wanted for one in sections[:2]), max(3, room // 2))
    halves = (width // 2 - 2, width - width // 2 - 2)
    for half in halves:
        first.add_column(width=half)
    first.add_row(
        *(one.drawn(top + (one.wanted <= top), half) for one, half in zip(sections[:2], halves, strict=True))
    )
    return [Text(""), first, *_below(sections[2:], room - top - 1, width)]


def _queues(frame: dict[str, Any]) -> Rows:
    rows: Rows = []
    for one in sorted(frame["queues"], key=lambda one: (-one["depth"], one["queue"])):
        is_left = one["depth"] and not one["workers"]
        note = (
            Text("paused", style="yellow")
            if one["is_paused"]
            else Text("nobody serves it" if is_left else "", "red")
        )
        age = one["oldest_seconds"]
        rows.append(
            [
                plain(one["queue"]),
                Text(number(one["depth"]) + ("+" if one["depth_truncated"] else "")),
                Text(number(one["held"])),
                Text(number(one["running"])),
                Text("" if age is None else duration(age), style="yellow" if (age or 0) > 60 else ""),
                Text(number(one["workers"])),
                note,
            ]
        )
    return rows


def _workers(frame: dict[str, Any]) -> Rows:
    return [
        [
            plain(one["name"], "" if one["is_live"] else "red"),
            Text(busy(one)),
            plain(", ".join(one["queues"]) if one["queues"] else "all"),
            Text(
                ago(one["pulsed_at"], frame["at"]) if one["is_live"] else "lost",
                "" if one["is_live"] else "red",
            ),
            Text(duration((frame["at"] - one["started_at"]).total_seconds())),
        ]
        for one in frame["workers"]
    ]


def _waiting(frame: dict[str, Any]) -> Rows:
    return [
        [
            plain(one["workflow_id"]),
            Text(one["job_id"][:SHORT_ID], style="dim"),
            Text(duration((frame["at"] - one["created_at"]).total_seconds())),
            state(one["status"])
            if one["why"] is None
            else plain(f"{one['why']['kind']}: {one['why']['message']}"),
        ]
        for one in frame["waiting"]
    ]


def _failing(frame: dict[str, Any]) -> Rows:
    return [
        [
            plain(one["workflow_id"]),
            plain(one["node_id"]),
            Text(number(one["occurrences"]), style="red"),
            Text(ago(one["last_seen"], frame["at"])),
            plain(f"{one['error_code']}: {one['error_message']}"),
        ]
        for one in frame["failing"]
    ]
