"""Submit: a job and its first advance, in one statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cograil import jsontext
from cograil.definitions import apply_inputs
from cograil.errors import InvalidInput, Problem, QueueNotNamed, WorkflowNotFound
from cograil.model.ids import new_id
from cograil.model.job import Changes, JobState, Submitted
from cograil.model.workflow import Json, Workflow
from cograil.store import workflows
from cograil.store.database import Transaction
from cograil.store.writing import Batch, NewJob, write_batch
from cograil.verbs.advance import Decider, decide

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


async def submit(
    tx: Transaction, decider: Decider, submissions: Sequence[Submission], tenant: str = "default"
) -> list[str]:
    """Make these jobs, each with its first nodes dispatched; their ids, in the order given.

    Raises WorkflowNotFound, QueueNotNamed or InvalidInput, and then makes none.
    """
    batch = Batch()
    definitions: dict[tuple[str, int | None], int] = {}
    ids = []
    for submission in submissions:
        definition_id = submission.definition_id
        if definition_id is None:
            definition_id = await _resolve(tx, tenant, submission, definitions)
        workflow = await decider.catalog.get(tx, definition_id)
        if decider.strict_queues:
            _require_queues(workflow)
        state = _new_job(tx, tenant, submission, definition_id, workflow)
        changes = await decide_new(tx, decider, workflow, state)
        new = NewJob(workflow.workflow_id, workflow.version, submission.labels, submission.callback)
        batch.add(state, changes, new)
        ids.append(state.job_id)
    await write_batch(tx, batch, decider.owner)
    return ids


async def _resolve(
    tx: Transaction, tenant: str, submission: Submission, known: dict[tuple[str, int | None], int]
) -> int:
    name = (submission.workflow_id, submission.version)
    if name not in known:
        found = await workflows.find_workflow(tx, tenant, *name)
        if found is None:
            raise WorkflowNotFound(*name)
        known[name] = found[0]
    return known[name]


def _require_queues(workflow: Workflow) -> None:
    unnamed = [name for name, node in workflow.nodes.items() if node.handler and not node.has_own_queue]
    if unnamed:
        raise QueueNotNamed(workflow.workflow_id, unnamed)


def _new_job(
    tx: Transaction, tenant: str, submission: Submission, definition_id: int, workflow: Workflow
) -> JobState:
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
        input_text=_input_text(given),
        seq=0,
        created_at=tx.now,
        priority=submission.priority,
        not_before=submission.not_before,
        deadline=None if limit is None else begins_at + timedelta(seconds=limit),
        correlation_id=submission.correlation_id,
        submitted_by=submission.submitted_by,
        trace_parent=submission.trace_parent,
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


def _input_text(given: dict[str, Json]) -> bytes:
    """The input as JSON that the database can hold; its size is the business of the door."""
    try:
        return jsontext.write(given, max_bytes=MAX_INPUT_BYTES)
    except jsontext.InvalidJson as error:
        raise InvalidInput([Problem(error.code, error.message, error.pointer)]) from error


async def decide_new(tx: Transaction, decider: Decider, workflow: Workflow, state: JobState) -> Changes:
    """The first advance of a job that is being made; what it takes over from another is already stored."""
    return (await decide(tx, decider, {state.job_id: state}, {state.job_id: [Submitted()]}))[state.job_id]
