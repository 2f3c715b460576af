"""Times and durations on the pages.

Every time is a `<time>` element with its text in UTC. `static/times.js` rewrites the text in the zone that
the visitor has chosen, in the style that the element names: `relative` (3 min ago), `absolute` (10:53:29 CET,
with the date unless it is today), `precise` (with milliseconds) or `both`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from markupsafe import Markup, escape

from cograil import clock

ISO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00|Z)")


def moment(at: datetime | None) -> Markup | str:
    """How long ago or how soon; the date and the clock where that is more than a day."""
    return _element(at, "relative")


def exact(at: datetime | None) -> Markup | str:
    """Date and clock."""
    return _element(at, "absolute")


def precise(at: datetime | None) -> Markup | str:
    """Date and clock with milliseconds, for log lines and events."""
    return _element(at, "precise")


def due(at: datetime | None) -> Markup | str:
    """How soon, with date and clock: for deadlines and what comes next."""
    return _element(at, "both")


def _element(at: datetime | None, style: str) -> Markup | str:
    if at is None:
        return "—"
    utc = at.astimezone(UTC)
    text = utc.strftime("%Y-%m-%d %H:%M:%S")
    if style == "precise":
        text = f"{text}.{utc.microsecond // 1000:03d}"
    mark = "" if style == "relative" else Markup(' data-style="{}"').format(style)
    return Markup('<time datetime="{}"{}>{} UTC</time>').format(
        utc.isoformat(timespec="milliseconds"), mark, text
    )


def timed(text: str) -> Markup:
    """A sentence of the engine with the times in it as elements."""
    whole, place = Markup(), 0
    for found in ISO_TIME.finditer(text):
        at = datetime.fromisoformat(found.group().replace("Z", "+00:00"))
        whole += escape(text[place : found.start()]) + exact(at)
        place = found.end()
    return whole + escape(text[place:])


def span(seconds: float | timedelta | None) -> str:
    """A duration in the two units that matter."""
    if seconds is None:
        return "—"
    left = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
    if left < 1:
        return f"{max(0.0, left) * 1000:.0f} ms"
    if left < 60:
        return f"{left:.1f} s"
    minutes, rest = divmod(round(left), 60)
    if minutes < 60:
        return f"{minutes} m {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} m" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def between(first: datetime | None, last: datetime | None) -> str:
    """How long it took, or takes until now."""
    if first is None:
        return "—"
    return span((last or clock.now()) - first)


def since(at: datetime, first: datetime) -> Markup:
    """How long after the first time this was; the title has the time itself."""
    text = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    seconds = (at - first).total_seconds()
    offset = f"{seconds:.3f} s" if 1 <= seconds < 60 else span(seconds)
    return Markup('<span class="nowrap" title="{} UTC">+{}</span>').format(text, offset)


def read_wall_time(text: str, zone: str) -> datetime:
    """The moment that a field of a form holds: its clock is of this zone, unless it names an offset itself.

    Raises ValueError for text that is not a time and for a zone that does not exist.
    """
    at = datetime.fromisoformat(text.strip())
    if at.tzinfo is not None:
        return at.astimezone(UTC)
    try:
        return at.replace(tzinfo=ZoneInfo(zone or "UTC")).astimezone(UTC)
    except (KeyError, ValueError, OSError) as error:  # a zone is looked up as a file
        raise ValueError(f"{zone[:64]!r} is not a time zone") from error


FILTERS = {
    "moment": moment,
    "exact": exact,
    "precise": precise,
    "due": due,
    "timed": timed,
    "span": span,
    "between": between,
    "since": since,
}
