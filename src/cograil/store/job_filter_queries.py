"""Jobs by many criteria, and log lines as they are written: what the command line looks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import orjson

from cograil.model.states import DISPLAY_STATUSES
from cograil.store.database import Transaction
from cograil.store.job_queries import LAST_ID, View, job_view
from cograil.store.statements import statement

FILTER_JOBS = statement("filter_jobs")
TAIL_LOGS = statement("tail_logs")

FIRST_ID = str(UUID(int=0))
LATE_SECONDS = 10.0  # a row that is older has no neighbour with a lower id that is still to come


@dataclass(frozen=True, slots=True)
class JobCriteria:
    """Which jobs; nothing given means all of them."""

    statuses: Sequence[str] = ()
    workflow: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None
    error: str | None = None


async def filter_jobs(
    tx: Transaction,
    criteria: JobCriteria,
    *,
    tenant: str = "default",
    before: str | None = None,
    limit: int = 50,
) -> list[View]:
    """The newest jobs that meet all criteria; `before` is the last one of the page before."""
    rows = await tx.fetch(
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


def _first_id_at(moment: datetime) -> str:
    """The lowest id (UUID version 7) that could have been made at this moment."""
    milliseconds = min(max(0, int(moment.timestamp() * 1000)), 2**48 - 1)
    return str(UUID(int=milliseconds << 80))


class LogTail:
    """The log lines of a job, from the first one on, as often as somebody asks."""

    def __init__(self, job_id: str, node: str | None = None, tenant: str = "default") -> None:
        self._params = {"job": job_id, "node": node, "tenant": tenant}
        self._after = 0
        self._seen: set[int] = set()

    async def read(self, tx: Transaction) -> list[View]:
        """The lines that are new since the last call, in the order in which they were written."""
        rows = await tx.fetch(TAIL_LOGS, **self._params, after=self._after)
        fresh = [row for row in rows if row[0] not in self._seen]
        self._seen |= {row[0] for row in fresh}
        self._after = max((row[0] for row in rows if row[4] > LATE_SECONDS), default=self._after)
        self._seen = {seen for seen in self._seen if seen > self._after}
        return [
            {"node_id": node, "attempt": attempt, **line}
            for _, node, attempt, lines, _ in fresh
            for line in orjson.loads(lines)
        ]
