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
from datetime import datetime, timedelta

from cograil.engine import attempts, ending, fans
from cograil.engine.board import Board, as_error, dump
from cograil.engine.readiness import Verdict, verdict
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
    NodeWrite,
    Outputs,
    Reported,
    RetryAsked,
    Started,
    Submitted,
)
from cograil.model.workflow import Node, NodeType, RenderError, Template, Workflow

DEFAULT_BOUNDS = Bounds()


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
    return _cut_short(fresh, happenings) or changes


def _decide(board: Board, happenings: Sequence[Happening]) -> Changes:
    """What the job does by itself."""
    _apply_news(board, happenings)
    if board.state.status in JOB_TERMINAL:
        return board.changes(wake_at=None)
    _settle(board)
    if board.status == "running" and ending.is_over(board):
        return ending.finish(board)
    return board.changes(_wake_at(board))


def _cut_short(fresh: Callable[[], Board], happenings: Sequence[Happening]) -> Changes | None:
    """End a job that does not end by itself now, if somebody or its deadline wants that.

    What was reported before counts; nothing new begins.
    """
    board = fresh()
    cancel = next((news for news in happenings if isinstance(news, CancelAsked)), None)
    if cancel is None and not is_past_deadline(board.state, board.now):
        return None
    _apply_news(board, happenings)
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
            _retry_by_hand(board, news)


def _create(board: Board) -> None:
    state = board.state
    board.event(
        "job_created",
        workflow_id=board.workflow.workflow_id,
        workflow_version=board.workflow.version,
        submitted_by=state.submitted_by,
        correlation_id=state.correlation_id,
        retry_of=state.retry_of,
    )


def _expand_more(board: Board, node: Node) -> None:
    if board.has_outputs_for(node, node.source, node.params):
        fans.continue_fan_out(board, node)


def _retry_by_hand(board: Board, news: RetryAsked) -> None:
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
    due = [
        state.node_id
        for state in (*board.state.nodes.values(), *(write.state for write in board.writes.values()))
        if state.not_before is not None and state.not_before <= board.now
    ]
    for node_id in dict.fromkeys(due):
        state = board.find(node_id)
        assert state is not None
        if state.not_before is None or state.not_before > board.now:
            continue
        if state.status == "ready":
            _redispatch(board, node_id)
        elif state.status == "waiting":
            board.complete(board.edit(node_id), dump({"waited_until": state.not_before.isoformat()}))


def _redispatch(board: Board, node_id: str) -> None:
    """The next attempt, with the params of the one before; a node that never got that far renders them."""
    write = board.edit(node_id)
    node = board.definition_of(write.state)
    if write.state.attempt == 0 and write.state.parent is None:
        _run(board, write, node)
    else:
        attempts.dispatch(board, write, node, None)


def _wake_at(board: Board) -> datetime | None:
    """When to look at this job again though nothing happens."""
    states = {**board.state.nodes, **{name: write.state for name, write in board.writes.items()}}
    moments = [state.not_before for state in states.values() if state.not_before is not None]
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
    return board.state.status == "pending" or any(w.state.status == "pending" for w in board.writes.values())


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
            if board.has_outputs_for(node, *_templates(node)) and _has_children_for(board, node):
                write = board.edit(node.node_id)
                board.move(write, "ready")
                if node.type not in (NodeType.START, NodeType.END):
                    board.event("node_ready", node.node_id, dependencies_met=list(node.predecessors))
                _run(board, write, node)
        case skip:
            _skip(board, node, skip)


def _skip(board: Board, node: Node, why: Verdict) -> None:
    write = board.edit(node.node_id)
    board.move(write, "skip")
    write.state.skip_reason = why.value
    if why is Verdict.SKIP_FAILURE:
        write.state.error = {"code": "upstream_failed", "message": "a node it needs has failed"}
    board.event("node_skipped", node.node_id, reason=why.value)


def _templates(node: Node) -> list[Template | None]:
    return [node.params, node.source, node.wait_seconds, node.wait_until, *(b.test for b in node.branches)]


def _has_children_for(board: Board, node: Node) -> bool:
    if node.type is not NodeType.FAN_IN:
        return True
    absent = {name for name in fans.fan_outs_before(board, node) if name not in board.outputs.children}
    board.missing_children |= absent
    return not absent


def _run(board: Board, write: NodeWrite, node: Node) -> None:
    match node.type:
        case NodeType.START | NodeType.END:
            board.complete(write, None)
        case NodeType.TASK:
            attempts.begin_task(board, write, node)
        case NodeType.CONDITIONAL:
            _choose(board, write, node)
        case NodeType.FAN_OUT:
            fans.begin_fan_out(board, write, node)
            fans.end_fan_out(board, node.node_id)
        case NodeType.FAN_IN:
            fans.begin_fan_in(board, write, node)
        case NodeType.WAIT:
            _begin_wait(board, write, node)


def _choose(board: Board, write: NodeWrite, node: Node) -> None:
    """Take the first branch whose condition holds; the default is last."""
    try:
        taken = next((b for b in node.branches if b.test is None or board.render(b.test, node) is True), None)
    except RenderError as error:
        board.fail(write, as_error(error))
        return
    if taken is None:
        board.fail(write, {"code": "no_branch", "message": "no branch matches and there is no default"})
        return
    write.state.taken_branch = taken.name
    skipped = [branch.name for branch in node.branches if branch is not taken]
    board.complete(write, dump({"taken_branch": taken.name, "skipped_branches": skipped}))


def _begin_wait(board: Board, write: NodeWrite, node: Node) -> None:
    try:
        until = _wait_until(board, node)
    except RenderError as error:
        board.fail(write, as_error(error))
        return
    write.state.started_at = board.now
    board.move(write, "wait")
    if until <= board.now:
        board.complete(write, dump({"waited_until": until.isoformat()}))
        return
    write.state.not_before = until
    board.event("node_started", node.node_id, waits_until=until.isoformat())


def _wait_until(board: Board, node: Node) -> datetime:
    try:
        if node.wait_seconds is not None:
            seconds = board.render(node.wait_seconds, node)
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds < 0:
                raise RenderError("invalid_wait", f"wait.seconds is {seconds!r}, not a number of seconds")
            return board.now + timedelta(seconds=seconds)
        assert node.wait_until is not None
        moment = datetime.fromisoformat(str(board.render(node.wait_until, node)))
    except (ValueError, OverflowError) as error:
        raise RenderError("invalid_wait", f"wait of {node.node_id}: {error}") from error
    if moment.tzinfo is None:
        raise RenderError("invalid_wait", f"wait.until of {node.node_id} has no time zone")
    return moment


def is_past_deadline(state: JobState, now: datetime) -> bool:
    """Whether this advance will end the job by its deadline: its tasks must be revoked first."""
    return state.status not in JOB_TERMINAL and state.deadline is not None and state.deadline <= now
