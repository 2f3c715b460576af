"""Fire times of a schedule: a cron expression in a time zone.

A time that daylight saving skips in spring fires right after the gap. A time that occurs twice in autumn
fires once, unless the schedule fires several times in every hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from cograil.errors import InvalidInput, Problem

MAX_CRON = 256
NEAR, FURTHER = timedelta(hours=12), 4  # first search window, and its growth factor
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)  # time zone data starts here
FIELDS = 5  # minute to weekday; seconds are not supported
ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


def check_calendar(cron: str, timezone: str) -> None:
    """Raise InvalidInput for an invalid cron expression or time zone."""
    problems = []
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        preview = ascii(timezone[:64])
        message = f"{preview} is not a time zone; use a name such as Europe/Paris or UTC"
        problems.append(Problem("invalid_value", message, "/timezone"))
    try:
        if len(cron) > MAX_CRON:
            raise CronSimError(f"more than {MAX_CRON} characters")
        if len(_plain(cron).split()) != FIELDS:
            raise CronSimError(f"it needs {FIELDS} fields")
        CronSim(_plain(cron), datetime.now(UTC))
    except CronSimError as error:
        message = (
            f"{cron[:64]!a} is not a cron expression ({str(error).lower()}); a valid one is '30 6 * * 1-5'"
        )
        problems.append(Problem("invalid_schedule", message, "/cron"))
    if problems:
        raise InvalidInput(problems)


def moments(cron: str, timezone: str, after: datetime) -> Iterator[datetime]:
    """Yield the fire times after this time, in UTC."""
    for moment in CronSim(_plain(cron), after.astimezone(ZoneInfo(timezone))):
        yield moment.astimezone(UTC)


def next_moment(cron: str, timezone: str, after: datetime) -> datetime | None:
    """Return the first fire time after this time; None when there is none."""
    return next(moments(cron, timezone, after), None)


def moments_until(cron: str, timezone: str, first: datetime, until: datetime, most: int) -> list[datetime]:
    """Return `first`, which is a fire time, and those after it up to `until`; at most the last `most` of them.

    The search starts at the end, so a schedule that was off for a year does not compute all missed times.
    """
    stretch = NEAR
    while True:
        begin = max(first, until - stretch)
        times = list(takewhile(lambda moment: moment <= until, moments(cron, timezone, begin)))
        if begin == first:
            return [first, *times][-most:]
        if len(times) >= most:
            return times[-most:]
        stretch *= FURTHER


def first_moments(cron: str, timezone: str, first: datetime, until: datetime, most: int) -> list[datetime]:
    """Return the fire times from `first` to `until`, both inclusive; at most the first `most` of them."""
    begin = max(first, EARLIEST) - timedelta(microseconds=1)
    after = moments(cron, timezone, begin)
    return list(islice(takewhile(lambda moment: moment <= until, after), most))


def _plain(cron: str) -> str:
    return ALIASES.get(cron.strip().lower(), cron.strip())
