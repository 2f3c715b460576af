"""Approvals: a node that waits for a person, and what an answer or silence means."""

from __future__ import annotations

from datetime import datetime, timedelta

from cograil.engine.working_copy import WorkingCopy, as_error, dump
from cograil.model.job import NodeState, NodeWrite, Signalled
from cograil.model.workflow import Approval, Json, Node, NodeType, RenderError

DECISIONS = {"approve": "approved", "reject": "rejected"}


def ask(job: WorkingCopy, write: NodeWrite, node: Node) -> None:
    """Put the question; the node waits until somebody answers or its time is up."""
    approval = node.approval
    assert approval is not None
    deadline = _deadline(job, approval)
    try:
        message = job.render(approval.message, node)
        approvers = list(approval.approvers)
        asked = {"message": message, "approvers": approvers, "form": approval.form, "deadline": deadline}
        write.input = dump(asked)
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


def is_open(node: Node, state: NodeState | None, now: datetime) -> bool:
    """Whether an answer to this node counts now."""
    is_asked = node.type is NodeType.APPROVAL and state is not None and state.status == "waiting"
    return is_asked and state is not None and (state.not_before is None or state.not_before > now)


def answer(job: WorkingCopy, news: Signalled) -> None:
    """Somebody decided. An answer that nobody waits for is only recorded."""
    node = job.workflow.nodes.get(news.node_id)
    if node is None or not is_open(node, job.find(news.node_id), job.now):
        message = f"{news.name} by {news.by} came when nobody waited for it"
        job.event("warning", news.node_id, code="late_signal", message=message, by=news.by)
        return
    _decide(job, job.row(news.node_id), DECISIONS[news.name], news.by, news.reason, news.data)


def time_out(job: WorkingCopy, write: NodeWrite, node: Node) -> None:
    """Nobody answered in time."""
    assert node.approval is not None
    if node.approval.on_timeout == "fail":
        seconds = f"{node.approval.timeout_seconds:.15g}"
        job.fail(write, {"code": "approval_timeout", "message": f"nobody answered within {seconds} seconds"})
    else:
        _decide(job, write, "rejected", None, "timeout", None)


def _decide(
    job: WorkingCopy, write: NodeWrite, decision: str, by: str | None, reason: str | None, data: Json
) -> None:
    output = {"decision": decision, "by": by, "reason": reason, "data": data}
    job.event("approval_decided", write.state.node_id, **output)
    job.complete(write, dump(output))
