"""A job that is about to be made: what its caller says of it, checked, and its first state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cograil import jsontext
from cograil.definitions import apply_inputs
from cograil.errors import InvalidInput, Problem, QueueNotNamed, WorkflowNotFound
from cograil.model.ids import new_id
from cograil.model.job import JobState
from cograil.model.workflow import Json, Workflow
from cograil.store import workflows
from cograil.store.database import Transaction

MAX_WORD = 64
MAX_LABELS = 64
MAX_INPUT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Submission:
    """What a caller says of a job. With `definition_id` (a draft), workflow and version are not looked up."""

    workflow_id: str
    input: dict[str, Json] = field(default_factory=dict)
    version: int | None = None
    definition_id: int | None = None
    priority: int = 0
    correlation_id: str | None = None
    submitted_by: str | None = None
    labels: dict[str, str] | None = None
    not_before: datetime | None = None
    callback: dict[str, Json] | None = None
    trace_parent: str | None = None


async def find_definition(
    tx: Transaction, tenant: str, workflow_id: str, version: int | None
) -> workflows.Found:
    """The published version, the newest when none is named. Raises WorkflowNotFound."""
    found = await workflows.find_workflow(tx, tenant, workflow_id, version)
    if found is None:
        raise WorkflowNotFound(workflow_id, version)
    return found


def require_queues(workflow: Workflow) -> None:
    """Raises QueueNotNamed when a task of this workflow leaves its queue to chance."""
    unnamed = [name for name, node in workflow.nodes.items() if node.handler and not node.has_own_queue]
    if unnamed:
        raise QueueNotNamed(workflow.workflow_id, unnamed)


def new_job(
    tx: Transaction,
    tenant: str,
    submission: Submission,
    definition_id: int,
    workflow: Workflow,
    *,
    is_paused: bool = False,
) -> JobState:
    """The state of a new job. Raises InvalidInput."""
    if problems := list(_problems(submission)):
        raise InvalidInput(problems)
    given = apply_inputs(workflow, submission.input)
    begins_at = max(tx.now, submission.not_before or tx.now)
    limit = workflow.timeout_seconds
    return JobState(
        job_id=new_id(),
        tenant_id=tenant,
        definition_id=definition_id,
        status="pending",
        input_text=input_text(given),
        seq=0,
        created_at=tx.now,
        priority=submission.priority,
        not_before=submission.not_before,
        deadline=None if limit is None else begins_at + timedelta(seconds=limit),
        correlation_id=submission.correlation_id,
        submitted_by=submission.submitted_by,
        trace_parent=submission.trace_parent,
        is_held=workflow.limit is not None,
        is_paused=is_paused,
    )


def _problems(submission: Submission) -> Iterator[Problem]:
    """What is wrong with what the caller says of the job, beside its input."""
    if not 0 <= submission.priority <= 10:
        yield Problem("invalid_value", f"priority is {submission.priority}, not 0 to 10", "/priority")
    for name in ("correlation_id", "submitted_by"):
        text = getattr(submission, name)
        if text is not None and (len(text) > MAX_WORD or "\0" in text):
            yield Problem("invalid_value", f"{name} must have at most {MAX_WORD} characters", f"/{name}")
    labels = submission.labels or {}
    if len(labels) > MAX_LABELS or any(len(key) > 63 or len(value) > 255 for key, value in labels.items()):
        message = f"labels: at most {MAX_LABELS}, keys of at most 63 characters, values of at most 255"
        yield Problem("invalid_value", message, "/labels")


def input_text(given: dict[str, Json]) -> bytes:
    """The input as JSON that the database can hold; its size is the business of the door."""
    try:
        return jsontext.write(given, max_bytes=MAX_INPUT_BYTES)
    except jsontext.InvalidJson as error:
        raise InvalidInput([Problem(error.code, error.message, error.pointer)]) from error
