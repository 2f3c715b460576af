"""A new job: the submission of its caller, validated, and its first state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cograil import strict_json, tracing
from cograil.definitions import apply_inputs
from cograil.definitions.suggestions import Suggestions
from cograil.engine.limit_keys import limit_of_job
from cograil.errors import InvalidInput, Problem, QueueNotNamed, WorkflowNotFound
from cograil.model.hop_count import HOP
from cograil.model.ids import new_id
from cograil.model.job import JobState, TaskLimit
from cograil.model.workflow import Json, RenderError, Workflow
from cograil.store import workflow_queries
from cograil.store.database import Transaction

MAX_WORD = 64
MAX_LABELS = 64
MAX_INPUT_BYTES = 64 * 1024 * 1024
OLDEST = datetime(1970, 1, 1, tzinfo=UTC)  # the start time of a job lies between these
FURTHEST = timedelta(days=3660)


@dataclass(frozen=True, slots=True)
class Submission:
    """The submission of a job. With `definition_id` (a draft), workflow and version are not looked up."""

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
    app: str | None = None  # that starts a job of a workflow of its own


async def find_definition(
    tx: Transaction, tenant: str, workflow_id: str, version: int | None
) -> workflow_queries.ResolvedVersion:
    """Return the published version, the newest without `version`. Raises WorkflowNotFound."""
    workflow_version = await workflow_queries.find_workflow(tx, tenant, workflow_id, version)
    if workflow_version is None:
        raise WorkflowNotFound(workflow_id, version)
    return workflow_version


def require_queues(workflow: Workflow) -> None:
    """Raise QueueNotNamed when a task of this workflow does not name its queue."""
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
    suggestions: Suggestions | None = None,
) -> JobState:
    """Return the state of a new job. Raises InvalidInput."""
    text, deadline = checked(tx, submission, workflow, suggestions)
    job_id = new_id()
    return JobState(
        job_id=job_id,
        tenant_id=tenant,
        definition_id=definition_id,
        status="pending",
        input_text=text,
        seq=0,
        created_at=tx.now,
        priority=submission.priority,
        not_before=submission.not_before,
        deadline=deadline,
        correlation_id=submission.correlation_id,
        submitted_by=submission.submitted_by,
        trace_parent=tracing.new_job_traceparent(job_id, submission.trace_parent),
        trace_caller=submission.trace_parent,
        is_held=workflow.limit is not None,
        is_paused=is_paused,
    )


def checked(
    tx: Transaction, submission: Submission, workflow: Workflow, suggestions: Suggestions | None = None
) -> tuple[bytes, datetime | None]:
    """Return the input with its defaults, and the deadline of the job. Raises InvalidInput."""
    if problems := list(_problems(submission, tx.now)):
        raise InvalidInput(problems)
    job_input = apply_inputs(workflow, submission.input, suggestions)
    limit_of_new("", workflow, job_input)
    begins_at = max(tx.now, submission.not_before or tx.now)
    limit = workflow.timeout_seconds
    return input_text(job_input), None if limit is None else begins_at + timedelta(seconds=limit)


def limit_of_new(tenant: str, workflow: Workflow, job_input: Json) -> TaskLimit | None:
    """Return the limit under which a job with this input begins. Raises InvalidInput for an invalid key."""
    try:
        return limit_of_job(tenant, workflow, job_input)
    except RenderError as error:
        raise InvalidInput([Problem(error.code, str(error), "/limits/key")]) from error


def _problems(submission: Submission, now: datetime) -> Iterator[Problem]:
    """Yield the problems of the submission other than those of its input."""
    if not 0 <= submission.priority <= 10:
        yield Problem(
            "invalid_value", f"priority is {submission.priority}; it must be from 0 to 10", "/priority"
        )
    for name in ("correlation_id", "submitted_by"):
        text = getattr(submission, name)
        if text is not None and (len(text) > MAX_WORD or "\0" in text):
            yield Problem("invalid_value", f"{name} must have at most {MAX_WORD} characters", f"/{name}")
    if submission.labels is not None and not _are_labels(submission.labels):
        message = f"labels must be at most {MAX_LABELS} texts of at most 255 characters, keys of at most 63"
        yield Problem("invalid_value", message, "/labels")
    if submission.not_before is not None and not OLDEST <= submission.not_before <= now + FURTHEST:
        yield Problem("out_of_range", "not_before must be within the next ten years", "/not_before")


def _are_labels(labels: Json) -> bool:
    """Return whether these are labels: a submission from SQL may contain any value."""
    return (
        isinstance(labels, dict)
        and len(labels.keys() - {HOP}) <= MAX_LABELS
        and all(len(key) <= 63 and isinstance(text, str) and len(text) <= 255 for key, text in labels.items())
    )


def input_text(job_input: dict[str, Json]) -> bytes:
    """Return the input as JSON that the database can store. Callers limit its size."""
    try:
        return strict_json.write(job_input, max_bytes=MAX_INPUT_BYTES)
    except strict_json.InvalidJson as error:
        raise InvalidInput([Problem(error.code, error.message, error.pointer)]) from error
