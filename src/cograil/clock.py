"""The database's time, as this process knows it.

Timestamps that leave this process, or that are compared with timestamps in the database, use the database's
clock. Other machines have their own clocks, and a wrong clock would sign callbacks that receivers reject as
replays. Each transaction begins by reading the database's time. Between transactions the local monotonic
clock advances it. Before the first transaction the local time is used. A local clock that is more than
MAX_OFFSET_SECONDS off is logged once as a warning.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime

MAX_ROUND_TRIP_SECONDS = 2.0  # a slower answer says little about the time
MAX_OFFSET_SECONDS = 5.0  # a larger offset causes a warning

_base: float | None = None  # the database's time, in seconds since 1970, when the monotonic clock was zero
_has_warned = False
_log = logging.getLogger("clock")


def synchronize(database_time: datetime, asked_at: float) -> None:
    """Adjust to the time that the database returned; `asked_at` is the monotonic time of the query.

    A slow answer is ignored unless it is the first.
    """
    _adjust(database_time, asked_at)
    _warn_once()


def _adjust(database_time: datetime, asked_at: float) -> None:
    global _base  # noqa: PLW0603  one process, one database
    answered_at, database_seconds = time.monotonic(), database_time.timestamp()
    if _base is None:
        _base = database_seconds - (asked_at + answered_at) / 2
    elif answered_at - asked_at <= MAX_ROUND_TRIP_SECONDS:
        _base = min(max(_base, database_seconds - answered_at), database_seconds - asked_at)


def _warn_once() -> None:
    """Log an offset that is not tolerable; again only after it was tolerable in between."""
    global _has_warned  # noqa: PLW0603  one process, one clock
    warning = describe_offset(offset_seconds())
    if warning is not None and not _has_warned:
        _log.warning(warning)
    _has_warned = warning is not None


def seconds() -> float:
    """Return the database's time in seconds since 1970."""
    return time.time() if _base is None else _base + time.monotonic()


def now() -> datetime:
    """Return the database's time in UTC."""
    return datetime.fromtimestamp(seconds(), UTC)


def offset_seconds() -> float:
    """Return how far this machine's clock is ahead of the database's clock."""
    return time.time() - seconds()


def describe_offset(offset: float) -> str | None:
    """Return a sentence about a clock with this offset, or None when the offset is tolerable."""
    if abs(offset) <= MAX_OFFSET_SECONDS:
        return None
    direction = "ahead of" if offset > 0 else "behind"
    return (
        f"this machine's clock is {abs(offset):.1f} s {direction} PostgreSQL's clock; synchronize it with NTP"
    )
