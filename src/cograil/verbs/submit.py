"""Submit: a job and its first advance, in one statement."""

from __future__ import annotations

from collections.abc import Sequence

from cograil.store.database import Transaction
from cograil.store.workflows import is_paused
from cograil.store.writing import Batch, NewJob
from cograil.verbs.advance import Decider, decide_first
from cograil.verbs.limits import write_and_hold
from cograil.verbs.making import Submission, find_definition, new_job, require_queues

Name = tuple[str, int | None, int | None]
Definition = tuple[int, bool]  # its id, and whether its workflow is paused

__all__ = ["Submission", "submit"]


async def submit(
    tx: Transaction, decider: Decider, submissions: Sequence[Submission], tenant: str = "default"
) -> list[str]:
    """Make these jobs, each with its first nodes dispatched; their ids, in the order given.

    Raises WorkflowNotFound, QueueNotNamed or InvalidInput, and then makes none.
    """
    batch = Batch()
    definitions: dict[Name, Definition] = {}
    ids = []
    for submission in submissions:
        definition_id, paused = await _resolve(tx, tenant, submission, definitions)
        workflow = await decider.catalog.get(tx, definition_id)
        if decider.strict_queues:
            require_queues(workflow)
        state = new_job(tx, tenant, submission, definition_id, workflow, is_paused=paused)
        changes = await decide_first(tx, decider, state)
        new = NewJob(workflow.workflow_id, workflow.version, submission.labels, submission.callback)
        batch.add(state, changes, new)
        ids.append(state.job_id)
    await write_and_hold(tx, decider.catalog, batch, decider.owner)
    return ids


async def _resolve(
    tx: Transaction, tenant: str, submission: Submission, known: dict[Name, Definition]
) -> Definition:
    name = (submission.workflow_id, submission.version, submission.definition_id)
    if name not in known:
        known[name] = await _find(tx, tenant, submission)
    return known[name]


async def _find(tx: Transaction, tenant: str, submission: Submission) -> Definition:
    if submission.definition_id is None:
        found = await find_definition(tx, tenant, submission.workflow_id, submission.version)
        return found.definition_id, found.is_paused
    return submission.definition_id, await is_paused(tx, tenant, submission.workflow_id)
