"""Submit: a job and its first advance, in one statement."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from cograil.definitions.suggestions import Suggestions
from cograil.errors import CograilError, NotFound, UsageError
from cograil.store.api_keys import AuditRecord
from cograil.store.database import Transaction
from cograil.store.workflow_queries import is_paused
from cograil.store.write_batch import JobAttributes, NewJobRow, WriteBatch
from cograil.verbs.advance import EngineContext, decide_first
from cograil.verbs.allowance import StepAllowance
from cograil.verbs.callback_targets import check_callback
from cograil.verbs.new_job import Submission, find_definition, new_job, require_queues
from cograil.verbs.persist import persist
from cograil.verbs.workflow_ownership import check_starter

Name = tuple[str, int | None, int | None]
Definition = tuple[int, bool]  # its id, and whether its workflow is paused

JOBS_PER_SLICE = 20  # after these, other coroutines get their turn on the event loop

__all__ = ["Submission", "submit", "submit_each"]


async def submit(
    tx: Transaction, engine_context: EngineContext, submissions: Sequence[Submission], tenant: str = "default"
) -> list[str]:
    """Create these jobs, each with its first nodes dispatched; return their ids in the same order.

    Raises WorkflowNotFound, WorkflowReserved, QueueNotNamed or InvalidInput, and then creates none.
    """
    results = await submit_each(tx, engine_context, submissions, tenant, is_all_or_none=True)
    return [job.job_id for job in results if isinstance(job, NewJobRow)]


async def submit_each(
    tx: Transaction,
    engine_context: EngineContext,
    submissions: Sequence[Submission],
    tenant: str = "default",
    *,
    entries: Sequence[AuditRecord] = (),
    is_all_or_none: bool = False,
) -> list[NewJobRow | CograilError]:
    """Create the jobs that are valid; return for each its row or its error.

    `entries`, one for each job, are written to the audit log with the jobs.
    """
    batch = WriteBatch()
    definitions: dict[Name, Definition] = {}
    results: list[NewJobRow | CograilError] = []
    shared = _Shared(batch, definitions, StepAllowance(), Suggestions())
    for number, submission in enumerate(submissions):
        if number % JOBS_PER_SLICE == JOBS_PER_SLICE - 1:
            await asyncio.sleep(0)
        try:
            results.append(await _add(tx, engine_context, tenant, submission, shared))
        except (UsageError, NotFound) as error:
            if is_all_or_none:
                raise
            results.append(error)
    for entry, job in zip(entries, results, strict=False):
        if isinstance(job, NewJobRow):
            batch.audit.rows.append(entry.of(job.job_id).row())
    await persist(tx, engine_context.definitions, batch, engine_context.owner)
    return results


class _Shared(NamedTuple):
    """What the jobs of one submission share."""

    batch: WriteBatch
    definitions: dict[Name, Definition]
    steps: StepAllowance
    suggestions: Suggestions


async def _add(
    tx: Transaction,
    engine_context: EngineContext,
    tenant: str,
    submission: Submission,
    shared: _Shared,
) -> NewJobRow:
    definition_id, paused = await _resolve(tx, tenant, submission, shared.definitions)
    workflow = await engine_context.definitions.get(tx, definition_id)
    check_starter(workflow, submission.app)
    if engine_context.strict_queues:
        require_queues(workflow)
    if submission.callback is not None:
        check_callback(submission.callback, engine_context.outbound)
    state = new_job(
        tx, tenant, submission, definition_id, workflow, is_paused=paused, suggestions=shared.suggestions
    )
    changes = await decide_first(tx, engine_context, state, shared.steps)
    new = JobAttributes(workflow.workflow_id, workflow.version, submission.labels, submission.callback)
    return shared.batch.add_new(state, changes, new)


async def _resolve(
    tx: Transaction, tenant: str, submission: Submission, known: dict[Name, Definition]
) -> Definition:
    name = (submission.workflow_id, submission.version, submission.definition_id)
    if name not in known:
        known[name] = await _find(tx, tenant, submission)
    return known[name]


async def _find(tx: Transaction, tenant: str, submission: Submission) -> Definition:
    if submission.definition_id is None:
        definition = await find_definition(tx, tenant, submission.workflow_id, submission.version)
        return definition.definition_id, definition.is_paused
    return submission.definition_id, await is_paused(tx, tenant, submission.workflow_id)
