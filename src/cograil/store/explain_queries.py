"""The queries of `explain`."""

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
    ahead: int | None  # ready tasks that a worker which could run the first of these would claim before it
    ahead_here: int | None  # those of the same handler
    ahead_by_priority: int | None  # those of a higher priority among these
    is_exclusive: bool  # exclusive tasks
    silent_able: int  # of the workers that could run it, those without a heartbeat for half a lease
    is_silent: bool  # whether the worker that runs it is one of them
    heard_at: datetime | None  # time of that worker's last heartbeat
    lease_until: datetime | None


@dataclass(frozen=True, slots=True)
class WaitMoment:
    """A node, or children of one fan-out, that wait for a time."""

    node_id: str
    parent: str | None
    status: str
    nodes: int
    until: datetime
    attempt: int
    error: Json


@dataclass(frozen=True, slots=True)
class EngineState:
    """The live orchestrators, the inbox rows of the job, and why a worker beside an orchestrator cannot
    start.
    """

    orchestrators: int
    news: int
    oldest_news_at: datetime | None
    now: datetime
    worker_error: str | None


async def task_groups(tx: Transaction, job_id: str) -> list[TaskGroup]:
    """Return the tasks of this job, oldest first."""
    return [TaskGroup(*row) for row in await tx.fetch(EXPLAIN_TASKS, job=job_id)]


async def moments(tx: Transaction, job_id: str) -> list[WaitMoment]:
    """Return the times that this job waits for, soonest first."""
    rows = await tx.fetch(EXPLAIN_BACKOFFS, job=job_id)
    return [
        WaitMoment(
            node_id, parent, status, nodes, until, attempt, None if error is None else orjson.loads(error)
        )
        for node_id, parent, status, nodes, until, attempt, error in rows
    ]


async def engine_state(tx: Transaction, job_id: str) -> EngineState:
    """Return the state of the engine with respect to this job."""
    (row,) = await tx.fetch(EXPLAIN_ENGINE, job=job_id)
    return EngineState(*row)


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
    """Return the limits that hold this job or its tasks."""
    return [HeldBy(*row) for row in await tx.fetch(EXPLAIN_LIMITS, job=job_id)]


async def limit_holders(tx: Transaction, what: str, key: str) -> list[str]:
    """Return jobs that hold a slot of this limit, up to a bound."""
    return [job_id for (job_id,) in await tx.fetch(EXPLAIN_LIMIT_HOLDERS, what=what, key=key)]


async def pauses(tx: Transaction, job_id: str) -> list[Row]:
    """Return (kind, name, by, reason, since) of the pauses that affect this job."""
    return await tx.fetch(EXPLAIN_PAUSES, job=job_id)
