"""Pause and resume: a queue, a workflow, or one job.

Running tasks continue to their end. A paused queue hands out no tasks. A paused job, or a job of a paused
workflow, records its inputs and starts nothing new; its deadline still counts. Cancel and retry work as
usual.
"""

from __future__ import annotations

from cograil.definitions.mapping_reader import WORD
from cograil.errors import AlreadyTerminal, Conflict, InvalidInput, JobNotFound, Problem, WorkflowNotFound
from cograil.model.states import JOB_TERMINAL
from cograil.store import locked_jobs, pause_queries
from cograil.store.database import Transaction
from cograil.store.workflow_queries import find_workflow

MAX_WORD = 256


async def pause_job(tx: Transaction, job_id: str, *, by: str = "", reason: str = "") -> None:
    """Pause a job. Raises JobNotFound, AlreadyTerminal, or Conflict when it is paused already."""
    _check_words(by, reason)
    await _lock(tx, job_id)
    if not await pause_queries.pause_job(tx, job_id, by, reason):
        raise Conflict(f"job {job_id} is paused already")


async def resume_job(tx: Transaction, job_id: str) -> None:
    """Resume a job. Raises JobNotFound, AlreadyTerminal, or Conflict when it is not paused."""
    await _lock(tx, job_id)
    if not await pause_queries.resume_job(tx, job_id):
        raise Conflict(f"job {job_id} is not paused")


async def pause_queue(
    tx: Transaction, queue: str, *, by: str = "", reason: str = "", tenant: str = "default"
) -> None:
    """Stop handing out tasks of this queue. Raises Conflict when it is paused already."""
    _check_words(by, reason)
    if not WORD.fullmatch(queue):
        message = (
            f"{queue[:80]!a} is not the name of a queue: that has 1 to 64 characters, no blanks and no braces"
        )
        raise InvalidInput([Problem("invalid_value", message, "")])
    if not await pause_queries.pause_name(tx, tenant, "queue", queue, by, reason):
        raise Conflict(f"queue {queue!r} is paused already")


async def resume_queue(tx: Transaction, queue: str, *, tenant: str = "default") -> None:
    """Resume a queue. Raises Conflict when it is not paused."""
    if not await pause_queries.resume_name(tx, tenant, "queue", queue):
        raise Conflict(f"queue {queue!r} is not paused")


async def pause_workflow(
    tx: Transaction, workflow_id: str, *, by: str = "", reason: str = "", tenant: str = "default"
) -> None:
    """Start nothing new in the jobs of this workflow, future jobs included. Raises WorkflowNotFound or
    Conflict.
    """
    _check_words(by, reason, workflow_id)
    if await find_workflow(tx, tenant, workflow_id, None) is None:
        raise WorkflowNotFound(workflow_id, None)
    if not await pause_queries.pause_name(tx, tenant, "workflow", workflow_id, by, reason):
        raise Conflict(f"workflow {workflow_id!r} is paused already")


async def resume_workflow(tx: Transaction, workflow_id: str, *, tenant: str = "default") -> None:
    """Resume a workflow. Raises Conflict when it is not paused."""
    if not await pause_queries.resume_name(tx, tenant, "workflow", workflow_id):
        raise Conflict(f"workflow {workflow_id!r} is not paused")


async def _lock(tx: Transaction, job_id: str) -> None:
    locked = await locked_jobs.lock_jobs(tx, [job_id])
    if job_id not in locked.states:
        raise JobNotFound(job_id)
    status = locked.states[job_id].status
    if status in JOB_TERMINAL:
        raise AlreadyTerminal(job_id, status)


def _check_words(*words: str) -> None:
    if any(len(word) > MAX_WORD or "\0" in word for word in words):
        message = f"a name or reason has more than {MAX_WORD} characters, or NUL"
        raise InvalidInput([Problem("invalid_value", message, "")])
