"""What the handlers of a job logged: a page of lines, found by node, level and text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from cograil.store.database import Row, Transaction
from cograil.store.job_queries import View
from cograil.store.statements import Statement, statement

JOB_LOGS = statement("job_logs")
NEWEST_JOB_LOGS = statement("newest_job_logs")

LEVELS = ("debug", "info", "warning", "error", "critical")
MAX_ROWS = 2_000  # that one page looks through
LAST = 10**17


class LogPlace(NamedTuple):
    """A line: the row that holds it, and its number there."""

    row: int
    place: int

    @classmethod
    def read(cls, text: str) -> LogPlace:
        """A place as `str` writes it. Raises ValueError."""
        row, place = text.split(".")
        return cls(int(row), int(place))

    def __str__(self) -> str:
        return f"{self.row}.{self.place}"


START, END = LogPlace(0, 0), LogPlace(LAST, 0)


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which lines: of a node, of a level or a graver one, with this text in them."""

    node_id: str | None = None
    level: str | None = None
    text: str | None = None

    @property
    def levels(self) -> list[str] | None:
        return None if self.level is None else list(LEVELS[LEVELS.index(self.level) :])


@dataclass(frozen=True, slots=True)
class LogPage:
    """Lines in their order, each with its `cursor`; `next` is where more are, or None."""

    lines: Sequence[View]
    next: LogPlace | None


async def job_logs(
    tx: Transaction, job_id: str, tenant: str, wanted: LogFilter, *, after: LogPlace = START, limit: int
) -> LogPage:
    """The lines after a place, in order; a page may be short or even empty though there are more."""
    rows = await _fetch(tx, JOB_LOGS, job_id, tenant, wanted, after, limit)
    found = sorted((row for row in rows if row[1] is not None), key=lambda row: (row[0], row[1]))
    stopped = next(row[0] for row in rows if row[1] is None)
    more = None if stopped is None else LogPlace(stopped, LAST)
    if len(found) == limit:
        more = LogPlace(*found[-1][:2])
    return LogPage([_line(row) for row in found], more)


async def newest_job_logs(
    tx: Transaction, job_id: str, tenant: str, wanted: LogFilter, *, before: LogPlace = END, limit: int
) -> LogPage:
    """The last lines before a place, in order; `next` leads to older ones."""
    rows = await _fetch(tx, NEWEST_JOB_LOGS, job_id, tenant, wanted, before, limit)
    found = sorted((row for row in rows if row[1] is not None), key=lambda row: (row[0], row[1]))
    stopped = next(row[0] for row in rows if row[1] is None)
    more = None if stopped is None else LogPlace(stopped, 0)
    if len(found) == limit:
        more = LogPlace(*found[0][:2])
    return LogPage([_line(row) for row in found], more)


async def _fetch(
    tx: Transaction,
    query: Statement,
    job_id: str,
    tenant: str,
    wanted: LogFilter,
    place: LogPlace,
    limit: int,
) -> list[Row]:
    return await tx.fetch(
        query,
        tenant=tenant,
        job=job_id,
        node=wanted.node_id,
        levels=wanted.levels,
        text=wanted.text or None,
        row=place.row,
        place=place.place,
        window=MAX_ROWS,
        limit=limit,
    )


def _line(row: Row) -> View:
    row_id, place, node_id, attempt, line = row
    known: View = {"at": None, "level": "", "message": "", "fields": {}}
    written: View = orjson.loads(line)
    cursor = str(LogPlace(row_id, place))
    return {"cursor": cursor, "node_id": node_id, "attempt": attempt, **known, **written}
