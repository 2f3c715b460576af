"""The end of a job: whether it is over, its status, its result and its error."""

from __future__ import annotations

import orjson

from cograil.engine.working_copy import WorkingCopy, dump
from cograil.model.job import Changes, InvalidSubmission, NodeState
from cograil.model.states import NODE_TERMINAL
from cograil.model.workflow import Json, RenderError, Template


def is_over(job: WorkingCopy) -> bool:
    """Whether every node of the workflow is terminal."""
    return not job.tasks and all([job.status_of(node_id) in NODE_TERMINAL for node_id in job.workflow.nodes])


def finish(job: WorkingCopy) -> Changes:
    """End the job: failed if a required node failed, else completed with its result."""
    states = _states(job)
    failed = [state for state in states if _is_failure(job, state)]
    if failed:
        return _fail(job, failed)
    result = _result(job, states) if job.workflow.outputs is None else _outputs(job)
    job.move_job("complete")
    seconds = (job.now - job.state.created_at).total_seconds()
    count = len(job.workflow.nodes) + sum([state.total or 0 for state in states])  # children are nodes too
    job.event("job_completed", duration_seconds=round(seconds, 6), node_count=count)
    changes = _terminal(job)
    changes.result = result
    return changes


def time_out(job: WorkingCopy) -> Changes:
    """Fail the job at its deadline. Its tasks were revoked before."""
    job.move_job("fail")
    message = f"the job did not end within {job.workflow.timeout_seconds:.15g} seconds"
    error = {"code": "job_timeout", "message": message}
    job.event("job_failed", error=error, failed_nodes=[])
    return _closing(job, error)


def cancel(job: WorkingCopy, by: str, reason: str) -> Changes:
    """Cancel the job. Its tasks were revoked before."""
    job.move_job("cancel")
    job.event("job_cancelled", by=by, reason=reason)
    return _closing(job, {"code": "cancelled", "message": reason or "the job was cancelled"})


def refuse(job: WorkingCopy, invalid: InvalidSubmission) -> Changes:
    """Fail a job whose submission is invalid. None of its nodes has started."""
    error: dict[str, Json] = {"code": invalid.code, "message": invalid.message, "details": invalid.details}
    job.move_job("fail")
    job.event("job_failed", error=error, failed_nodes=[])
    return _closing(job, error)


def fail_fast(job: WorkingCopy) -> Changes:
    """Fail the job after the failure of a required node, with `fail_fast`. Its tasks were revoked before."""
    error = _record_failure(job, failures(job))
    return _closing(job, error)


def failures(job: WorkingCopy) -> list[NodeState]:
    """Return the required nodes that failed, and required fan-outs with a failed child."""
    return [state for state in _states(job) if _is_failure(job, state)]


def _closing(job: WorkingCopy, error: dict[str, Json]) -> Changes:
    has_children = any(
        [node.subworkflow and job.status_of(name) == "waiting" for name, node in job.workflow.nodes.items()]
    )
    for node_id in job.workflow.nodes:
        if job.status_of(node_id) not in NODE_TERMINAL:
            job.move(job.row(node_id), "cancel")
    job.tasks.clear()
    job.to_expand.clear()
    changes = _terminal(job)
    changes.error = error
    changes.closes_nodes = True
    changes.cancels_children = has_children
    return changes


def _fail(job: WorkingCopy, failed: list[NodeState]) -> Changes:
    error = _record_failure(job, failed)
    changes = _terminal(job)
    changes.error = error
    return changes


def _record_failure(job: WorkingCopy, failed: list[NodeState]) -> dict[str, Json]:
    """Fail the job; return its error: the first error and the names of all failed nodes."""
    first = min(failed, key=lambda state: state.finished_at or job.now)
    error = {**_error_of(first), "node_id": _failed_names(first)[0]}
    names = [name for state in failed for name in _failed_names(state)]
    job.move_job("fail")
    job.event("job_failed", error=error, failed_nodes=names)
    return {**error, "failed_nodes": names}


def _failed_names(state: NodeState) -> list[str]:
    """Return the node itself, or the failed children of a fan-out that completed."""
    children: list[str] = [] if state.status == "failed" else state.error["children"]
    return children or [state.node_id]


def _error_of(state: NodeState) -> dict[str, Json]:
    error: dict[str, Json] = state.error if state.status == "failed" else state.error["first"]
    return error


def _terminal(job: WorkingCopy) -> Changes:
    changes = job.changes(wake_at=None)
    changes.finished_at = job.now
    return changes


def _states(job: WorkingCopy) -> list[NodeState]:
    return [state for node_id in job.workflow.nodes if (state := job.find(node_id)) is not None]


def _is_failure(job: WorkingCopy, state: NodeState) -> bool:
    if state.status != "failed" and not state.failed:
        return False
    return job.workflow.nodes[state.node_id].required


def _outputs(job: WorkingCopy) -> bytes:
    """Render the declared outputs. An output that cannot be rendered is null; the job still completes."""
    outputs = job.workflow.outputs or {}
    read = frozenset().union(*(template.references for template in outputs.values()))
    completed = [name for name in read if job.status_of(name) == "completed"]
    job.missing.update([name for name in completed if name not in job.outputs.raw])
    if job.missing:
        return b""
    return dump({name: _output(job, name, template) for name, template in outputs.items()})


def _output(job: WorkingCopy, name: str, template: Template) -> Json:
    job.budget.begin_node()
    try:
        return orjson.Fragment(dump(job.render(template, None)))
    except RenderError as error:
        if all([job.status_of(node_id) == "completed" for node_id in template.references]):
            job.event("warning", message=f"output {name} is null: {error}", code=error.code)
        return None


def _result(job: WorkingCopy, states: list[NodeState]) -> bytes:
    """Return the outputs of all completed nodes by name, with their provenance."""
    completed = [state.node_id for state in states if state.status == "completed"]
    raw = job.outputs.raw
    job.missing.update([name for name in completed if name not in raw])
    result: dict[str, Json] = {name: orjson.Fragment(text) for name in completed if (text := raw.get(name))}
    result["_provenance"] = {
        "workflow_id": job.workflow.workflow_id,
        "workflow_version": job.workflow.version,
        "job_id": job.state.job_id,
        "completed_at": job.now,
    }
    return dump(result)
