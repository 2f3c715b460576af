"""Jobs by many criteria, and a tail of log lines, for the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import orjson

from cograil.model.states import DISPLAY_STATUSES
from cograil.store.database import Transaction
from cograil.store.job_queries import ANY_BYTES, LAST_ID, MAX_PAGE_BYTES, View, job_view, list_jobs
from cograil.store.log_queries import LINE_DEFAULTS
from cograil.store.statements import statement

FILTER_JOBS = statement("filter_jobs")
TAIL_LOGS = statement("tail_logs")

FIRST_ID = str(UUID(int=0))
LATE_SECONDS = 10.0  # no row with a lower id than a row of this age is still uncommitted


@dataclass(frozen=True, slots=True)
class JobSearch:
    """The criteria of a job filter; the defaults match every job."""

    statuses: Sequence[str] = ()
    workflow: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None
    error: str | None = None


async def filter_jobs(
    tx: Transaction,
    criteria: JobSearch,
    *,
    tenant: str = "default",
    before: str | None = None,
    limit: int = 50,
) -> list[View]:
    """Return the newest jobs that meet all criteria; `before` is the last id of the previous page."""
    rows = await tx.fetch_named(
        FILTER_JOBS,
        tenant=tenant,
        statuses=list(criteria.statuses or DISPLAY_STATUSES),
        workflow=criteria.workflow,
        labels=orjson.dumps(dict(criteria.labels)).decode() if criteria.labels else None,
        first=FIRST_ID if criteria.since is None else _first_id_at(criteria.since),
        last=LAST_ID if criteria.until is None else _first_id_at(criteria.until),
        text=criteria.text,
        error=criteria.error,
        before=before or LAST_ID,
        limit=limit,
    )
    return [job_view(row) for row in rows]


async def find_jobs_by(
    tx: Transaction,
    criteria: JobSearch,
    *,
    tenant: str = "default",
    before: str | None = None,
    limit: int = 50,
    is_bounded: bool = False,
) -> list[View]:
    """As `filter_jobs`, but with the index of plain lists when only status and workflow are set.

    With `is_bounded` the list ends once its inputs and results exceed the size of a page.
    """
    if criteria == JobSearch(statuses=criteria.statuses, workflow=criteria.workflow):
        return await list_jobs(
            tx,
            tenant=tenant,
            statuses=criteria.statuses,
            workflow=criteria.workflow,
            before=before,
            limit=limit,
            max_bytes=MAX_PAGE_BYTES if is_bounded else ANY_BYTES,
            is_apart=True,
        )
    return await filter_jobs(tx, criteria, tenant=tenant, before=before, limit=limit)


def _first_id_at(moment: datetime) -> str:
    """Return the lowest id (UUID version 7) of a job created at this time."""
    milliseconds = min(max(0, int(moment.timestamp() * 1000)), 2**48 - 1)
    return str(UUID(int=milliseconds << 80))


class LogTail:
    """Reads the log lines of a job from the first one on; each call returns the new ones."""

    def __init__(self, job_id: str, node: str | None = None, tenant: str = "default") -> None:
        self._params = {"job": job_id, "node": node, "tenant": tenant}
        self._after = 0
        self._seen: set[int] = set()

    async def read(self, tx: Transaction) -> list[View]:
        """Return the lines since the last call, in the order in which they were written."""
        rows = await tx.fetch_named(TAIL_LOGS, **self._params, after=self._after)
        new_rows = [row for row in rows if row.id not in self._seen]
        self._seen |= {row.id for row in new_rows}
        self._after = max((row.id for row in rows if row.age_seconds > LATE_SECONDS), default=self._after)
        self._seen = {row_id for row_id in self._seen if row_id > self._after}
        return [
            {"node_id": row.node_id, "attempt": row.attempt, **LINE_DEFAULTS, **line}
            for row in new_rows
            for line in orjson.loads(row.lines)
        ]
