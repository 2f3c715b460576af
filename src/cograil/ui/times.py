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
    """Return a relative time; more than a day away, the date and time."""
    return _element(at, "relative")


def exact(at: datetime | None) -> Markup | str:
    """Return date and time."""
    return _element(at, "absolute")


def precise(at: datetime | None) -> Markup | str:
    """Return date and time with milliseconds, for log lines and events."""
    return _element(at, "precise")


def due(at: datetime | None) -> Markup | str:
    """Return a relative time with date and time, for deadlines."""
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
    """Return a text of the engine with its times as `<time>` elements."""
    whole, position = Markup(), 0
    for match in ISO_TIME.finditer(text):
        at = datetime.fromisoformat(match.group().replace("Z", "+00:00"))
        whole += escape(text[position : match.start()]) + exact(at)
        position = match.end()
    return whole + escape(text[position:])


def span(seconds: float | timedelta | None) -> str:
    """Return a duration in its two largest units."""
    if seconds is None:
        return "—"
    remaining = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
    if remaining < 1:
        return f"{max(0.0, remaining) * 1000:.0f} ms"
    if remaining < 60:
        return f"{remaining:.1f} s"
    minutes, rest = divmod(round(remaining), 60)
    if minutes < 60:
        return f"{minutes} m {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} m" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def between(first: datetime | None, last: datetime | None) -> str:
    """Return the duration until `last`, or until now."""
    if first is None:
        return "—"
    return span((last or clock.now()) - first)


def since(at: datetime, first: datetime) -> Markup:
    """Return the offset from `first`; the title has the time itself."""
    text = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    seconds = (at - first).total_seconds()
    offset = f"{seconds:.3f} s" if 1 <= seconds < 60 else span(seconds)
    return Markup('<span class="nowrap" title="{} UTC">+{}</span>').format(text, offset)


def read_wall_time(text: str, zone: str) -> datetime:
    """Return the time in a form field: it is in this zone, unless it has an offset.

    Raises ValueError for text that is not a time and for a zone that does not exist.
    """
    at = datetime.fromisoformat(text.strip())
    if at.tzinfo is not None:
        return at.astimezone(UTC)
    try:
        return at.replace(tzinfo=ZoneInfo(zone or "UTC")).astimezone(UTC)
    except (KeyError, ValueError, OSError) as error:  # zones are read from files
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
