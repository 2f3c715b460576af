"""Bulk operations: the jobs that match a filter, and the progress of an operation."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from cograil.store.array_params import uuids
from cograil.store.database import Transaction
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
    """A filter of jobs; a criterion that is not set matches every job."""

    statuses: tuple[str, ...] = ()
    workflow: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    correlation_id: str | None = None
    created_before: datetime | None = None
    created_after: datetime | None = None
    ids: tuple[str, ...] = ()  # only these, as selected in a list

    @property
    def is_empty(self) -> bool:
        """Whether every job matches."""
        return self == JobFilter()

    def as_json(self) -> dict[str, Any]:
        """Return the criteria that are set, for storage and display."""
        criteria = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in orjson.loads(orjson.dumps(criteria)).items() if value}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> JobFilter:
        """Return the filter that was stored."""
        values = dict(stored)
        values |= {name: tuple(stored.get(name, ())) for name in ("statuses", "ids")}
        for name in ("created_before", "created_after"):
            if name in stored:
                values[name] = datetime.fromisoformat(stored[name])
        return cls(**values)


@dataclass(slots=True)
class BulkOperation:
    """A bulk operation: the request and its progress."""

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
    is_wanted: bool = True  # the job that runs the operation has not ended

    @property
    def ended(self) -> int:
        """Return how many jobs are processed."""
        return self.done + self.failed + self.skipped

    def count(self, outcome: str, code: str = "", message: str = "", number: int = 1) -> None:
        """Count the outcome of a job; each reason is kept with its count and its first message."""
        setattr(self, outcome, getattr(self, outcome) + number)
        if code:
            entry = self.reasons.setdefault(code, {"outcome": outcome, "count": 0, "example": message})
            entry["count"] += number


def _operation(row: Any) -> BulkOperation:
    """Build the operation from a row whose columns are in the order of the fields."""
    operation = BulkOperation(*row)
    operation.filter = JobFilter.from_json(orjson.loads(row.filter))
    operation.reasons = orjson.loads(row.reasons)
    return operation


async def match_jobs(
    tx: Transaction, tenant: str, criteria: JobFilter, made_at: datetime, *, after: str | None, limit: int
) -> tuple[list[str], int]:
    """Return the next jobs that match, and how many match after `after` in total."""
    rows = await tx.fetch(
        MATCH_JOBS,
        tenant=tenant,
        after=after or FIRST_ID,
        made_at=made_at,
        statuses=list(criteria.statuses),
        workflow=criteria.workflow,
        correlation_id=criteria.correlation_id,
        labels=orjson.dumps(criteria.labels).decode() if criteria.labels else None,
        created_before=criteria.created_before,
        created_after=criteria.created_after,
        ids=uuids(criteria.ids) if criteria.ids else None,
        limit=limit,
    )
    ids = [job_id for job_id, _ in rows]
    return ids, next((total for _, total in rows), 0)


async def make_operation(tx: Transaction, operation: BulkOperation) -> None:
    """Insert a new operation."""
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


async def lock_operation(tx: Transaction, operation_id: str, job_id: str) -> BulkOperation | None:
    """Lock and return the operation; None when there is none."""
    rows = await tx.fetch_named(LOCK_OPERATION, id=operation_id, job=job_id)
    return next((_operation(row) for row in rows), None)


async def move_operation(tx: Transaction, operation: BulkOperation) -> None:
    """Store the progress of the operation."""
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


async def find_operation(tx: Transaction, job_id: str, tenant: str = "default") -> BulkOperation | None:
    """Return the operation that this job runs; None if it is not the job of one."""
    rows = await tx.fetch_named(FIND_OPERATION, tenant=tenant, job=job_id)
    return next((_operation(row) for row in rows), None)


async def find_retry(tx: Transaction, job_id: str) -> str | None:
    """Return the latest retry of this job, or None."""
    rows = await tx.fetch(FIND_RETRY, job=job_id)
    return next((str(retry_id) for (retry_id,) in rows), None)
