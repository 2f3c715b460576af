"""What a job does next: `advance(workflow, state, happenings) -> Changes`.

    1. apply the news, in the order they came
    2. apply what the clock made due: backoffs, waits, approvals, the job's own deadline
    3. settle: every node whose predecessors ended runs, waits on or is skipped, until nothing moves
    4. end the job when no node is left, or say when to look again

It decides everything about conditions, joins, fan-outs, retries, skips, timeouts and outcomes, and
it is a pure function: the same arguments give the same changes. When it needs outputs that are not
at hand it says which (`Changes.missing`); the caller loads them and asks again. When the job is to be
cut short it asks for its tasks to be revoked first (`Changes.needs_revoke`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from cograil.engine import acts, approvals, attempts, ending, fans, timers
from cograil.engine.board import Board, as_error
from cograil.engine.readiness import Verdict, dependencies_met, verdict
from cograil.engine.reopening import retry_by_hand
from cograil.engine.states import JOB_TERMINAL
from cograil.engine.waiting import waiting_for
from cograil.model.budget import AllowanceSpent, Budget, Clock
from cograil.model.job import (
    Bounds,
    CancelAsked,
    Changes,
    ChildEnded,
    Dice,
    Happening,
    JobState,
    Late,
    Lost,
    More,
    NodeWrite,
    NotFit,
    Outputs,
    Reported,
    Resumed,
    RetryAsked,
    Signalled,
    Started,
    Submitted,
)
from cograil.model.workflow import Node, NodeType, RenderError, Workflow

DEFAULT_BOUNDS = Bounds()
QUIET = (NodeType.START, NodeType.END)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How much evaluating one pass over a job may take. `steps` None: what its nodes may take.

    `clock` is the backstop for what the count of steps gets wrong. With `defers_missing`, nodes that lack
    outputs are left for another pass, and nothing is `missing`.
    """

    steps: int | None = None
    clock: Clock | None = None
    defers_missing: bool = False
    soft_steps: int | None = None  # from here on no other node is begun


UNLIMITED = Evaluation()


def advance(
    workflow: Workflow,
    state: JobState,
    happenings: Sequence[Happening],
    *,
    now: datetime,
    dice: Dice,
    outputs: Outputs,
    bounds: Bounds = DEFAULT_BOUNDS,
    is_revoked: bool = False,
    evaluation: Evaluation = UNLIMITED,
) -> Changes:
    """Decide what these happenings and this moment mean for the job.

    `is_revoked` says that no task of the job is out any more, and its inbox was taken after that.
    `evaluation` limits the steps of this pass: nodes for which none are left are left for another one.
    """

    def fresh(limit: Evaluation = evaluation, begin_limit: int | None = None) -> Board:
        budget = Budget(
            limit.steps,
            bounds.node_steps,
            node_seconds=bounds.node_seconds,
            clock=limit.clock,
            soft_allowance=limit.soft_steps,
        )
        board = Board(workflow, state, now=now, dice=dice, outputs=outputs, bounds=bounds, budget=budget)
        board.begin_limit = begin_limit
        board.defers_missing = limit.defers_missing
        return board

    again: Callable[[], Board] = fresh
    board, spent = fresh(), 0
    try:
        changes = _decide(board, happenings)
    except AllowanceSpent:
        board, changes, again, spent = _decide_again(fresh, evaluation, board, happenings)
    if board.missing or board.missing_children or board.missing_jobs:
        changes = _lacking(board)
    elif changes.status not in JOB_TERMINAL and (end := _end_from_outside(board, happenings)) is not None:
        if not is_revoked and _may_have_tasks(state):
            changes = Changes(state.status, state.seq, needs_revoke=True)
        else:
            last = [news for news in happenings if not isinstance(news, More | RetryAsked)]
            changes = end(again(), last)
    changes.steps = spent + board.budget.used
    return changes


