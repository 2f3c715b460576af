"""Child jobs of subworkflow nodes, validated before anything is written."""

from __future__ import annotations

from datetime import timedelta

from cograil import tracing
from cograil.errors import CograilError
from cograil.model.idempotency_keys import child_roots
from cograil.model.job import ChildRefused, ChildRequest, JobState
from cograil.model.workflow import NodeType, Workflow
from cograil.store import locked_jobs as store
from cograil.store.database import Transaction
from cograil.verbs.definition_cache import DefinitionCache
from cograil.verbs.new_job import Submission, find_definition, new_job, require_queues
from cograil.verbs.workflow_ownership import check_starter

MAX_ANCESTORS = 10
A_MOMENT = timedelta(microseconds=1)


async def new_child(
    tx: Transaction,
    definitions: DefinitionCache,
    parent: JobState,
    wanted: ChildRequest,
    *,
    strict_queues: bool,
) -> tuple[Workflow, JobState] | ChildRefused:
    """Return the first state of the job that this node requests, or why it is refused. Writes nothing.

    A child that may have children of its own starts a moment later in its own transaction, so a tree of
    jobs is never created at once.
    """
    if await _is_too_deep(tx, parent):
        message = f"{wanted.workflow_id} would have more than {MAX_ANCESTORS} ancestors"
        return ChildRefused("subworkflow_too_deep", message)
    try:
        definition = await find_definition(tx, parent.tenant_id, wanted.workflow_id, wanted.version)
        workflow = await definitions.get(tx, definition.definition_id)
        check_starter(workflow, (await definitions.get(tx, parent.definition_id)).app)
        if strict_queues:
            require_queues(workflow)
        submission = _submission(tx, parent, wanted, workflow)
        definition_id, is_paused = definition.definition_id, definition.is_paused
        state = new_job(tx, parent.tenant_id, submission, definition_id, workflow, is_paused=is_paused)
    except CograilError as error:
        return ChildRefused(error.code, str(error))
    state.parent_job = parent.job_id
    state.key_roots = child_roots(parent.key_roots, parent.job_id, wanted.node_id)
    return workflow, state


async def _is_too_deep(tx: Transaction, parent: JobState) -> bool:
    if parent.parent_job is None:
        return False
    return await store.count_ancestors(tx, parent.job_id, MAX_ANCESTORS) > MAX_ANCESTORS


def _submission(tx: Transaction, parent: JobState, wanted: ChildRequest, workflow: Workflow) -> Submission:
    has_children = any(node.type is NodeType.SUBWORKFLOW for node in workflow.nodes.values())
    return Submission(
        wanted.workflow_id,
        wanted.inputs,
        priority=parent.priority,
        correlation_id=parent.correlation_id,
        submitted_by=parent.submitted_by,
        not_before=tx.now + A_MOMENT if has_children else None,
        trace_parent=tracing.job_traceparent(parent.job_id, parent.trace_parent),
    )
