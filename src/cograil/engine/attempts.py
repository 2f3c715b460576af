"""Attempts: handing them out, and what their end means for the node."""

from __future__ import annotations

from datetime import timedelta

import orjson

from cograil.engine.board import Board, as_error, dump
from cograil.engine.limits import limit_of
from cograil.engine.states import NODE_TERMINAL
from cograil.model.job import (
    ChildEnded,
    Late,
    Lost,
    NodeState,
    NodeWrite,
    Reported,
    Started,
    TaskLimit,
    TaskWrite,
)
from cograil.model.keys import key_root
from cograil.model.outcome import Completed, Failed
from cograil.model.workflow import Json, Node, RenderError

OUTSIDE = 30  # times as many losses are borne of what runs outside its worker
ACTIVE = frozenset({"dispatched", "running"})


def dispatch(
    board: Board, write: NodeWrite, node: Node, params: bytes | None, limit: TaskLimit | None
) -> None:
    """Hand out the next attempt. `params` None: those of the attempt before.

    One whose loss would be the last that is borne runs alone: then it is no other that killed the worker.
    """
    if board.is_closing:
        return
    state, roots = write.state, board.state.key_roots
    board.move(write, "dispatch")
    state.attempt += 1
    state.not_before = None
    state.started_at = None
    write.input = params
    board.tasks.append(
        TaskWrite(
            state.node_id,
            state.attempt,
            node.queue,
            node.handler,
            node.timeout_seconds,
            params,
            limit,
            is_alone=state.lost > 0 and state.lost >= _losses_borne(board, node) - 1,
            is_taken_up=node.is_outside and state.attempt > 1,
            is_last=board.workflow.is_one_task and board.state.parent_job is None,
            key_root=None
            if roots is None
            else key_root(roots, board.state.job_id, state.node_id, state.parent),
        )
    )
    board.event(
        "node_dispatched", state.node_id, queue=node.queue, handler=node.handler, attempt=state.attempt
    )


def begin_task(board: Board, write: NodeWrite, node: Node) -> None:
    """Render a task's params and dispatch it; a missing value fails the node before dispatch."""
    try:
        params = dump({} if node.params is None else board.render(node.params, node))
        limit = limit_of(board, node)
    except RenderError as error:
        board.fail(write, as_error(error))
        return
    dispatch(board, write, node, params, limit)


def report(board: Board, news: Reported) -> None:
    """A worker ended an attempt."""
    write = _current(board, news)
    if write is None:
        _late(board, Late(news.node_id, news.attempt, news.task_id, "result", news.worker))
        return
    _note_start(board, write, news)
    outcome = news.outcome
    if isinstance(outcome, Completed):
        board.complete(write, outcome.output, news.task_id, news.worker)
    elif isinstance(outcome, Failed):
        error: dict[str, Json] = {"code": outcome.code, "message": outcome.message}
        if outcome.details is not None:
            error["details"] = outcome.details
        if outcome.code == "timeout":
            board.event("node_timeout", news.node_id, news.task_id, attempt=news.attempt)
        after = outcome.after_seconds
        _try_again(board, write, error, news.task_id, retryable=outcome.retryable, after_seconds=after)
    _tell_parent(board, write)


def lose(board: Board, news: Lost) -> None:
    """The attempt is gone. It counts, unless it was handed back; a node that keeps killing its workers is
    poison."""
    write = _current(board, news)
    if write is None:
        return
    _note_start(board, write, news)
    if news.reason == "timeout":
        board.event("node_timeout", news.node_id, news.task_id, attempt=news.attempt)
        _try_again(board, write, {"code": "timeout", "message": "the attempt ran out of time"}, news.task_id)
    elif news.reason == "released":
        _hand_on(board, write, news)
    else:
        write.state.lost += 1
        _try_again_after_loss(board, write, news)
    _tell_parent(board, write)


