"""Bulk operations: one job cancels or retries every job that matches a filter, step by step.

The operation is a row with a cursor. A step cancels or retries the next few jobs and moves the cursor in
the same transaction. After a crash the next attempt continues from the cursor: it processes no job twice
and omits none. The job of the operation is an ordinary job, so it can be listed, awaited, cancelled and
retried.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import psycopg

from cograil.definitions import read_workflow
from cograil.errors import (
    AlreadyTerminal,
    CograilError,
    JobNotFound,
    NotFinished,
    NotFound,
    UsageError,
)
from cograil.model.handler_ownership import ENGINE
from cograil.model.ids import new_id
from cograil.store import bulk_queries as store
from cograil.store.bulk_queries import BulkOperation, JobFilter
from cograil.store.database import Transaction
from cograil.verbs.advance import EngineContext
from cograil.verbs.cancel import cancel
from cograil.verbs.publish import publish
from cograil.verbs.retry import retry
from cograil.verbs.submit import Submission, submit

__all__ = [
    "HANDLER",
    "BulkForecast",
    "BulkOperation",
    "JobFilter",
    "begin_bulk",
    "find_bulk",
    "outcome_of",
    "preview_bulk",
    "step_bulk",
]

WORKFLOW_ID = HANDLER = "cograil.bulk"
STEP_JOBS = 50  # their locks are held until the step commits
SHOWN_IDS = 20

# The states that each verb accepts, and its default states.
STATUSES = {"cancel": ("pending", "running"), "retry": ("failed", "cancelled")}
USUAL_STATUSES = {"cancel": ("pending", "running"), "retry": ("failed",)}

WORKFLOW = f"""\
workflow_id: {WORKFLOW_ID}
name: Cancel or retry many jobs
inputs:
  operation: {{type: string, description: The row in bulk_operations that is stepped through.}}
  verb: {{type: string}}
  filter: {{type: object}}
nodes:
  step:
    handler: {HANDLER}
    queue: default
    params: {{operation: "{{{{ inputs.operation }}}}"}}
    timeout_seconds: 86400
    retry: {{max_attempts: 10, initial_delay_seconds: 1}}
