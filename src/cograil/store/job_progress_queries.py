"""Looking at a job again and again: what moves, without what its nodes took and returned."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from cograil.errors import Conflict, JobNotFound, UsageError
from cograil.model.states import JOB_TERMINAL
from cograil.store.database import Transaction
from cograil.store.job_queries import View, event_view
from cograil.store.statements import statement

WATCH_JOB = statement("watch_job")
WATCH_NODES = statement("watch_nodes")
WATCH_EVENTS = statement("watch_events")
FIND_JOB_IDS = statement("find_job_ids")

MIN_PREFIX = 8


@dataclass(frozen=True, slots=True)
class NodeGlance:
    """One node as it is now; of a fan-out also how many of its children ended."""

    node_id: str
    status: str = "pending"
    attempt: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    not_before: datetime | None = None
    skip_reason: str | None = None
    taken_branch: str | None = None
    total: int | None = None
    ended: int = 0
    failed: int = 0
    current: float | None = None
    out_of: float | None = None
    message: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    backing_off: int = 0  # of a fan-out: children that wait to be tried again


@dataclass(frozen=True, slots=True)
class JobGlance:
    """A job at the moment `now`, by the clock of the database. Pending nodes are not in `nodes`."""

    job_id: str
    status: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    now: datetime
    nodes: dict[str, NodeGlance] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return self.status in JOB_TERMINAL


async def glance(tx: Transaction, job_id: str, tenant: str = "default") -> JobGlance:
    """The job and its nodes, children left out. Raises JobNotFound."""
    jobs = await tx.fetch(WATCH_JOB, tenant=tenant, job=job_id)
    if not jobs:
        raise JobNotFound(job_id)
    rows = await tx.fetch(WATCH_NODES, tenant=tenant, job=job_id)
    status, created_at, started_at, finished_at, now = jobs[0]
    nodes = {row[0]: NodeGlance(*row) for row in rows}
    return JobGlance(job_id, status, created_at, started_at, finished_at, now, nodes)


async def is_over(tx: Transaction, job_id: str, tenant: str = "default") -> bool:
    """Whether the job has ended. Raises JobNotFound."""
    rows = await tx.fetch(WATCH_JOB, tenant=tenant, job=job_id)
    if not rows:
        raise JobNotFound(job_id)
    return rows[0][0] in JOB_TERMINAL


async def new_events(tx: Transaction, job_id: str, after: int, tenant: str = "default") -> list[View]:
    """The job's events after this number, without those of children."""
    rows = await tx.fetch(WATCH_EVENTS, tenant=tenant, job=job_id, after=after)
    return [event_view(job_id, row) for row in rows]


async def resolve_job(tx: Transaction, text: str, tenant: str = "default") -> str:
    """The id that a person means: a whole one, or the beginning of one (8 digits or more).

    Raises JobNotFound, also for what cannot be an id, UsageError for too little of one, and Conflict when
    several jobs begin like that.
    """
    digits = text.strip().lower().replace("-", "")
    if re.fullmatch(r"[0-9a-f]{1,7}", digits):
        raise UsageError(f"{text!r} is too short for the beginning of a job's id: give at least 8 characters")
    if not re.fullmatch(r"[0-9a-f]{8,32}", digits):
        raise JobNotFound(repr(text[:80]))
    low, high = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
    rows = await tx.fetch(FIND_JOB_IDS, tenant=tenant, low=low, high=high)
    if not rows:
        raise JobNotFound(text)
    if len(rows) > 1:
        raise Conflict(
            f"several jobs begin with {text}, such as {rows[0][0]} and {rows[1][0]}; give more of it"
        )
    found: str = rows[0][0]
    return found