def end_child(board: Board, news: ChildEnded) -> None:
    """The job of a subworkflow node has ended: the node with it, or there is another one to come."""
    state = board.find(news.node_id)
    if state is None or state.status != "waiting" or state.attempt != news.attempt:
        return
    write = board.edit(news.node_id)
    if news.status == "completed":
        result = None if news.output is None else orjson.Fragment(news.output)
        board.complete(write, dump({"job_id": news.job_id, "status": news.status, "result": result}))
        return
    is_cancelled = news.status == "cancelled"
    ending = "was cancelled" if is_cancelled else "failed"
    why = news.error if isinstance(news.error, dict) else {}
    error: dict[str, Json] = {
        "code": "child_cancelled" if is_cancelled else "child_failed",
        "message": f"child job {news.job_id} {ending}: {why.get('message')}",
        "details": {"job_id": news.job_id, "error": news.error},
    }
    _try_again(board, write, error, None, retryable=not is_cancelled)


def time_out_child(board: Board, write: NodeWrite, node: Node) -> None:
    """The job of a subworkflow node takes too long: it is told to stop, and nobody waits for it any more."""
    board.stops_children += (node.node_id,)
    board.event("node_timeout", node.node_id, attempt=write.state.attempt)
    _try_again(board, write, _out_of_time(node), None)


def time_out(board: Board, write: NodeWrite, node: Node) -> None:
    """A wait that takes too long; to wait again would take as long."""
    board.event("node_timeout", node.node_id)
    board.fail(write, _out_of_time(node))


def _out_of_time(node: Node) -> dict[str, Json]:
    return {"code": "timeout", "message": f"{node.node_id} did not end within {node.timeout_seconds:.15g} s"}


def _try_again_after_loss(board: Board, write: NodeWrite, news: Lost) -> None:
    state = write.state
    error: dict[str, Json] = {
        "code": "worker_lost",
        "message": f"worker {news.worker} died during the attempt",
        "details": {"worker": news.worker},
    }
    node = board.definition_of(state)
    if node.is_outside:  # its work goes on all the while, so this was no attempt that failed
        state.budget_from += 1
    if state.lost >= _losses_borne(board, node):
        message = f"{state.lost} workers died while running this, the last of them running nothing else"
        _give_up(board, write, error, news.task_id, {"code": "poison", "message": message})
    elif state.attempt - state.budget_from >= node.retry.max_attempts:
        _give_up(board, write, error, news.task_id)
    else:
        _back_to_ready(board, write, error, news.task_id, seconds=0.0)


def _hand_on(board: Board, write: NodeWrite, news: Lost) -> None:
    """Its worker stops and has handed it back: the next attempt begins at once, and this one was free."""
    message = f"worker {news.worker} handed attempt {news.attempt} back"
    board.event(
        "warning",
        news.node_id,
        news.task_id,
        code="released",
        message=message,
        attempt=news.attempt,
        worker=news.worker,
    )
    write.state.budget_from += 1
    _make_ready(board, write, {"code": "released", "message": message}, news.task_id, seconds=0.0)


def _losses_borne(board: Board, node: Node) -> int:
    """How many workers may die while they run it. What runs outside them can hardly be the reason."""
    return board.bounds.poison_limit * (OUTSIDE if node.is_outside else 1)


def start(board: Board, news: Started) -> None:
    """A worker has been at it for a while: say so before it ends."""
    write = _current(board, news)
    if write is not None:
        _note_start(board, write, news)


def late(board: Board, news: Late) -> None:
    """Record what was refused."""
    _late(board, news)


def _late(board: Board, news: Late) -> None:
    board.event(
        "warning",
        news.node_id,
        news.task_id,
        code=f"late_{news.what}",
        message=f"a late {news.what} of attempt {news.attempt} was refused",
        attempt=news.attempt,
        worker=news.worker,
    )


def _current(board: Board, news: Reported | Lost | Started) -> NodeWrite | None:
    """The node this news is about, if this attempt is still its attempt."""
    state = board.find(news.node_id)
    if state is None or state.status not in ACTIVE or state.attempt != news.attempt:
        return None
    write = board.edit(news.node_id)
    write.task_id = news.task_id
    return write


