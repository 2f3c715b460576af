"""What `explain` asks the database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import orjson

from cograil.model.workflow import Json
from cograil.store.database import Row, Transaction
from cograil.store.statements import statement

EXPLAIN_LIMITS = statement("explain_limits")
EXPLAIN_LIMIT_HOLDERS = statement("explain_limit_holders")
EXPLAIN_PAUSES = statement("explain_pauses")
EXPLAIN_TASKS = statement("explain_tasks")
EXPLAIN_BACKOFFS = statement("explain_backoffs")
EXPLAIN_ENGINE = statement("explain_engine")


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """Tasks of one node, or of the children of one fan-out, in one state."""

    node_id: str
    parent: str | None
    queue: str
    handler: str
    state: str
    tasks: int
    oldest_at: datetime
    started_at: datetime | None
    worker: str | None
    workers: int
    workers_on_queue: int
    workers_able: int
    priority: int
    ahead: int | None  # ready tasks that a worker who could take the first of these would take before it
    ahead_here: int | None  # those of the same handler
    ahead_by_priority: int | None  # and of these, those of a higher priority
    is_alone: bool  # must run alone
    silent_able: int  # of the workers that could take it, those that have not been heard of for half a lease
    is_silent: bool  # whether that is so of the worker that runs it
    heard_at: datetime | None  # when that one pulsed last
    lease_until: datetime | None


@dataclass(frozen=True, slots=True)
class Moment:
    """A node, or children of one fan-out, that wait for a moment."""

    node_id: str
    parent: str | None
    status: str
    nodes: int
    until: datetime
    attempt: int
    error: Json


@dataclass(frozen=True, slots=True)
class EngineState:
    """Who could advance the job, its news that wait, and why a worker beside an orchestrator cannot start."""

    orchestrators: int
    news: int
    oldest_news_at: datetime | None
    now: datetime
    worker_error: str | None


async def task_groups(tx: Transaction, job_id: str) -> list[TaskGroup]:
    """The tasks of this job, oldest first."""
    return [TaskGroup(*row) for row in await tx.fetch(EXPLAIN_TASKS, job=job_id)]


async def moments(tx: Transaction, job_id: str) -> list[Moment]:
    """What this job waits for by the clock, soonest first."""
    rows = await tx.fetch(EXPLAIN_BACKOFFS, job=job_id)
    return [Moment(*(*row[:6], None if row[6] is None else orjson.loads(row[6]))) for row in rows]


async def engine_state(tx: Transaction, job_id: str) -> EngineState:
    """The engine as this job sees it."""
    return EngineState(*(await tx.fetch(EXPLAIN_ENGINE, job=job_id))[0])


class HeldBy(NamedTuple):
    """A limit that holds a job or tasks of it back. `what` is task or job."""

    what: str
    key: str
    node_id: str | None
    held: int
    concurrency: int | None
    rate: float | None
    per_seconds: float
    wait_seconds: float | None


async def held_by(tx: Transaction, job_id: str) -> list[HeldBy]:
    """The limits that hold this job or tasks of it back."""
    return [HeldBy(*row) for row in await tx.fetch(EXPLAIN_LIMITS, job=job_id)]


async def limit_holders(tx: Transaction, what: str, key: str) -> list[str]:
    """The jobs that have a place under this limit, some at least: nobody reads the names of thousands."""
    return [row[0] for row in await tx.fetch(EXPLAIN_LIMIT_HOLDERS, what=what, key=key)]


async def pauses(tx: Transaction, job_id: str) -> list[Row]:
    """(kind, name, by, reason, since) of what is paused that this job needs."""
    return await tx.fetch(EXPLAIN_PAUSES, job=job_id)
