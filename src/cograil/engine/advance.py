"""What a job does next: `advance(workflow, state, happenings) -> Changes`.

    1. apply the news, in the order they came
    2. apply what the clock made due: backoffs, waits, the job's own deadline
    3. settle: every node whose predecessors ended runs, waits on or is skipped, until nothing moves
    4. end the job when no node is left, or say when to look again

It decides everything about conditions, joins, fan-outs, retries, skips, timeouts and outcomes, and
it is a pure function: the same arguments give the same changes. When it needs outputs that are not
at hand it says which (`Changes.missing`); the caller loads them and asks again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime

from cograil.engine import acts, attempts, ending, fans
from cograil.engine.board import Board, dump
from cograil.engine.readiness import Verdict, verdict
from cograil.engine.reopening import retry_by_hand
from cograil.engine.states import JOB_TERMINAL
from cograil.model.job import (
    Bounds,
    CancelAsked,
    Changes,
    Dice,
    Happening,
    JobState,
    Late,
    Lost,
    More,
    Outputs,
    Reported,
    RetryAsked,
    Started,
    Submitted,
)
from cograil.model.workflow import Node, NodeType, Workflow

DEFAULT_BOUNDS = Bounds()
QUIET = (NodeType.START, NodeType.END)


def advance(
    workflow: Workflow,
    state: JobState,
    happenings: Sequence[Happening],
    *,
    now: datetime,
    dice: Dice,
    outputs: Outputs,
    bounds: Bounds = DEFAULT_BOUNDS,
) -> Changes:
    """Decide what these happenings and this moment mean for the job."""

    def fresh() -> Board:
        return Board(workflow, state, now=now, dice=dice, outputs=outputs, bounds=bounds)

    board = fresh()
    changes = _decide(board, happenings)
    if board.missing or board.missing_children:
        missing, children = frozenset(board.missing), frozenset(board.missing_children)
        return Changes(state.status, state.seq, missing=missing, missing_children=children)
    if changes.status in JOB_TERMINAL:
        return changes
    return _cut_short(fresh, happenings, is_late=is_past_deadline(state, now)) or changes


def _decide(board: Board, happenings: Sequence[Happening]) -> Changes:
    """What the job does by itself."""
    _apply_news(board, happenings)
    if board.state.status in JOB_TERMINAL:
        return board.changes(wake_at=None)
    _settle(board)
    if board.status == "running" and ending.is_over(board):
        return ending.finish(board)
    return board.changes(_wake_at(board))


def _cut_short(
    fresh: Callable[[], Board], happenings: Sequence[Happening], *, is_late: bool
) -> Changes | None:
    """End a job that does not end by itself now, if somebody or its deadline wants that.

    What was reported before counts; nothing new begins.
    """
    cancel = None
    for news in happenings:
        if isinstance(news, CancelAsked):
            cancel = news
            break
    if cancel is None and not is_late:
        return None
    board = fresh()
    _apply_news(board, [news for news in happenings if not isinstance(news, More | RetryAsked)])
    return ending.time_out(board) if cancel is None else ending.cancel(board, cancel.by, cancel.reason)


# -- 1. news ----------------------------------------------------------------------------------------


def _apply_news(board: Board, happenings: Sequence[Happening]) -> None:
    """Apply the news. Once the job has ended, only what was refused is still recorded."""
    for news in happenings:
        if isinstance(news, Late):
            attempts.late(board, news)
        elif board.state.status not in JOB_TERMINAL:
            _apply(board, news)


def _apply(board: Board, news: Happening) -> None:
    match news:
        case Submitted():
            _create(board)
        case Reported():
            attempts.report(board, news)
        case Lost():
            attempts.lose(board, news)
        case Started():
            attempts.start(board, news)
        case More():
            _expand_more(board, board.workflow.nodes[news.node_id])
        case RetryAsked():
            retry_by_hand(board, news)


def _create(board: Board) -> None:
    state = board.state
    board.event(
        "job_created",
        workflow_id=board.workflow.workflow_id,
        workflow_version=board.workflow.version,
        submitted_by=state.submitted_by,
        correlation_id=state.correlation_id,
        retry_of=state.retry_of,
        kept_nodes=sorted(state.nodes),
    )


def _expand_more(board: Board, node: Node) -> None:
    if board.has_outputs_for(node):
        fans.continue_fan_out(board, node)


# -- 2. the clock -----------------------------------------------------------------------------------


def _start_if_due(board: Board) -> bool:
    """A pending job starts when its time has come. False while it must wait."""
    if board.status != "pending":
        return True
    if board.state.not_before is not None and board.state.not_before > board.now:
        return False
    board.move_job("start")
    board.started_at = board.now
    first = next((name for name, node in board.workflow.nodes.items() if not node.predecessors), None)
    board.event("job_started", first_node=first)
    return True


def _apply_due(board: Board) -> None:
    """Backoffs and waits that are over."""
    for state in board.sleepers():
        node_id = state.node_id
        if state.not_before is None or state.not_before > board.now:
            continue
        if state.status == "ready":
            _redispatch(board, node_id)
        elif state.status == "waiting":
            board.complete(board.edit(node_id), dump({"waited_until": state.not_before}))


def _redispatch(board: Board, node_id: str) -> None:
    """The next attempt, with the params of the one before; a node that never got that far renders them."""
    write = board.edit(node_id)
    node = board.definition_of(write.state)
    if write.state.attempt > 0:
        attempts.dispatch(board, write, node, None)
    elif acts.has_all_for(board, node):
        write.state.not_before = None
        acts.run(board, write, node) if write.state.parent is None else fans.begin_child(board, write, node)


def _wake_at(board: Board) -> datetime | None:
    """When to look at this job again though nothing happens."""
    moments = [state.not_before for state in board.sleepers() if state.not_before is not None]
    if board.status == "pending" and board.state.not_before is not None:
        moments.append(board.state.not_before)
    if board.state.deadline is not None:
        moments.append(board.state.deadline)
    if board.state.children_wake_at is not None:
        moments.append(board.state.children_wake_at)
    return min(moments, default=None)


# -- 3. settle --------------------------------------------------------------------------------------


def _settle(board: Board) -> None:
    """Let every node that can move do so, until nothing moves."""
    if not _start_if_due(board):
        return
    _apply_due(board)
    queue = deque(board.workflow.nodes if _is_fresh(board) else ())
    _close_fan_outs(board)
    while True:
        _requeue(board, queue)
        if not queue:
            return
        name = queue.popleft()
        if board.status_of(name) == "pending":
            _consider(board, board.workflow.nodes[name])


def _is_fresh(board: Board) -> bool:
    """Whether this is the pass in which the job starts or nodes were opened again: look at all nodes."""
    if board.state.status == "pending":
        return True
    return "pending" in [write.state.status for write in board.writes.values()]


def _close_fan_outs(board: Board) -> None:
    for name in [name for name, write in board.writes.items() if write.state.total is not None]:
        fans.end_fan_out(board, name)


def _requeue(board: Board, queue: deque[str]) -> None:
    while board.touched:
        queue.extend(board.workflow.nodes[board.touched.pop()].successors)


def _consider(board: Board, node: Node) -> None:
    match verdict(board, node):
        case Verdict.WAIT:
            return
        case Verdict.RUN:
            if acts.has_all_for(board, node):
                write = board.edit(node.node_id)
                board.move(write, "ready")
                if node.type not in QUIET:
                    board.event("node_ready", node.node_id, dependencies_met=list(node.predecessors))
                acts.run(board, write, node)
        case skip:
            _skip(board, node, skip)


def _skip(board: Board, node: Node, why: Verdict) -> None:
    write = board.edit(node.node_id)
    board.move(write, "skip")
    write.state.skip_reason = why.value
    if why is Verdict.SKIP_FAILURE:
        write.state.error = {"code": "upstream_failed", "message": "a node it needs has failed"}
    board.event("node_skipped", node.node_id, reason=why.value)


def is_past_deadline(state: JobState, now: datetime) -> bool:
    """Whether this advance will end the job by its deadline: its tasks must be revoked first."""
    return state.status not in JOB_TERMINAL and state.deadline is not None and state.deadline <= now
