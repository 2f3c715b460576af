"""Starting a node, by its type. All types but task and fan_out end at once or wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cograil.engine import approvals, attempts, children, fan_out
from cograil.engine.working_copy import WorkingCopy, as_error, dump
from cograil.model.job import NodeWrite
from cograil.model.workflow import Json, NodeType, RenderError, Template, WorkflowNode
from cograil.strict_json import kind_of

MAX_WAIT_SECONDS = 315_360_000  # ten years


def has_inputs(job: WorkingCopy, node: WorkflowNode) -> bool:
    """Whether every output that this node may read is loaded; records the missing ones."""
    return job.has_outputs_for(node) and _has_children_for(job, node)


def _has_children_for(job: WorkingCopy, node: WorkflowNode) -> bool:
    if node.type is not NodeType.FAN_IN:
        return True
    absent = {name for name in fan_out.fan_outs_before(job, node) if name not in job.outputs.children}
    job.missing_children |= absent
    return not absent


def start_node(job: WorkingCopy, write: NodeWrite, node: WorkflowNode) -> None:
    """Start a ready node."""
    match node.type:
        case NodeType.TASK:
            attempts.begin_task(job, write, node)
        case NodeType.START | NodeType.END:
            job.complete(write, None)
        case NodeType.CONDITIONAL:
            _take_branch(job, write, node)
        case NodeType.FAN_OUT:
            fan_out.begin_fan_out(job, write, node)
            fan_out.end_fan_out(job, node.node_id)
        case NodeType.FAN_IN:
            fan_out.begin_fan_in(job, write, node)
        case NodeType.WAIT:
            _begin_wait(job, write, node)
        case NodeType.APPROVAL:
            approvals.request_approval(job, write, node)
        case NodeType.SUBWORKFLOW:
            children.start_child_job(job, write, node)


def is_wanted(job: WorkingCopy, node: WorkflowNode, when: Template) -> bool:
    """Return the value of the node's `when`. Raises RenderError when it is not true or false."""
    value = job.render(when, node)
    if not isinstance(value, bool):
        raise RenderError("invalid_when", f"when of {node.node_id} is {kind_of(value)}, not true or false")
    return value


def _take_branch(job: WorkingCopy, write: NodeWrite, node: WorkflowNode) -> None:
    """Take the first branch whose condition is true; the default branch is last."""
    try:
        taken = next((b for b in node.branches if b.test is None or job.render(b.test, node) is True), None)
    except RenderError as error:
        job.fail(write, as_error(error))
        return
    if taken is None:
        job.fail(write, {"code": "no_branch", "message": "no branch matches and the node has no default"})
        return
    write.state.taken_branch = taken.name
    skipped = [branch.name for branch in node.branches if branch is not taken]
    job.complete(write, dump({"taken_branch": taken.name, "skipped_branches": skipped}))


def _begin_wait(job: WorkingCopy, write: NodeWrite, node: WorkflowNode) -> None:
    try:
        until = _wait_until(job, node)
    except RenderError as error:
        job.fail(write, as_error(error))
        return
    if job.is_closing and until > job.now:
        return
    write.state.started_at = job.now
    job.move(write, "wait")
    if until <= job.now:
        job.complete(write, dump({"waited_until": until.isoformat()}))
        return
    deadline = _wait_deadline(job.now, node)
    write.state.not_before = until if deadline is None else min(until, deadline)
    job.event("node_started", node.node_id, waits_until=until)


def _wait_deadline(began_at: datetime, node: WorkflowNode) -> datetime | None:
    """Return when the wait times out; None when its definition sets no timeout."""
    seconds = node.longest_wait_seconds
    return None if seconds is None else began_at + timedelta(seconds=seconds)


def end_wait(job: WorkingCopy, write: NodeWrite, node: WorkflowNode) -> None:
    """End a wait whose time has come: complete the node or time it out."""
    if node.approval is not None:
        approvals.time_out(job, write, node)
    elif node.subworkflow is not None:
        attempts.time_out_child(job, write, node)
    elif _has_timed_out(write, node):
        attempts.time_out(job, write, node)
    else:
        job.complete(write, dump({"waited_until": write.state.not_before}))


def _has_timed_out(write: NodeWrite, node: WorkflowNode) -> bool:
    """Whether the wait ended by its timeout and not by its own time."""
    began_at, until = write.state.started_at, write.state.not_before
    return began_at is not None and until is not None and until == _wait_deadline(began_at, node)


def _wait_until(job: WorkingCopy, node: WorkflowNode) -> datetime:
    """Return the end of the wait in UTC. A time outside the range of UTC cannot be stored."""
    try:
        if node.wait_seconds is not None:
            return job.now + timedelta(seconds=_check_seconds(job.render(node.wait_seconds, node)))
        assert node.wait_until is not None
        return _parse_time(node.node_id, job.render(node.wait_until, node)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise RenderError("invalid_wait", f"wait of {node.node_id}: {error}") from error


def _parse_time(node_id: str, value: Json) -> datetime:
    try:
        time = datetime.fromisoformat(str(value).upper())
    except ValueError:
        preview = repr(value)[:80]
        message = f"wait.until of {node_id} is {preview}, not a time such as 2026-01-31T09:00:00Z"
        raise RenderError("invalid_wait", message) from None
    if time.tzinfo is None:
        raise RenderError("invalid_wait", f"wait.until of {node_id} has no time zone")
    return time


def _check_seconds(value: Json) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= MAX_WAIT_SECONDS:
        message = f"wait.seconds is {repr(value)[:80]}, not a number from 0 to {MAX_WAIT_SECONDS}"
        raise RenderError("invalid_wait", message)
    return float(value)
