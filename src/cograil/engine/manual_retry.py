"""Retry by hand in a running job: a failed node gets new attempts, what it took down is open again."""

from __future__ import annotations

from collections import deque

from cograil.engine.attempts import forgive_failed_child
from cograil.engine.readiness import Verdict
from cograil.engine.working_copy import Board
from cograil.model.job import RetryAsked


def retry_by_hand(board: Board, news: RetryAsked) -> None:
    """A failed node gets a new budget of attempts; what was given up because of it is open again.

    The event names all that moved: the history of a job must be readable from its events alone.
    """
    state = board.find(news.node_id)
    if state is None or state.status != "failed":
        return
    write = board.edit(news.node_id)
    board.move(write, "retry")
    write.state.budget_from = write.state.attempt
    write.state.lost = 0
    write.state.finished_at = None
    write.state.not_before = board.now
    resumed = [] if state.parent is None else _resume_fan_out(board, state.parent, news.node_id)
    reopened = _reopen_descendants(board, state.parent or news.node_id)
    board.event(
        "node_retry",
        news.node_id,
        retry_count=0,
        by=news.by,
        not_before=board.now.isoformat(),
        reopened=reopened,
        resumed=resumed,
    )


def _resume_fan_out(board: Board, fan_out: str, child: str) -> list[str]:
    write = board.edit(fan_out)
    forgive_failed_child(write.state, child)
    if write.state.status != "completed":
        return []
    board.move(write, "resume")
    write.state.finished_at = None
    return [fan_out]


def _reopen_descendants(board: Board, node_id: str) -> list[str]:
    reopened = []
    queue = deque(board.workflow.nodes[node_id].successors)
    while queue:
        name = queue.popleft()
        state = board.find(name)
        if state is None or not _was_given_up(state.status, state.skip_reason, state.error):
            continue
        write = board.edit(name)
        board.move(write, "reopen")
        write.state.skip_reason = None
        write.state.error = None
        write.state.finished_at = None
        reopened.append(name)
        queue.extend(board.workflow.nodes[name].successors)
    return reopened


def _was_given_up(status: str, skip_reason: str | None, error: object) -> bool:
    if status == "skipped":
        return skip_reason == Verdict.SKIP_FAILURE.value
    return status == "failed" and isinstance(error, dict) and error.get("code") == "children_failed"
