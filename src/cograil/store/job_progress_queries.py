"""The progress of a job, for polling: status, nodes and new events, without inputs and outputs."""

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
class NodeProgressSnapshot:
    """The progress of one node; for a fan-out also the number of ended children."""

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
    backing_off: int = 0  # children of a fan-out that wait for their next attempt


@dataclass(frozen=True, slots=True)
class JobProgressSnapshot:
    """The progress of a job at `now`, by the clock of the database. Pending nodes are not in `nodes`."""

    job_id: str
    status: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    now: datetime
    nodes: dict[str, NodeProgressSnapshot] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return self.status in JOB_TERMINAL


async def load_progress(tx: Transaction, job_id: str, tenant: str = "default") -> JobProgressSnapshot:
    """Return the progress of the job and its nodes, without children. Raises JobNotFound."""
    jobs = await tx.fetch(WATCH_JOB, tenant=tenant, job=job_id)
    if not jobs:
        raise JobNotFound(job_id)
    nodes = await tx.fetch_as(NodeProgressSnapshot, WATCH_NODES, tenant=tenant, job=job_id)
    status, created_at, started_at, finished_at, now = jobs[0]
    by_id = {node.node_id: node for node in nodes}
    return JobProgressSnapshot(job_id, status, created_at, started_at, finished_at, now, by_id)


async def is_over(tx: Transaction, job_id: str, tenant: str = "default") -> bool:
    """Return whether the job has ended. Raises JobNotFound."""
    for row in await tx.fetch_named(WATCH_JOB, tenant=tenant, job=job_id):
        return row.status in JOB_TERMINAL
    raise JobNotFound(job_id)


async def new_events(tx: Transaction, job_id: str, after: int, tenant: str = "default") -> list[View]:
    """Return the events of the job after this seq, without those of children."""
    rows = await tx.fetch(WATCH_EVENTS, tenant=tenant, job=job_id, after=after)
    return [event_view(job_id, row) for row in rows]


def read_prefix(text: str) -> str:
    """Return the hexadecimal digits of an id or a prefix of one.

    Raises JobNotFound when the text cannot be an id, UsageError for a prefix of less than 8 digits.
    """
    digits = text.strip().lower().replace("-", "")
    if re.fullmatch(r"[0-9a-f]{1,7}", digits):
        raise UsageError(f"{text!r} is too short for a prefix of a job's id: give at least 8 characters")
    if not re.fullmatch(r"[0-9a-f]{8,32}", digits):
        raise JobNotFound(repr(text[:80]))
    return digits


async def resolve_job(tx: Transaction, text: str, tenant: str = "default") -> str:
    """Return the id of the job that `text` names: a complete id, or a prefix of at least 8 digits.

    Raises JobNotFound, also when the text cannot be an id, UsageError for a shorter prefix, and Conflict when
    several jobs have the prefix.
    """
    digits = read_prefix(text)
    low, high = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
    ids: list[str] = [job_id for (job_id,) in await tx.fetch(FIND_JOB_IDS, tenant=tenant, low=low, high=high)]
    if not ids:
        raise JobNotFound(text)
    if len(ids) > 1:
        raise Conflict(f"several jobs begin with {text}, such as {ids[0]} and {ids[1]}; give more characters")
    return ids[0]
