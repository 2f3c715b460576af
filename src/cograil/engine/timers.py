"""What time does to a job: its start, the end of back-offs and waits, its deadline, its next wake-up."""

from __future__ import annotations

from datetime import datetime

from cograil.engine import attempts, fan_out, node_start
from cograil.engine.limit_keys import limit_of
from cograil.engine.working_copy import Board, as_error
from cograil.model.job import JobState, NodeWrite
from cograil.model.states import JOB_TERMINAL
from cograil.model.workflow import Node, RenderError


def start_if_due(board: Board) -> bool:
    """A pending job starts when its time has come. False while it must wait."""
    if board.status != "pending":
        return True
    if board.state.is_held or board.state.is_paused:
        return False
    if board.state.not_before is not None and board.state.not_before > board.now:
        return False
    board.move_job("start")
    board.started_at = board.now
    first = next((name for name, node in board.workflow.nodes.items() if not node.predecessors), None)
    board.event("job_started", first_node=first)
    return True


def apply_due(board: Board) -> None:
    """Backoffs, waits and approvals whose time is over."""
    for state in board.sleepers():
        node_id = state.node_id
        if state.not_before is None or state.not_before > board.now:
            continue
        if state.status == "ready":
            if not board.has_spent_all():
                _redispatch(board, node_id)
        elif state.status == "waiting":
            node_start.end_wait(board, board.edit(node_id), board.workflow.nodes[node_id])


def _redispatch(board: Board, node_id: str) -> None:
    """The next attempt, with the params of the one before; a node that never got that far renders them."""
    write = board.edit(node_id)
    node = board.definition_of(write.state)
    if write.state.attempt > 0 and node.subworkflow is None:
        _dispatch_again(board, write, node)
    elif node_start.has_all_for(board, node):
        write.state.not_before = None
        node_start.run(board, write, node) if write.state.parent is None else fan_out.begin_child(
            board, write, node
        )


def _dispatch_again(board: Board, write: NodeWrite, node: Node) -> None:
    limit = None
    if node.limit is not None:
        if not board.has_outputs_for(node):
            return
        index = write.state.index
        try:
            limit = limit_of(board, node) if index is None else fan_out.limit_of_child(board, node, index)
        except RenderError as error:
            board.fail(write, as_error(error))
            return
    attempts.dispatch(board, write, node, None, limit)


def wake_at(board: Board) -> datetime | None:
    """When to look at this job again though nothing happens.

    A job that is paused or held back by a limit sleeps on past its moments: news tell when that is over.
    """
    moments = []
    begins_at, wakes_at = board.state.not_before, board.state.children_wake_at
    if board.status == "pending":
        if begins_at is not None and begins_at > board.now:
            moments.append(begins_at)
    else:
        if not board.state.is_paused:
            moments = [state.not_before for state in board.sleepers() if state.not_before is not None]
        if wakes_at is not None:
            moments.append(wakes_at)
    if board.state.deadline is not None:
        moments.append(board.state.deadline)
    return min(moments, default=None)


def is_past_deadline(state: JobState, now: datetime) -> bool:
    """Whether this advance will end the job by its deadline: its tasks must be revoked first."""
    return state.status not in JOB_TERMINAL and state.deadline is not None and state.deadline <= now
