"""Durations, timestamps and states as text and symbols."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from cograil import clock

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

STATE_STYLES = {
    "pending": "dim",
    "ready": "yellow",
    "dispatched": "cyan",
    "running": "bold cyan",
    "waiting": "yellow",
    "completed": "green",
    "failed": "bold red",
    "skipped": "dim",
    "cancelled": "magenta",
}

SIGNS = {
    "pending": "·",
    "ready": "↻",
    "dispatched": "○",
    "running": "●",
    "waiting": "◷",
    "completed": "✓",
    "failed": "✗",
    "skipped": "-",
    "cancelled": "■",
}

PLAIN_SIGNS = {
    "pending": ".",
    "ready": "~",
    "dispatched": "o",
    "running": ">",
    "waiting": "z",
    "completed": "+",
    "failed": "x",
    "skipped": "-",
    "cancelled": "#",
}

WAITING_FOR = {
    "approval": "an approval",
    "timer": "a timer",
    "retry": "its next attempt",
    "start": "its start",
}

SKIPPED = {
    "branch": "not taken",
    "upstream_failed": "a dependency failed",
    "when": "its `when` condition is false",
}


def printable(text: object) -> str:
    """Return the text on one line with control characters replaced: they must not reach a terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(text)).replace("\n", " ").replace("\t", " ")


def printable_lines(text: str) -> str:
    """As `printable`, for text of several lines, which keep their indentation."""
    return "\n".join(printable(line) for line in text.splitlines())


def timestamp(value: datetime | str) -> str:
    """Format a timestamp: 2026-01-31 09:00:00.123 UTC. Other text is returned unchanged."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return printable(value)
    if value.tzinfo is not None:
        value = value.astimezone(UTC)
    text = value.strftime("%Y-%m-%d %H:%M:%S")
    return f"{text}.{value.microsecond // 1000:03} UTC" if value.microsecond else f"{text} UTC"


def duration(seconds: float) -> str:
    """Format a duration: 0.12 s, 14.2 s, 2 m 05 s, 3 h 12 m, 4 d 7 h."""
    seconds = max(0.0, seconds)
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} m"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def ago(timestamp: datetime | None, now: datetime | None = None) -> str:
    """Return roughly how long ago this was; empty for None."""
    if timestamp is None:
        return ""
    seconds = ((now or clock.now()) - timestamp).total_seconds()
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{max(0, int(seconds))} s ago"


def took(start: datetime | None, end: datetime | None, now: datetime | None = None) -> str:
    """Return the duration from start to end, or until now; empty before the start."""
    if start is None:
        return ""
    return duration(((end or now or clock.now()) - start).total_seconds())


def number(value: float) -> str:
    """Format a number without a needless fraction."""
    return f"{value:g}" if abs(value) < 1e6 else f"{value:,.0f}"
