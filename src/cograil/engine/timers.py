"""Timers of a job: its start, backoffs, waits, its deadline and its next wake-up."""

from __future__ import annotations

from datetime import datetime

from cograil.engine import attempts, fan_out, node_start
from cograil.engine.limit_keys import limit_of
from cograil.engine.working_copy import WorkingCopy, as_error
from cograil.model.job import JobState, NodeWrite
from cograil.model.states import JOB_TERMINAL
from cograil.model.workflow import RenderError, WorkflowNode


def start_if_due(job: WorkingCopy) -> bool:
    """Start a pending job when it is due. Returns False while it must wait."""
    if job.status != "pending":
        return True
    if job.state.is_held or job.state.is_paused:
        return False
    if job.state.not_before is not None and job.state.not_before > job.now:
        return False
    job.move_job("start")
    job.started_at = job.now
    first = next((name for name, node in job.workflow.nodes.items() if not node.predecessors), None)
    job.event("job_started", first_node=first)
    return True


def apply_due(job: WorkingCopy) -> None:
    """Apply the backoffs, waits and approvals whose time has come."""
    for state in job.timed_nodes():
        node_id = state.node_id
        if state.not_before is None or state.not_before > job.now:
            continue
        if state.status == "ready":
            if not job.is_exhausted():
                _redispatch(job, node_id)
        elif state.status == "waiting":
            node_start.end_wait(job, job.row(node_id), job.workflow.nodes[node_id])


def _redispatch(job: WorkingCopy, node_id: str) -> None:
    """Dispatch the next attempt with the params of the last one, or start a node that had no attempt yet."""
    write = job.row(node_id)
    node = job.definition_of(write.state)
    if write.state.attempt > 0 and node.subworkflow is None:
        _dispatch_again(job, write, node)
    elif node_start.has_inputs(job, node):
        write.state.not_before = None
        node_start.start_node(job, write, node) if write.state.parent is None else fan_out.begin_child(
            job, write, node
        )


def _dispatch_again(job: WorkingCopy, write: NodeWrite, node: WorkflowNode) -> None:
    limit = None
    if node.limit is not None:
        if not job.has_outputs_for(node):
            return
        index = write.state.index
        try:
            limit = limit_of(job, node) if index is None else fan_out.limit_of_child(job, node, index)
        except RenderError as error:
            job.fail(write, as_error(error))
            return
    attempts.dispatch(job, write, node, None, limit)


def wake_at(job: WorkingCopy) -> datetime | None:
    """Return when to wake the job without an input; None when only an input can move it.

    A job that is paused or held by a limit ignores its timers: an input arrives when that ends.
    """
    times = []
    begins_at, wakes_at = job.state.not_before, job.state.children_wake_at
    if job.status == "pending":
        if begins_at is not None and begins_at > job.now:
            times.append(begins_at)
    else:
        if not job.state.is_paused:
            times = [state.not_before for state in job.timed_nodes() if state.not_before is not None]
        if wakes_at is not None:
            times.append(wakes_at)
    if job.state.deadline is not None:
        times.append(job.state.deadline)
    return min(times, default=None)


def is_past_deadline(state: JobState, now: datetime) -> bool:
    """Whether the job ends now by its deadline. Its tasks must be revoked first."""
    return state.status not in JOB_TERMINAL and state.deadline is not None and state.deadline <= now
