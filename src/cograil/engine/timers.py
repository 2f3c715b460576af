"""What time does to a job: its start, the end of back-offs and waits, its deadline, its next wake-up."""

from __future__ import annotations

from datetime import datetime

from cograil.engine import attempts, fan_out, node_start
from cograil.engine.limit_keys import limit_of
from cograil.engine.working_copy import WorkingCopy, as_error
from cograil.model.job import JobState, NodeWrite
from cograil.model.states import JOB_TERMINAL
from cograil.model.workflow import Node, RenderError


def start_if_due(job: WorkingCopy) -> bool:
    """A pending job starts when its time has come. False while it must wait."""
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
    """Backoffs, waits and approvals whose time is over."""
    for state in job.timed_nodes():
        node_id = state.node_id
        if state.not_before is None or state.not_before > job.now:
            continue
        if state.status == "ready":
            if not job.has_spent_all():
                _redispatch(job, node_id)
        elif state.status == "waiting":
            node_start.end_wait(job, job.row(node_id), job.workflow.nodes[node_id])


def _redispatch(job: WorkingCopy, node_id: str) -> None:
    """The next attempt, with the params of the one before; a node that never got that far renders them."""
    write = job.row(node_id)
    node = job.definition_of(write.state)
    if write.state.attempt > 0 and node.subworkflow is None:
        _dispatch_again(job, write, node)
    elif node_start.has_inputs(job, node):
        write.state.not_before = None
        node_start.start_node(job, write, node) if write.state.parent is None else fan_out.begin_child(
            job, write, node
        )


def _dispatch_again(job: WorkingCopy, write: NodeWrite, node: Node) -> None:
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
    """When to look at this job again though nothing happens.

    A job that is paused or held back by a limit sleeps on past its moments: news tell when that is over.
    """
    moments = []
    begins_at, wakes_at = job.state.not_before, job.state.children_wake_at
    if job.status == "pending":
        if begins_at is not None and begins_at > job.now:
            moments.append(begins_at)
    else:
        if not job.state.is_paused:
            moments = [state.not_before for state in job.timed_nodes() if state.not_before is not None]
        if wakes_at is not None:
            moments.append(wakes_at)
    if job.state.deadline is not None:
        moments.append(job.state.deadline)
    return min(moments, default=None)


def is_past_deadline(state: JobState, now: datetime) -> bool:
    """Whether this advance will end the job by its deadline: its tasks must be revoked first."""
    return state.status not in JOB_TERMINAL and state.deadline is not None and state.deadline <= now
