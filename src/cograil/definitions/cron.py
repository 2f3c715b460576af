"""When a schedule is due: a cron expression in a time zone, as moments.

A moment that the clock leaps over in spring comes as soon as it can; one that comes twice in autumn comes
once, unless it is one of many in every hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from cograil.errors import InvalidInput, Problem

MAX_CRON = 256
NEAR, FURTHER = timedelta(hours=12), 4  # how far back is looked first, and how much further each time
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)  # time zones know nothing of what was before
FIELDS = 5  # minute to weekday: what comes by the second is no job for a calendar
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
    """Raises InvalidInput for what is no calendar."""
    problems = []
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        shown = ascii(timezone[:64])
        message = f"{shown} is no time zone; write one such as Europe/Paris or UTC"
        problems.append(Problem("invalid_value", message, "/timezone"))
    try:
        if len(cron) > MAX_CRON:
            raise CronSimError(f"more than {MAX_CRON} characters")
        if len(_plain(cron).split()) != FIELDS:
            raise CronSimError(f"it has {FIELDS} fields")
        CronSim(_plain(cron), datetime.now(UTC))
    except CronSimError as error:
        message = f"{cron[:64]!a} is no cron expression ({str(error).lower()}); '30 6 * * 1-5' is one"
        problems.append(Problem("invalid_schedule", message, "/cron"))
    if problems:
        raise InvalidInput(problems)


def moments(cron: str, timezone: str, after: datetime) -> Iterator[datetime]:
    """The moments after this one, in UTC; none when there will be no more."""
    for moment in CronSim(_plain(cron), after.astimezone(ZoneInfo(timezone))):
        yield moment.astimezone(UTC)


def next_moment(cron: str, timezone: str, after: datetime) -> datetime | None:
    """The first of them."""
    return next(moments(cron, timezone, after), None)


def moments_until(cron: str, timezone: str, first: datetime, until: datetime, most: int) -> list[datetime]:
    """`first`, which is one of them, and those after it up to `until`; the last `most` of them.

    Looked for from the end: after a year in which nothing ran, half a million of them are not counted.
    """
    stretch = NEAR
    while True:
        begin = max(first, until - stretch)
        found = list(takewhile(lambda moment: moment <= until, moments(cron, timezone, begin)))
        if begin == first:
            return [first, *found][-most:]
        if len(found) >= most:
            return found[-most:]
        stretch *= FURTHER


def first_moments(cron: str, timezone: str, first: datetime, until: datetime, most: int) -> list[datetime]:
    """Those from `first` up to `until`, both included; the first `most` of them."""
    begin = max(first, EARLIEST) - timedelta(microseconds=1)
    after = moments(cron, timezone, begin)
    return list(islice(takewhile(lambda moment: moment <= until, after), most))


def _plain(cron: str) -> str:
    return ALIASES.get(cron.strip().lower(), cron.strip())
