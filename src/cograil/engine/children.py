"""Subworkflow nodes: the node waits for a child job, whose end is an input (`attempts.end_child`)."""

from __future__ import annotations

from datetime import timedelta

from cograil.engine.working_copy import WorkingCopy, as_error, dump
from cograil.model.job import ChildRefused, ChildRequest, NodeWrite
from cograil.model.workflow import Json, RenderError, WorkflowNode
from cograil.strict_json import kind_of


def start_child_job(job: WorkingCopy, write: NodeWrite, node: WorkflowNode) -> None:
    """Start the next attempt with a new child job.

    Without a prepared child job, request one in `missing_jobs`. The node fails when it is refused.
    """
    assert node.subworkflow is not None
    name, version = node.subworkflow.workflow_id, node.subworkflow.version
    try:
        inputs = _inputs(job, node)
        write.input = dump({"workflow_id": name, "version": version, "inputs": inputs})
        child = (job.outputs.jobs or {}).get(node.node_id)
        if isinstance(child, ChildRefused):
            raise RenderError(child.code, child.message)
    except RenderError as error:
        job.fail(write, as_error(error))
        return
    if job.is_closing:
        return
    if child is None:
        job.missing_jobs += (ChildRequest(node.node_id, name, version, inputs),)
        return
    state = write.state
    state.attempt += 1
    seconds = node.longest_wait_seconds
    state.not_before = None if seconds is None else job.now + timedelta(seconds=seconds)
    state.started_at = job.now
    job.move(write, "wait")
    job.children += (child,)
    job.event(
        "child_started",
        node.node_id,
        job_id=child.state.job_id,
        workflow_id=child.workflow_id,
        workflow_version=child.workflow_version,
        attempt=state.attempt,
    )


def _inputs(job: WorkingCopy, node: WorkflowNode) -> dict[str, Json]:
    assert node.subworkflow is not None
    if node.subworkflow.inputs is None:
        return {}
    inputs = job.render(node.subworkflow.inputs, node)
    if not isinstance(inputs, dict):
        raise RenderError("invalid_inputs", f"inputs of {node.node_id} are {kind_of(inputs)}, not an object")
    return inputs
