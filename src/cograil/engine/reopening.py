"""Retry by hand in a running job: a failed node gets new attempts, what it took down is open again."""

from __future__ import annotations

from collections import deque

from cograil.engine.board import Board
from cograil.engine.readiness import Verdict
from cograil.model.job import RetryAsked


def retry_by_hand(board: Board, news: RetryAsked) -> None:
    """A failed node gets a new budget of attempts; what was given up because of it is open again."""
    state = board.find(news.node_id)
    if state is None or state.status != "failed":
        return
    write = board.edit(news.node_id)
    board.move(write, "retry")
    write.state.budget_from = write.state.attempt
    write.state.lost = 0
    write.state.finished_at = None
    write.state.not_before = board.now
    if state.parent is not None:
        _reopen_fan_out(board, state.parent)
    board.event("node_retry", news.node_id, retry_count=0, by=news.by, not_before=board.now.isoformat())
    _reopen_descendants(board, state.parent or news.node_id)


def _reopen_fan_out(board: Board, fan_out: str) -> None:
    parent = board.edit(fan_out).state
    parent.ended -= 1
    parent.failed -= 1
    if not parent.failed:
        parent.error = None
    if parent.status == "completed":
        parent.status = "running"
        parent.finished_at = None


def _reopen_descendants(board: Board, node_id: str) -> None:
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
        queue.extend(board.workflow.nodes[name].successors)


def _was_given_up(status: str, skip_reason: str | None, error: object) -> bool:
    if status == "skipped":
        return skip_reason == Verdict.SKIP_FAILURE.value
    return status == "failed" and isinstance(error, dict) and error.get("code") == "children_failed"
