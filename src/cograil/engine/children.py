"""Subworkflow nodes: a job of their own that the node waits for. Its end is news (`attempts.end_child`)."""

from __future__ import annotations

from datetime import timedelta

from cograil.engine.working_copy import Board, as_error, dump
from cograil.model.job import NodeWrite, Refused, WantedJob
from cograil.model.workflow import Json, Node, RenderError
from cograil.strict_json import kind_of


def begin(board: Board, write: NodeWrite, node: Node) -> None:
    """Begin the next attempt: a new child job. Asks for one to be prepared first, which may be refused."""
    assert node.subworkflow is not None
    name, version = node.subworkflow.workflow_id, node.subworkflow.version
    try:
        inputs = _inputs(board, node)
        write.input = dump({"workflow_id": name, "version": version, "inputs": inputs})
        child = (board.outputs.jobs or {}).get(node.node_id)
        if isinstance(child, Refused):
            raise RenderError(child.code, child.message)
    except RenderError as error:
        board.fail(write, as_error(error))
        return
    if board.is_closing:
        return
    if child is None:
        board.missing_jobs += (WantedJob(node.node_id, name, version, inputs),)
        return
    state = write.state
    state.attempt += 1
    seconds = node.longest_wait_seconds
    state.not_before = None if seconds is None else board.now + timedelta(seconds=seconds)
    state.started_at = board.now
    board.move(write, "wait")
    board.children += (child,)
    board.event(
        "child_started",
        node.node_id,
        job_id=child.state.job_id,
        workflow_id=child.workflow_id,
        workflow_version=child.workflow_version,
        attempt=state.attempt,
    )


def _inputs(board: Board, node: Node) -> dict[str, Json]:
    assert node.subworkflow is not None
    if node.subworkflow.inputs is None:
        return {}
    inputs = board.render(node.subworkflow.inputs, node)
    if not isinstance(inputs, dict):
        raise RenderError("invalid_inputs", f"inputs of {node.node_id} are {kind_of(inputs)}, not an object")
    return inputs