def _decide_again(
    fresh: Callable[[Evaluation, int | None], Board],
    evaluation: Evaluation,
    board: Board,
    happenings: Sequence[Happening],
) -> tuple[Board, Changes, Callable[[], Board], int]:
    """What the job does up to the node in the middle of which the steps of this board ran out.

    Returns also how to make such a board again, and the steps that were spent in vain.
    """
    spent = board.budget.used
    again = partial(fresh, evaluation, board.begun - 1)
    board = again()
    try:
        return board, _decide(board, happenings), again, spent
    except AllowanceSpent:
        # Nothing but the beginning of a node should cost steps; if it does, it has to be paid.
        spent += board.budget.used
        again = partial(fresh, replace(evaluation, steps=None, soft_steps=None), None)
        board = again()
        return board, _decide(board, happenings), again, spent


def _lacking(board: Board) -> Changes:
    """Nothing is decided: this must be loaded first."""
    return Changes(
        board.state.status,
        board.state.seq,
        missing=frozenset(board.missing),
        missing_children=frozenset(board.missing_children),
        missing_jobs=board.missing_jobs,
    )


def _decide(board: Board, happenings: Sequence[Happening]) -> Changes:
    """What the job does by itself."""
    _apply_news(board, happenings)
    if board.state.status in JOB_TERMINAL:
        return board.changes(wake_at=None)
    _settle(board)
    if board.status == "running" and ending.is_over(board):
        return ending.finish(board)
    changes = board.changes(timers.wake_at(board))
    if not board.tasks:  # most passes hand out a task, and then it waits for nothing
        changes.waiting_for = waiting_for(board)
    return changes


# -- cut short: what was reported before counts, nothing new begins ----------------------------------

End = Callable[[Board, Sequence[Happening]], Changes]


def _end_from_outside(board: Board, happenings: Sequence[Happening]) -> End | None:
    """How a job ends that does not end by itself now, if somebody, its deadline or a failure wants that."""
    for news in happenings:
        if isinstance(news, CancelAsked):
            return partial(_cancel, news)
    if board.misfit is not None:
        return partial(_refuse, board.misfit)
    if timers.is_past_deadline(board.state, board.now):
        return _time_out
    if board.workflow.fail_fast and ending.failures(board):
        return _give_up
    return None


def _may_have_tasks(state: JobState) -> bool:
    return any(node.status in attempts.ACTIVE for node in state.nodes.values())


def _cancel(asked: CancelAsked, board: Board, happenings: Sequence[Happening]) -> Changes:
    _apply_news(board, happenings)
    return ending.cancel(board, asked.by, asked.reason)


def _refuse(misfit: NotFit, board: Board, happenings: Sequence[Happening]) -> Changes:
    _apply_news(board, happenings)
    return ending.refuse(board, misfit)


def _time_out(board: Board, happenings: Sequence[Happening]) -> Changes:
    _apply_news(board, happenings)
    return ending.time_out(board)


def _give_up(board: Board, happenings: Sequence[Happening]) -> Changes:
    """Fail fast. What failed without being handed out is found again by settling, without beginning."""
    board.is_closing = True
    _apply_news(board, happenings)
    if not ending.failures(board):
        _settle(board)
    return ending.give_up(board)


# -- 1. news ----------------------------------------------------------------------------------------


def _apply_news(board: Board, happenings: Sequence[Happening]) -> None:
    """Apply the news. Once the job has ended, only what was refused is still recorded."""
    for news in happenings:
        if isinstance(news, Late):
            attempts.late(board, news)
        elif board.state.status not in JOB_TERMINAL:
            _apply(board, news)


def _apply(board: Board, news: Happening) -> None:
    """Nothing is applied for a cancel: it ends the job from outside."""
    apply = _APPLY.get(type(news))
    if apply is not None:
        apply(board, news)


def _create(board: Board, news: Submitted) -> None:
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
    if board.state.is_paused or not board.has_outputs_for(node):
        return
    if board.status_of(node.node_id) == "running" and board.may_begin(node.node_id):
        fans.continue_fan_out(board, node)


