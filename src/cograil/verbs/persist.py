"""Persist: the one place where decided changes are written.

Submit, advance and retry collect their decisions in a `Batch` and call `persist`. It writes the batch,
counts it in the metrics after the commit, and keeps the queues of workflow limits up to date.
"""

from __future__ import annotations

from functools import partial

import orjson

from cograil.model.job import JobState, TaskLimit
from cograil.store import limit_queries
from cograil.store.database import Transaction
from cograil.store.write_batch import WriteBatch, write_batch
from cograil.verbs.definition_cache import DefinitionCache
from cograil.verbs.new_job import limit_of_new
from cograil.verbs.telemetry import note_written


async def persist(
    tx: Transaction, definitions: DefinitionCache, batch: WriteBatch, owner: int | None
) -> None:
    """Write this batch. A new job of a workflow with a limit is held until it is admitted.

    A job that ends leaves the queue of its limit, or frees its slot. `owner` is the id of the
    orchestrator that writes: it looks for the next admissible job itself. Any other caller passes None,
    and an orchestrator is notified when a limit may have a free slot.
    """
    ended = {state.definition_id for state, _ in batch.finished}
    workflows = {definition_id: await definitions.get(tx, definition_id) for definition_id in ended}
    batch.has_held |= owner is None and any([workflow.has_limits for workflow in workflows.values()])
    limited = [
        state.job_id for state, _ in batch.finished if workflows[state.definition_id].limit is not None
    ]
    await write_batch(tx, batch, owner)
    tx.afterwards(partial(note_written, definitions.known, batch))
    if batch.held_jobs:
        held = [(job, await _load_limit(tx, definitions, job)) for job in batch.held_jobs]
        await limit_queries.hold_jobs(tx, held)
    if limited:
        await limit_queries.leave_lines(tx, limited)


async def _load_limit(tx: Transaction, definitions: DefinitionCache, job: JobState) -> TaskLimit:
    workflow = await definitions.get(tx, job.definition_id)
    limit = limit_of_new(job.tenant_id, workflow, orjson.loads(job.input_text))
    assert limit is not None
    return limit
