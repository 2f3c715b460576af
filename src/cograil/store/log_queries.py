"""Log lines of the handlers of a job: a page of lines, filtered by node, level and text."""

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
LINE_DEFAULTS: View = {"at": None, "level": "", "message": "", "fields": {}}
MAX_ROWS = 2_000  # rows that one page scans
LAST = 10**17


class LogPosition(NamedTuple):
    """The position of a log line: its row, and its number in the row."""

    row: int
    line: int

    @classmethod
    def read(cls, text: str) -> LogPosition:
        """Parse the text form of a cursor. Raises ValueError."""
        row, line = text.split(".")
        return cls(int(row), int(line))

    def __str__(self) -> str:
        return f"{self.row}.{self.line}"


START, END = LogPosition(0, 0), LogPosition(LAST, 0)


@dataclass(frozen=True, slots=True)
class LogFilter:
    """A filter of log lines by node, minimum level, and text."""

    node_id: str | None = None
    level: str | None = None
    text: str | None = None

    @property
    def levels(self) -> list[str] | None:
        return None if self.level is None else list(LEVELS[LEVELS.index(self.level) :])


@dataclass(frozen=True, slots=True)
class LogPage:
    """Lines in order, each with its `cursor`; `next` is the cursor of the next page, or None."""

    lines: Sequence[View]
    next: LogPosition | None


async def job_logs(
    tx: Transaction, job_id: str, tenant: str, wanted: LogFilter, *, after: LogPosition = START, limit: int
) -> LogPage:
    """Return the lines after a cursor, in order; a page may be short or empty although there are more."""
    rows = await _fetch(tx, JOB_LOGS, job_id, tenant, wanted, after, limit)
    lines, stopped = _split(rows)
    more = None if stopped is None else LogPosition(stopped, LAST)
    if len(lines) == limit:
        more = lines[-1].cursor
    return LogPage([line.view() for line in lines], more)


async def newest_job_logs(
    tx: Transaction, job_id: str, tenant: str, wanted: LogFilter, *, before: LogPosition = END, limit: int
) -> LogPage:
    """Return the last lines before a cursor, in order; `next` leads to older lines."""
    rows = await _fetch(tx, NEWEST_JOB_LOGS, job_id, tenant, wanted, before, limit)
    lines, stopped = _split(rows)
    more = None if stopped is None else LogPosition(stopped, 0)
    if len(lines) == limit:
        more = lines[0].cursor
    return LogPage([line.view() for line in lines], more)


async def _fetch(
    tx: Transaction,
    query: Statement,
    job_id: str,
    tenant: str,
    wanted: LogFilter,
    cursor: LogPosition,
    limit: int,
) -> list[Row]:
    return await tx.fetch(
        query,
        tenant=tenant,
        job=job_id,
        node=wanted.node_id,
        levels=wanted.levels,
        text=wanted.text or None,
        row=cursor.row,
        place=cursor.line,
        window=MAX_ROWS,
        limit=limit,
    )


class StoredLogLine(NamedTuple):
    """One row of the statements: a line with its position, node and attempt."""

    cursor: LogPosition
    node_id: str
    attempt: int
    text: bytes

    def view(self) -> View:
        """Return the line as the API shows it."""
        fields: View = orjson.loads(self.text)
        position: View = {"cursor": str(self.cursor), "node_id": self.node_id, "attempt": self.attempt}
        return position | LINE_DEFAULTS | fields


def _split(rows: Sequence[Row]) -> tuple[list[StoredLogLine], int | None]:
    """Return the lines in order, and the row at which the scan stopped; None when it read all rows."""
    lines: list[StoredLogLine] = []
    stopped: int | None = None
    for row_id, number, node_id, attempt, text in rows:
        if number is None:
            stopped = row_id
        else:
            lines.append(StoredLogLine(LogPosition(row_id, number), node_id, attempt, text))
    return sorted(lines), stopped