def _note_misfit(board: Board, news: NotFit) -> None:
    board.misfit = news


def _note_resumed(board: Board, news: Resumed) -> None:
    board.is_resumed = True


def _hear_more(board: Board, news: More) -> None:
    """A fan-out has more children to make, or the pass before had no steps left to begin this node."""
    if board.status_of(news.node_id) == "pending":
        board.asked.append(news.node_id)
    else:
        _expand_more(board, board.workflow.nodes[news.node_id])


_APPLY: dict[type, Callable[[Board, Any], None]] = {
    Reported: attempts.report,
    Lost: attempts.lose,
    Started: attempts.start,
    Submitted: _create,
    NotFit: _note_misfit,
    Resumed: _note_resumed,
    More: _hear_more,
    RetryAsked: retry_by_hand,
    Signalled: approvals.answer,
    ChildEnded: attempts.end_child,
}


# -- 2. settle --------------------------------------------------------------------------------------


def _settle(board: Board) -> None:
    """Let every node that can move do so, until nothing moves."""
    if board.misfit is not None or not timers.start_if_due(board) or board.state.is_paused:
        return
    timers.apply_due(board)
    if board.is_resumed:
        _pick_up_fan_outs(board)
    queue = deque(board.workflow.nodes if _is_fresh(board) else board.asked)
    _close_fan_outs(board)
    nodes = board.workflow.nodes
    while True:
        while board.touched:
            queue.extend(nodes[board.touched.pop()].successors)
        if not queue:
            return
        name = queue.popleft()
        if board.status_of(name) == "pending":
            _consider(board, nodes[name])


def _is_fresh(board: Board) -> bool:
    """Whether this is the pass in which the job starts or nodes were opened again: look at all nodes."""
    if board.state.status == "pending" or board.is_resumed:
        return True
    return "pending" in [write.state.status for write in board.writes.values()]


def _pick_up_fan_outs(board: Board) -> None:
    """Children that were not made, or whose end was not seen, while the job was paused."""
    for name, state in board.state.nodes.items():
        if state.total is not None and state.status == "running":
            if state.expanded < state.total:
                _expand_more(board, board.workflow.nodes[name])
            fans.end_fan_out(board, name)


def _close_fan_outs(board: Board) -> None:
    if board.workflow.has_fan_outs:
        for name in [name for name, write in board.writes.items() if write.state.total is not None]:
            fans.end_fan_out(board, name)


def _consider(board: Board, node: Node) -> None:
    match verdict(board, node):
        case Verdict.WAIT:
            return
        case Verdict.RUN:
            if acts.has_all_for(board, node):
                if board.may_begin(node.node_id):
                    _run(board, node)
            elif board.defers_missing:
                board.leave_missing(node)
        case skip:
            _skip(board, node, skip.value)


def _ready(board: Board, node: Node) -> NodeWrite:
    write = board.edit(node.node_id)
    board.move(write, "ready")
    if node.type not in QUIET:
        met = list(node.predecessors) if not node.any_of else dependencies_met(board, node)
        board.event("node_ready", node.node_id, dependencies_met=met)
    return write


def _run(board: Board, node: Node) -> None:
    """Begin the node, unless its `when` says that it is not wanted, or says nothing."""
    try:
        is_wanted = node.when is None or acts.is_wanted(board, node, node.when)
    except RenderError as error:
        board.fail(_ready(board, node), as_error(error))
        return
    acts.run(board, _ready(board, node), node) if is_wanted else _skip(board, node, "when")


def _skip(board: Board, node: Node, reason: str) -> None:
    write = board.edit(node.node_id)
    board.move(write, "skip")
    write.state.skip_reason = reason
    if reason == Verdict.SKIP_FAILURE.value:
        write.state.error = {"code": "upstream_failed", "message": "a node it needs has failed"}
    board.event("node_skipped", node.node_id, reason=reason)