"""


@dataclass(frozen=True, slots=True)
class BulkForecast:
    """The jobs that an operation would process: their number, and the first of them."""

    verb: str
    filter: dict[str, Any]
    count: int
    ids: tuple[str, ...]


async def preview_bulk(
    tx: Transaction, verb: str, wanted: JobFilter, tenant: str = "default"
) -> BulkForecast:
    """Return the jobs that `begin_bulk` would process now. Changes nothing; raises UsageError as it would."""
    wanted = _completed(verb, wanted)
    ids, count = await store.match_jobs(tx, tenant, wanted, tx.now, after=None, limit=SHOWN_IDS)
    return BulkForecast(verb, wanted.as_json(), count, tuple(ids))


async def begin_bulk(
    tx: Transaction,
    engine_context: EngineContext,
    verb: str,
    wanted: JobFilter,
    *,
    by: str = "",
    reason: str = "",
    tenant: str = "default",
) -> str:
    """Submit the job that cancels or retries the jobs that match the filter now; return its id.

    Raises UsageError for a status that the verb does not accept.
    """
    wanted = _completed(verb, wanted)
    _, total = await store.match_jobs(tx, tenant, wanted, tx.now, after=None, limit=1)
    published = await publish(tx, read_workflow(WORKFLOW, app=ENGINE), WORKFLOW, tenant)
    operation_id = new_id()
    job_input = {"operation": operation_id, "verb": verb, "filter": wanted.as_json()}
    submission = Submission(
        WORKFLOW_ID, job_input, definition_id=published.definition_id, submitted_by=by or None, app=ENGINE
    )
    (job_id,) = await submit(tx, engine_context, [submission], tenant)
    await store.make_operation(
        tx, BulkOperation(operation_id, tenant, job_id, verb, wanted, by, reason, total)
    )
    return job_id


def _completed(verb: str, wanted: JobFilter) -> JobFilter:
    """Return the filter with the default states of the verb."""
    if wrong := set(wanted.statuses) - set(STATUSES[verb]):
        allowed = " or ".join(STATUSES[verb])
        raise UsageError(f"{verb} is for jobs that are {allowed}, not {', '.join(sorted(wrong))}")
    return replace(wanted, statuses=wanted.statuses or USUAL_STATUSES[verb])


async def step_bulk(
    tx: Transaction, engine_context: EngineContext, operation_id: str, job_id: str, *, limit: int = STEP_JOBS
) -> BulkOperation:
    """Process the next jobs of the operation on behalf of this job; return the operation after this step.

    The operation is over when it is finished, or when its job has ended. Raises NotFound for an unknown
    operation.
    """
    operation = await store.lock_operation(tx, operation_id, job_id)
    if operation is None:
        raise NotFound(f"bulk operation {operation_id} does not exist")
    if operation.finished_at is not None or not operation.is_wanted:
        return operation
    assert operation.created_at is not None
    ids, _ = await store.match_jobs(
        tx, operation.tenant_id, operation.filter, operation.created_at, after=operation.cursor, limit=limit
    )
    for target_id in ids:
        await _process_job(tx, engine_context, operation, target_id)
    operation.job_id = job_id
    operation.cursor = ids[-1] if ids else operation.cursor
    if len(ids) < limit:
        _finish(tx, operation)
    await store.move_operation(tx, operation)
    return operation


def _finish(tx: Transaction, operation: BulkOperation) -> None:
    operation.finished_at = tx.now
    if (missing := operation.total - operation.ended) > 0:
        operation.count("skipped", "no_longer_fits", "its status had changed by then", missing)


async def _process_job(
    tx: Transaction, engine_context: EngineContext, operation: BulkOperation, job_id: str
) -> None:
    """Cancel or retry one job and record the outcome. An error is rolled back for this job alone."""
    try:
        async with tx.connection.transaction():
            skipped = await _apply_verb(tx, engine_context, operation, job_id)
    except (AlreadyTerminal, NotFinished, JobNotFound) as error:
        operation.count("skipped", error.code, str(error))
    except CograilError as error:
        operation.count("failed", error.code, str(error))
    except psycopg.Error:
        raise  # a failure of the database, not of this job: the step is repeated
    except Exception as error:
        operation.count("failed", type(error).__name__, str(error)[:200])
    else:
        operation.count("skipped", *skipped) if skipped else operation.count("done")


async def _apply_verb(
    tx: Transaction, engine_context: EngineContext, operation: BulkOperation, job_id: str
) -> tuple[str, str] | None:
    """Cancel or retry this job. Returns the code and message of the reason when it has nothing to do."""
    if operation.verb == "cancel":
        status = await cancel(tx, engine_context, job_id, by=operation.by, reason=operation.reason)
        if status != "cancelled":
            return "ended_first", f"job {job_id} was {status} before it could be cancelled"
        return None
    if again := await store.find_retry(tx, job_id):
        return "already_retried", f"job {job_id} was retried as {again}"
    await retry(tx, engine_context, job_id, by=operation.by)
    return None


async def find_bulk(tx: Transaction, job_id: str, tenant: str = "default") -> BulkOperation:
    """Return the bulk operation of this job. Raises NotFound when the job does not run one."""
    operation = await store.find_operation(tx, job_id, tenant)
    if operation is None:
        raise NotFound(f"job {job_id} is not a bulk operation")
    return operation


def outcome_of(operation: BulkOperation) -> dict[str, Any]:
    """Return the outcome of the operation as JSON."""
    return {
        "verb": operation.verb,
        "filter": operation.filter.as_json(),
        "total": operation.total,
        "done": operation.done,
        "failed": operation.failed,
        "skipped": operation.skipped,
        "reasons": operation.reasons,
        "is_finished": operation.finished_at is not None,
    }