def _note_start(board: Board, write: NodeWrite, news: Reported | Lost | Started) -> None:
    state = write.state
    if state.started_at is None and news.started_at is not None:
        state.started_at = news.started_at
        board.event(
            "node_started",
            state.node_id,
            news.task_id,
            attempt=news.attempt,
            worker=news.worker,
            started_at=news.started_at,
        )


def _try_again(
    board: Board,
    write: NodeWrite,
    error: dict[str, Json],
    task_id: int | None,
    *,
    retryable: bool = True,
    after_seconds: float | None = None,
) -> None:
    state = write.state
    policy = board.definition_of(state).retry
    delay = None
    if policy.retries(str(error["code"]), retryable=retryable):
        delay = policy.delay_after(state.attempt - state.budget_from, board.dice())
    if delay is not None and after_seconds is not None:
        delay = min(after_seconds, policy.max_delay_seconds)
    if delay is None:
        _give_up(board, write, error, task_id)
    else:
        _back_to_ready(board, write, error, task_id, seconds=delay)


def _give_up(
    board: Board, write: NodeWrite, error: dict[str, Json], task_id: int | None, why: Json = None
) -> None:
    """The attempt failed with this error and was the last; the node fails with it, or as `why` says."""
    state = write.state
    board.event("task_failed", state.node_id, task_id, error=error, attempt=state.attempt, will_retry=False)
    board.fail(write, why or _without_traceback(error), task_id)


def _back_to_ready(
    board: Board, write: NodeWrite, error: dict[str, Json], task_id: int | None, *, seconds: float
) -> None:
    state = write.state
    board.event("task_failed", state.node_id, task_id, error=error, attempt=state.attempt, will_retry=True)
    state.error = _without_traceback(error)
    _make_ready(board, write, state.error, task_id, seconds=seconds)


def _make_ready(
    board: Board, write: NodeWrite, why: dict[str, Json], task_id: int | None, *, seconds: float
) -> None:
    state = write.state
    board.move(write, "retry")
    state.not_before = board.now + timedelta(seconds=seconds)
    board.event(
        "node_retry",
        state.node_id,
        task_id,
        retry_count=state.attempt - state.budget_from,
        max_retries=board.definition_of(state).retry.max_attempts - 1,
        not_before=state.not_before,
        delay_seconds=round(seconds, 3),
        error=why,
    )


def _without_traceback(error: dict[str, Json]) -> dict[str, Json]:
    """A traceback is long and kept once, in `task_failed`; the node and its other events do without."""
    details = error.get("details")
    if not isinstance(details, dict) or "traceback" not in details:
        return error
    return {**error, "details": {key: value for key, value in details.items() if key != "traceback"}}


def _tell_parent(board: Board, write: NodeWrite) -> None:
    """A child that ended is counted by its fan-out."""
    child = write.state
    if child.parent is None or child.status not in NODE_TERMINAL:
        return
    parent = board.edit(child.parent).state
    parent.ended += 1
    if child.status == "failed":
        count_failed_child(parent, child.node_id, child.error)


def count_failed_child(parent: NodeState, node_id: str, error: Json) -> None:
    """Keep the names of the first five and the first error."""
    known = parent.error or {"code": "children_failed", "children": [], "first": error}
    parent.failed += 1
    parent.error = _name_children(parent, known, [*known["children"], node_id][:5])


def forgive_failed_child(parent: NodeState, node_id: str) -> None:
    """A child that had failed is tried again: it is no longer among the failed ones."""
    parent.ended -= 1
    parent.failed -= 1
    names = [name for name in parent.error["children"] if name != node_id]
    parent.error = _name_children(parent, parent.error, names) if parent.failed else None


def _name_children(parent: NodeState, error: Json, names: list[str]) -> Json:
    message = f"{parent.failed} of {parent.total} children failed: {', '.join(names)}"
    if parent.failed > len(names):
        message += ", ..." if names else "..."
    return {**error, "children": names, "message": message}
