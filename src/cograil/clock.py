"""PostgreSQL's time, as this process knows it.

Whatever is told to the outside or compared with times in the database goes by the database's clock: processes
on other machines have clocks of their own, and one that is off would sign callbacks that receivers refuse as
replays. Each transaction begins by learning the database's time; between two of them our monotonic clock goes
on from there. A process that has not asked yet has its own time.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

MAX_ROUND_TRIP_SECONDS = 2.0  # an answer that took longer says little about the time
MAX_OFFSET_SECONDS = 5.0  # from here on a process is warned of

_base: float | None = None  # the database's time, as seconds since 1970, when our monotonic clock was at zero


def note(told: datetime, asked_at: float) -> None:
    """The database said that it is `told`; `asked_at` is when we asked, by our monotonic clock."""
    global _base  # noqa: PLW0603  one process, one database
    answered_at, seconds_told = time.monotonic(), told.timestamp()
    if _base is None:
        _base = seconds_told - (asked_at + answered_at) / 2
    elif answered_at - asked_at <= MAX_ROUND_TRIP_SECONDS:  # what cannot be better known stays as it is
        _base = min(max(_base, seconds_told - answered_at), seconds_told - asked_at)


def seconds() -> float:
    """The database's time, as seconds since 1970."""
    return time.time() if _base is None else _base + time.monotonic()


def now() -> datetime:
    """The database's time."""
    return datetime.fromtimestamp(seconds(), UTC)


def offset_seconds() -> float:
    """By how much the clock of this machine is ahead of the database's."""
    return time.time() - seconds()


def describe_offset(offset: float) -> str | None:
    """What is wrong with a clock that is off by this much; None: nothing."""
    if abs(offset) <= MAX_OFFSET_SECONDS:
        return None
    direction = "ahead of" if offset > 0 else "behind"
    return f"the clock of this machine is {abs(offset):.1f} s {direction} PostgreSQL's; set it by NTP"
