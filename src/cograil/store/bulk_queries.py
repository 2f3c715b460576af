"""Operations on many jobs: which jobs fit a filter, and how far an operation is."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from cograil.store.array_params import uuids
from cograil.store.database import Row, Transaction
from cograil.store.retention_queries import FIRST_ID
from cograil.store.statements import statement

MATCH_JOBS = statement("match_jobs")
MAKE_OPERATION = statement("make_operation")
LOCK_OPERATION = statement("lock_operation")
MOVE_OPERATION = statement("move_operation")
FIND_OPERATION = statement("find_operation")
FIND_RETRY = statement("find_retry")


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs; what is not said does not matter."""

    statuses: tuple[str, ...] = ()
    workflow: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    correlation_id: str | None = None
    created_before: datetime | None = None
    created_after: datetime | None = None
    ids: tuple[str, ...] = ()  # only these, as somebody chose them in a list

    @property
    def is_empty(self) -> bool:
        """Whether every job fits."""
        return self == JobFilter()

    def as_json(self) -> dict[str, Any]:
        """What is said, for storing and showing."""
        said = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in orjson.loads(orjson.dumps(said)).items() if value}

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> JobFilter:
        """The filter that was stored."""
        values = dict(said)
        values |= {name: tuple(said.get(name, ())) for name in ("statuses", "ids")}
        for name in ("created_before", "created_after"):
            if name in said:
                values[name] = datetime.fromisoformat(said[name])
        return cls(**values)


@dataclass(slots=True)
class Operation:
    """A bulk operation: what was asked for, and what has come of it so far."""

    operation_id: str
    tenant_id: str
    job_id: str
    verb: str
    filter: JobFilter
    by: str
    reason: str
    total: int
    cursor: str | None = None
    done: int = 0
    failed: int = 0
    skipped: int = 0
    reasons: dict[str, dict[str, Any]] = field(default_factory=dict)
    created_at: datetime | None = None
    finished_at: datetime | None = None
    is_wanted: bool = True  # the job that steps through it has not ended

    @property
    def ended(self) -> int:
        """How many jobs it is through with."""
        return self.done + self.failed + self.skipped

    def count(self, outcome: str, code: str = "", message: str = "", number: int = 1) -> None:
        """Note what became of a job; of each reason how often, with its first message."""
        setattr(self, outcome, getattr(self, outcome) + number)
        if code:
            noted = self.reasons.setdefault(code, {"outcome": outcome, "count": 0, "example": message})
            noted["count"] += number


def _operation(row: Row) -> Operation:
    values = list(row)
    values[4] = JobFilter.from_json(orjson.loads(row[4]))
    values[12] = orjson.loads(row[12])
    return Operation(*values)


async def match_jobs(
    tx: Transaction, tenant: str, wanted: JobFilter, made_at: datetime, *, after: str | None, limit: int
) -> tuple[list[str], int]:
    """The next jobs that fit, and how many fit beyond `after` in all."""
    rows = await tx.fetch(
        MATCH_JOBS,
        tenant=tenant,
        after=after or FIRST_ID,
        made_at=made_at,
        statuses=list(wanted.statuses),
        workflow=wanted.workflow,
        correlation_id=wanted.correlation_id,
        labels=orjson.dumps(wanted.labels).decode() if wanted.labels else None,
        created_before=wanted.created_before,
        created_after=wanted.created_after,
        ids=uuids(wanted.ids) if wanted.ids else None,
        limit=limit,
    )
    return [row[0] for row in rows], rows[0][1] if rows else 0


async def make_operation(tx: Transaction, operation: Operation) -> None:
    """Keep a new operation."""
    await tx.execute(
        MAKE_OPERATION,
        id=operation.operation_id,
        tenant=operation.tenant_id,
        job=operation.job_id,
        verb=operation.verb,
        filter=orjson.dumps(operation.filter.as_json()).decode(),
        by=operation.by,
        reason=operation.reason,
        total=operation.total,
        at=tx.now,
    )


async def lock_operation(tx: Transaction, operation_id: str, job_id: str) -> Operation | None:
    """The operation, ours until the transaction ends; None when there is none."""
    rows = await tx.fetch(LOCK_OPERATION, id=operation_id, job=job_id)
    return _operation(rows[0]) if rows else None


async def move_operation(tx: Transaction, operation: Operation) -> None:
    """Write how far it is."""
    await tx.execute(
        MOVE_OPERATION,
        id=operation.operation_id,
        job=operation.job_id,
        cursor=operation.cursor,
        done=operation.done,
        failed=operation.failed,
        skipped=operation.skipped,
        reasons=orjson.dumps(operation.reasons).decode(),
        finished_at=operation.finished_at,
    )


async def find_operation(tx: Transaction, job_id: str, tenant: str = "default") -> Operation | None:
    """The operation that this job steps through, None if it is no such job."""
    rows = await tx.fetch(FIND_OPERATION, tenant=tenant, job=job_id)
    return _operation(rows[0]) if rows else None


async def find_retry(tx: Transaction, job_id: str) -> str | None:
    """The job in which this one was last run again."""
    rows = await tx.fetch(FIND_RETRY, job=job_id)
    return rows[0][0] if rows else None
