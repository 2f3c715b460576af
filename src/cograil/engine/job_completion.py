"""The end of a job: when it is over, how it ended, and what it leaves behind."""

from __future__ import annotations

import orjson

from cograil.engine.working_copy import Board, dump
from cograil.model.job import Changes, NodeState, NotFit
from cograil.model.states import NODE_TERMINAL
from cograil.model.workflow import Json, RenderError, Template


def is_over(board: Board) -> bool:
    """Whether every node of the workflow is terminal."""
    return not board.tasks and all(
        [board.status_of(node_id) in NODE_TERMINAL for node_id in board.workflow.nodes]
    )


def finish(board: Board) -> Changes:
    """The job is over: failed if a required node failed, else completed with its result."""
    states = _states(board)
    failed = [state for state in states if _is_failure(board, state)]
    if failed:
        return _fail(board, failed)
    result = _result(board, states) if board.workflow.outputs is None else _outputs(board)
    board.move_job("complete")
    seconds = (board.now - board.state.created_at).total_seconds()
    count = len(board.workflow.nodes) + sum([state.total or 0 for state in states])  # children are nodes too
    board.event("job_completed", duration_seconds=round(seconds, 6), node_count=count)
    changes = _terminal(board)
    changes.result = result
    return changes


def time_out(board: Board) -> Changes:
    """The job's own deadline has passed; its tasks were revoked before this is decided."""
    board.move_job("fail")
    message = f"the job did not end within {board.workflow.timeout_seconds:.15g} seconds"
    error = {"code": "job_timeout", "message": message}
    board.event("job_failed", error=error, failed_nodes=[])
    return _closing(board, error)


def cancel(board: Board, by: str, reason: str) -> Changes:
    """Somebody stopped the job; its tasks were revoked before this is decided."""
    board.move_job("cancel")
    board.event("job_cancelled", by=by, reason=reason)
    return _closing(board, {"code": "cancelled", "message": reason or "the job was cancelled"})


def refuse(board: Board, misfit: NotFit) -> Changes:
    """The job does not fit its workflow; nothing of it has begun."""
    error: dict[str, Json] = {"code": misfit.code, "message": misfit.message, "details": misfit.details}
    board.move_job("fail")
    board.event("job_failed", error=error, failed_nodes=[])
    return _closing(board, error)


def give_up(board: Board) -> Changes:
    """A required node has failed and the workflow says fail_fast; its tasks were revoked before this."""
    error = _tell_failure(board, failures(board))
    return _closing(board, error)


def failures(board: Board) -> list[NodeState]:
    """The required nodes that failed, and required fan-outs of which a child did."""
    return [state for state in _states(board) if _is_failure(board, state)]


def _closing(board: Board, error: dict[str, Json]) -> Changes:
    has_children = any(
        [
            node.subworkflow and board.status_of(name) == "waiting"
            for name, node in board.workflow.nodes.items()
        ]
    )
    for node_id in board.workflow.nodes:
        if board.status_of(node_id) not in NODE_TERMINAL:
            board.move(board.edit(node_id), "cancel")
    board.tasks.clear()
    board.more.clear()
    changes = _terminal(board)
    changes.error = error
    changes.closes_nodes = True
    changes.cancels_children = has_children
    return changes


def _fail(board: Board, failed: list[NodeState]) -> Changes:
    error = _tell_failure(board, failed)
    changes = _terminal(board)
    changes.error = error
    return changes


def _tell_failure(board: Board, failed: list[NodeState]) -> dict[str, Json]:
    """The job fails by these nodes; what is kept with it is the first error and all their names."""
    first = min(failed, key=lambda state: state.finished_at or board.now)
    error = {**_error_of(first), "node_id": _names_of(first)[0]}
    names = [name for state in failed for name in _names_of(state)]
    board.move_job("fail")
    board.event("job_failed", error=error, failed_nodes=names)
    return {**error, "failed_nodes": names}


def _names_of(state: NodeState) -> list[str]:
    """What failed there: the node itself, or children of a fan-out, which goes on all the same."""
    children: list[str] = [] if state.status == "failed" else state.error["children"]
    return children or [state.node_id]


def _error_of(state: NodeState) -> dict[str, Json]:
    error: dict[str, Json] = state.error if state.status == "failed" else state.error["first"]
    return error


def _terminal(board: Board) -> Changes:
    changes = board.changes(wake_at=None)
    changes.finished_at = board.now
    return changes


def _states(board: Board) -> list[NodeState]:
    return [state for node_id in board.workflow.nodes if (state := board.find(node_id)) is not None]


def _is_failure(board: Board, state: NodeState) -> bool:
    if state.status != "failed" and not state.failed:
        return False
    return board.workflow.nodes[state.node_id].required


def _outputs(board: Board) -> bytes:
    """The outputs that the workflow declares. One that cannot be had is null: what was done stays done."""
    outputs = board.workflow.outputs or {}
    read = frozenset().union(*(template.references for template in outputs.values()))
    completed = [name for name in read if board.status_of(name) == "completed"]
    board.missing.update([name for name in completed if name not in board.outputs.raw])
    if board.missing:
        return b""
    return dump({name: _output(board, name, template) for name, template in outputs.items()})


def _output(board: Board, name: str, template: Template) -> Json:
    board.budget.begin_node()
    try:
        return orjson.Fragment(dump(board.render(template, None)))
    except RenderError as error:
        if all([board.status_of(one) == "completed" for one in template.references]):
            board.event("warning", message=f"output {name} is null: {error}", code=error.code)
        return None


def _result(board: Board, states: list[NodeState]) -> bytes:
    """The outputs of all completed nodes by name, and where they came from."""
    completed = [state.node_id for state in states if state.status == "completed"]
    raw = board.outputs.raw
    board.missing.update([name for name in completed if name not in raw])
    result: dict[str, Json] = {name: orjson.Fragment(text) for name in completed if (text := raw.get(name))}
    result["_provenance"] = {
        "workflow_id": board.workflow.workflow_id,
        "workflow_version": board.workflow.version,
        "job_id": board.state.job_id,
        "completed_at": board.now,
    }
    return dump(result)
