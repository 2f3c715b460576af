"""Approval nodes: the request, the decision of a person, and the timeout."""

from __future__ import annotations

from datetime import datetime, timedelta

from cograil.engine.working_copy import WorkingCopy, as_error, dump
from cograil.model.job import NodeState, NodeWrite, Signalled
from cograil.model.workflow import Approval, Json, NodeType, RenderError, WorkflowNode

DECISIONS = {"approve": "approved", "reject": "rejected"}


def request_approval(job: WorkingCopy, write: NodeWrite, node: WorkflowNode) -> None:
    """Request a decision. The node waits for a signal or for its timeout."""
    approval = node.approval
    assert approval is not None
    deadline = _deadline(job, approval)
    try:
        message = job.render(approval.message, node)
        approvers = list(approval.approvers)
        request = {"message": message, "approvers": approvers, "form": approval.form, "deadline": deadline}
        write.input = dump(request)
    except RenderError as error:
        job.fail(write, as_error(error))
        return
    if job.is_closing:
        return
    write.state.started_at = job.now
    write.state.not_before = deadline
    job.move(write, "wait")
    job.event("approval_requested", node.node_id, message=message, approvers=approvers, deadline=deadline)


def _deadline(job: WorkingCopy, approval: Approval) -> datetime | None:
    seconds = approval.timeout_seconds
    return None if seconds is None else job.now + timedelta(seconds=seconds)


def is_open(node: WorkflowNode, state: NodeState | None, now: datetime) -> bool:
    """Whether a signal to this node counts now."""
    is_waiting = node.type is NodeType.APPROVAL and state is not None and state.status == "waiting"
    return is_waiting and state is not None and (state.not_before is None or state.not_before > now)


def apply_signal(job: WorkingCopy, signal: Signalled) -> None:
    """Apply a decision. When the node does not wait for one, only record a warning."""
    node = job.workflow.nodes.get(signal.node_id)
    if node is None or not is_open(node, job.find(signal.node_id), job.now):
        message = f"{signal.name} by {signal.by} arrived while the node did not wait for it"
        job.event("warning", signal.node_id, code="late_signal", message=message, by=signal.by)
        return
    _decide(job, job.row(signal.node_id), DECISIONS[signal.name], signal.by, signal.reason, signal.data)


def time_out(job: WorkingCopy, write: NodeWrite, node: WorkflowNode) -> None:
    """End the node after its timeout: fail it or reject it, as the definition says."""
    assert node.approval is not None
    if node.approval.on_timeout == "fail":
        seconds = f"{node.approval.timeout_seconds:.15g}"
        job.fail(
            write,
            {
                "code": "approval_timeout",
                "message": f"the approval was not answered within {seconds} seconds",
            },
        )
    else:
        _decide(job, write, "rejected", None, "timeout", None)


def _decide(
    job: WorkingCopy, write: NodeWrite, decision: str, by: str | None, reason: str | None, data: Json
) -> None:
    output = {"decision": decision, "by": by, "reason": reason, "data": data}
    job.event("approval_decided", write.state.node_id, **output)
    job.complete(write, dump(output))
