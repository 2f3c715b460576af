"""What a job waits for when it has no task: an approval, a timer, a retry or its start."""

from __future__ import annotations

from cograil.engine.working_copy import WorkingCopy
from cograil.model.job import NodeState

LIVE = frozenset({"dispatched", "running"})
WAITING_FOR = ("approval", "timer", "retry", "start")  # in order of precedence


def waiting_for(job: WorkingCopy) -> str | None:
    """Return what the job waits for; None while one of its tasks runs, is queued or is held."""
    if job.status == "pending":
        begins_at = job.state.not_before
        return "start" if begins_at is not None and begins_at > job.now else None
    if job.status != "running" or job.tasks or job.to_expand or job.children:
        return None
    reasons = {_reason(job, state) for state in _open_nodes(job)}
    if None in reasons:
        return None
    if _has_live_children(job):
        return None
    return next((reason for reason in WAITING_FOR if reason in reasons), None)


def _open_nodes(job: WorkingCopy) -> list[NodeState]:
    """Return the nodes that have started and not ended, without the children of fan-outs."""
    states = [job.find(name) for name in job.workflow.nodes]
    statuses = ("ready", "dispatched", "running", "waiting")
    return [state for state in states if state is not None and state.status in statuses]


def _reason(job: WorkingCopy, state: NodeState) -> str | None:
    if state.total is not None and state.status == "running":
        return "retry"
    if state.status == "ready":
        return None if state.not_before is None else "retry"
    if state.status != "waiting":
        return None
    node = job.workflow.nodes[state.node_id]
    if node.subworkflow is not None:
        return None
    return "timer" if node.approval is None else "approval"


def _has_live_children(job: WorkingCopy) -> bool:
    """Whether a fan-out has open children other than those that wait for a retry."""
    if not job.workflow.has_fan_outs:
        return False
    fan_outs = [state for state in _open_nodes(job) if state.total is not None and state.status == "running"]
    open_children = sum([(state.total or 0) - state.ended for state in fan_outs])
    loaded = [state for state in job.timed_nodes() if state.parent is not None and state.status == "ready"]
    return open_children > len(loaded) + job.state.children_sleeping
