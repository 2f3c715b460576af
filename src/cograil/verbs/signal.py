"""Signal: answer an approval."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cograil import strict_json
from cograil.definitions.form_answers import find_misfits
from cograil.engine.approvals import DECISIONS, is_open
from cograil.errors import (
    AlreadyTerminal,
    Conflict,
    Forbidden,
    InvalidInput,
    JobNotFound,
    NodeNotFound,
    Problem,
    UsageError,
)
from cograil.model.job import JobState, NodeState, Signalled
from cograil.model.states import JOB_TERMINAL
from cograil.model.workflow import Json, WorkflowNode
from cograil.store import locked_jobs as store
from cograil.store import retry_queries
from cograil.store.database import Transaction
from cograil.verbs.advance import EngineContext, advance_locked

MAX_NAME, MAX_REASON = 64, 2000
MAX_DATA_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """The decision, and the status of the job after it."""

    decision: str  # approved | rejected
    job_status: str


async def signal(
    tx: Transaction, engine_context: EngineContext, job_id: str, answer: Signalled
) -> ApprovalAnswer:
    """Answer an approval that waits; the first answer counts.

    Raises JobNotFound, NodeNotFound, InvalidInput for an answer that does not match the form, Forbidden for
    a user who is not an approver, AlreadyTerminal, or Conflict when the node does not wait for an answer:
    not yet, already answered, or timed out.
    """
    if answer.name not in DECISIONS:
        raise UsageError(f"unknown signal {answer.name!r}; send one of {', '.join(DECISIONS)}")
    locked = await store.lock_jobs(tx, [job_id])
    if job_id not in locked.states:
        raise JobNotFound(job_id)
    job = locked.states[job_id]
    workflow = await engine_context.definitions.get(tx, job.definition_id)
    node = workflow.nodes.get(answer.node_id)
    if node is None:
        raise NodeNotFound(job_id, answer.node_id)
    state = await retry_queries.load_node(tx, job_id, answer.node_id)
    _check(tx, job, node, state, answer)
    await _check_form(node, answer)
    decided = await advance_locked(tx, engine_context, locked, signals={job_id: [answer]})
    return ApprovalAnswer(DECISIONS[answer.name], decided[job_id].status)


def waiting_approval(job: Mapping[str, Json], nodes: Iterable[Mapping[str, Json]]) -> str:
    """Return the only approval of a job that waits, for a signal without a node name.

    Raises AlreadyTerminal or Conflict when none waits, InvalidInput when several do.
    """
    waiting: list[str] = [
        node["node_id"] for node in nodes if node["type"] == "approval" and node["status"] == "waiting"
    ]
    if not waiting and job["status"] in JOB_TERMINAL:
        raise AlreadyTerminal(job["job_id"], job["status"])
    if not waiting:
        raise Conflict(f"no approval of job {job['job_id']} waits for an answer")
    if len(waiting) > 1:
        message = (
            f"{len(waiting)} approvals wait for an answer: {', '.join(waiting)}; name one of these nodes"
        )
        raise InvalidInput([Problem("node_not_named", message, "/node_id")])
    return waiting[0]


def _check(
    tx: Transaction, job: JobState, node: WorkflowNode, state: NodeState | None, answer: Signalled
) -> None:
    """Raise unless this answer counts. The caller holds the job's lock, so the result stays valid."""
    approval = node.approval
    if approval is None:
        raise Conflict(f"node {node.node_id!r} of job {job.job_id} is not an approval node")
    if job.status in JOB_TERMINAL:
        raise AlreadyTerminal(job.job_id, job.status)
    if not is_open(node, state, tx.now):
        raise Conflict(f"node {node.node_id!r} of job {job.job_id} {_why_closed(state)}")
    if approval.approvers and answer.by not in approval.approvers:
        approvers = ", ".join(approval.approvers)
        raise Forbidden(
            f"{answer.by or 'nobody'} may not answer {node.node_id!r}; its approvers are {approvers}"
        )
    if problems := list(_problems(answer)):
        raise InvalidInput(problems)


def _why_closed(state: NodeState | None) -> str:
    if state is not None and state.status == "waiting":
        return "does not wait any more: its time is up"
    if state is not None and state.status == "completed":
        return "was answered already"
    return f"is {'pending' if state is None else state.status}, and does not wait for an answer"


def _problems(answer: Signalled) -> Iterator[Problem]:
    for name, most in (("by", MAX_NAME), ("reason", MAX_REASON)):
        text = getattr(answer, name)
        if text is not None and (len(text) > most or "\0" in text):
            yield Problem("invalid_value", f"{name} must have at most {most} characters", f"/{name}")
    try:
        strict_json.write(answer.data, max_bytes=MAX_DATA_BYTES)
    except strict_json.InvalidJson as error:
        yield Problem(error.code, error.message, f"/data{error.pointer}")


async def _check_form(node: WorkflowNode, answer: Signalled) -> None:
    """Raise InvalidInput when the values do not match the form. A rejection may leave the form empty.

    Runs in a thread, because both the form and the answer come from callers.
    """
    form = None if node.approval is None else node.approval.form
    if form is None or (answer.data is None and answer.name == "reject"):
        return
    data = {} if answer.data is None else answer.data
    if problems := await asyncio.to_thread(find_misfits, form, data):
        raise InvalidInput(problems)
