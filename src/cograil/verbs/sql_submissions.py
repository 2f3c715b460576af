"""Jobs that were submitted from SQL: validated here, where the workflow language is known."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from cograil.errors import InvalidInput, Problem, Problems, UsageError
from cograil.model.job import InvalidSubmission, JobState
from cograil.model.workflow import Json
from cograil.settings import OutboundSettings
from cograil.store import locked_jobs as store
from cograil.store.database import Transaction
from cograil.store.locked_jobs import LockedJobs, News
from cograil.verbs.callback_targets import check_callback
from cograil.verbs.definition_cache import DefinitionCache
from cograil.verbs.new_job import Submission, checked, require_queues
from cograil.verbs.workflow_ownership import check_starter


async def open_submitted(
    tx: Transaction,
    definitions: DefinitionCache,
    locked: LockedJobs,
    news: News,
    *,
    strict_queues: bool,
    outbound: OutboundSettings,
) -> list[JobState]:
    """Complete the state of newly submitted jobs; return those that wait for a limit.

    A job with an invalid submission gets an input with the reason and fails by it, because its caller is
    gone.
    """
    opened = []
    for job_id, labels, callback in await store.load_submitted(tx, locked.new):
        state = locked.states[job_id]
        workflow = await definitions.get(tx, state.definition_id)
        try:
            _check_callback(state, callback, outbound)
            check_starter(workflow, None)
            if strict_queues:
                require_queues(workflow)
            state.input_text, state.deadline = checked(tx, _submission(state, labels), workflow)
        except UsageError as error:
            news[job_id].append(_misfit(error))
            continue
        state.is_held = workflow.limit is not None
        opened.append(state)
    if opened:
        await store.open_jobs(tx, opened)
    return [state for state in opened if state.is_held]


def _check_callback(state: JobState, text: bytes | None, outbound: OutboundSettings) -> None:
    """Raise InvalidInput for a refused callback, before it could receive the job's failure."""
    has_callback, state.has_callback = state.has_callback, False
    callback = _read(text, "/callback")
    if callback is not None:
        check_callback(callback, outbound)
    state.has_callback = has_callback


def _submission(state: JobState, labels: bytes | None) -> Submission:
    """Return the submission as its caller wrote it. Raises InvalidInput."""
    return Submission(
        workflow_id="",  # the statement joined it
        input=_read(state.input_text, "/input"),
        priority=state.priority,
        correlation_id=state.correlation_id,
        submitted_by=state.submitted_by,
        labels=_read(labels, "/labels"),
        not_before=state.not_before,
    )


def _read(text: bytes | None, pointer: str) -> Json:
    """Parse JSON text. Values of type jsonb may have numbers and nesting that this reader refuses."""
    try:
        return None if text is None else orjson.loads(text)
    except orjson.JSONDecodeError as error:
        problem = Problem("invalid_value", f"cannot be read: {error.msg}", pointer)
        raise InvalidInput([problem]) from error


def _misfit(error: UsageError) -> InvalidSubmission:
    problems: Iterable[Problem] = error.problems if isinstance(error, Problems) else ()
    details = [
        {"code": problem.code, "message": problem.message, "pointer": problem.pointer} for problem in problems
    ]
    return InvalidSubmission(error.code, str(error)[:2000], details)
