"""Attempts: dispatching them, and the effect of their end on the node."""

from __future__ import annotations

from datetime import timedelta

import orjson

from cograil.engine.limit_keys import limit_of
from cograil.engine.working_copy import WorkingCopy, as_error, dump
from cograil.model.idempotency_keys import key_root
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
from cograil.model.outcome import Completed, Failed
from cograil.model.states import NODE_TERMINAL
from cograil.model.workflow import Json, RenderError, WorkflowNode

EXTERNAL_LOSS_FACTOR = 30  # work outside the worker survives this many times more worker losses
ACTIVE = frozenset({"dispatched", "running"})


def dispatch(
    job: WorkingCopy, write: NodeWrite, node: WorkflowNode, params: bytes | None, limit: TaskLimit | None
) -> None:
    """Dispatch the next attempt. `params` None: those of the last attempt.

    An attempt whose loss would fail the node as poison runs exclusively: then no other task can have killed
    the worker.
    """
    if job.is_closing:
        return
    state, roots = write.state, job.state.key_roots
    job.move(write, "dispatch")
    state.attempt += 1
    state.not_before = None
    state.started_at = None
    write.input = params
    job.tasks.append(
        TaskWrite(
            state.node_id,
            state.attempt,
            node.queue,
            node.handler,
            node.timeout_seconds,
            params,
            limit,
            is_exclusive=state.lost > 0 and state.lost >= _max_worker_losses(job, node) - 1,
            is_resumed=node.runs_externally and state.attempt > 1,
            is_last=job.workflow.is_one_task and job.state.parent_job is None,
            key_root=None
            if roots is None
            else key_root(roots, job.state.job_id, state.node_id, state.parent),
        )
    )
    job.event("node_dispatched", state.node_id, queue=node.queue, handler=node.handler, attempt=state.attempt)


def begin_task(job: WorkingCopy, write: NodeWrite, node: WorkflowNode) -> None:
    """Render the params of a task and dispatch it. The node fails when they cannot be rendered."""
    try:
        params = dump({} if node.params is None else job.render(node.params, node))
        limit = limit_of(job, node)
    except RenderError as error:
        job.fail(write, as_error(error))
        return
    dispatch(job, write, node, params, limit)


def report(job: WorkingCopy, result: Reported) -> None:
    """Apply the outcome of an attempt: complete the node, retry it or fail it."""
    write = _current(job, result)
    if write is None:
        late(job, Late(result.node_id, result.attempt, result.task_id, "result", result.worker))
        return
    _note_start(job, write, result)
    outcome = result.outcome
    if isinstance(outcome, Completed):
        job.complete(write, outcome.output, result.task_id, result.worker)
    elif isinstance(outcome, Failed):
        error: dict[str, Json] = {"code": outcome.code, "message": outcome.message}
        if outcome.details is not None:
            error["details"] = outcome.details
        if outcome.code == "timeout":
            job.event("node_timeout", result.node_id, result.task_id, attempt=result.attempt)
        after = outcome.after_seconds
        _retry_or_fail(job, write, error, result.task_id, retryable=outcome.retryable, after_seconds=after)
    _count_child(job, write)


def lose(job: WorkingCopy, loss: Lost) -> None:
    """Apply the loss of an attempt. It counts unless the worker released it.

    A node that keeps killing its workers fails as poison.
    """
    write = _current(job, loss)
    if write is None:
        return
    _note_start(job, write, loss)
    if loss.reason == "timeout":
        job.event("node_timeout", loss.node_id, loss.task_id, attempt=loss.attempt)
        _retry_or_fail(
            job, write, {"code": "timeout", "message": "the attempt ran out of time"}, loss.task_id
        )
    elif loss.reason == "released":
        _release(job, write, loss)
    else:
        write.state.lost += 1
        _retry_after_loss(job, write, loss)
    _count_child(job, write)


def end_child(job: WorkingCopy, child: ChildEnded) -> None:
    """Apply the end of a child job: complete the subworkflow node, retry it or fail it."""
    state = job.find(child.node_id)
    if state is None or state.status != "waiting" or state.attempt != child.attempt:
        return
    write = job.row(child.node_id)
    if child.status == "completed":
        result = None if child.output is None else orjson.Fragment(child.output)
        job.complete(write, dump({"job_id": child.job_id, "status": child.status, "result": result}))
        return
    is_cancelled = child.status == "cancelled"
    ending = "was cancelled" if is_cancelled else "failed"
    child_error = child.error if isinstance(child.error, dict) else {}
    error: dict[str, Json] = {
        "code": "child_cancelled" if is_cancelled else "child_failed",
        "message": f"child job {child.job_id} {ending}: {child_error.get('message')}",
        "details": {"job_id": child.job_id, "error": child.error},
    }
    _retry_or_fail(job, write, error, None, retryable=not is_cancelled)


def time_out_child(job: WorkingCopy, write: NodeWrite, node: WorkflowNode) -> None:
    """Cancel the child job of a subworkflow node that takes too long, and retry or fail the node."""
    job.stops_children += (node.node_id,)
    job.event("node_timeout", node.node_id, attempt=write.state.attempt)
    _retry_or_fail(job, write, _timeout_error(node), None)


def time_out(job: WorkingCopy, write: NodeWrite, node: WorkflowNode) -> None:
    """Fail a wait node that takes too long. A retry would take as long."""
    job.event("node_timeout", node.node_id)
    job.fail(write, _timeout_error(node))


def _timeout_error(node: WorkflowNode) -> dict[str, Json]:
    return {"code": "timeout", "message": f"{node.node_id} did not end within {node.timeout_seconds:.15g} s"}


def _retry_after_loss(job: WorkingCopy, write: NodeWrite, loss: Lost) -> None:
    state = write.state
    error: dict[str, Json] = {
        "code": "worker_lost",
        "message": f"worker {loss.worker} died during the attempt",
        "details": {"worker": loss.worker},
    }
    node = job.definition_of(state)
    if node.runs_externally:  # its work goes on without the worker, so the attempt does not count
        state.uncounted_attempts += 1
    if state.lost >= _max_worker_losses(job, node):
        message = f"{state.lost} workers died while running this, the last of them running nothing else"
        _fail_attempt(job, write, error, loss.task_id, {"code": "poison", "message": message})
    elif state.attempt - state.uncounted_attempts >= node.retry.max_attempts:
        _fail_attempt(job, write, error, loss.task_id)
    else:
        _schedule_retry(job, write, error, loss.task_id, seconds=0.0)


def _release(job: WorkingCopy, write: NodeWrite, loss: Lost) -> None:
    """Make a released attempt ready again at once. It does not count."""
    message = f"worker {loss.worker} handed attempt {loss.attempt} back"
    job.event(
        "warning",
        loss.node_id,
        loss.task_id,
        code="released",
        message=message,
        attempt=loss.attempt,
        worker=loss.worker,
    )
    write.state.uncounted_attempts += 1
    _make_ready(job, write, {"code": "released", "message": message}, loss.task_id, seconds=0.0)


def _max_worker_losses(job: WorkingCopy, node: WorkflowNode) -> int:
    """Return how many workers may die while running this node. External work is rarely the cause."""
    return job.bounds.poison_limit * (EXTERNAL_LOSS_FACTOR if node.runs_externally else 1)


def start(job: WorkingCopy, attempt: Started) -> None:
    """Record the start of a long attempt before it ends."""
    write = _current(job, attempt)
    if write is not None:
        _note_start(job, write, attempt)


def late(job: WorkingCopy, report: Late) -> None:
    """Record a refused report as a warning."""
    job.event(
        "warning",
        report.node_id,
        report.task_id,
        code=f"late_{report.what}",
        message=f"a late {report.what} of attempt {report.attempt} was refused",
        attempt=report.attempt,
        worker=report.worker,
    )


def _current(job: WorkingCopy, attempt: Reported | Lost | Started) -> NodeWrite | None:
    """Return the node of this attempt; None when the node has moved on to another attempt."""
    state = job.find(attempt.node_id)
    if state is None or state.status not in ACTIVE or state.attempt != attempt.attempt:
        return None
    write = job.row(attempt.node_id)
    write.task_id = attempt.task_id
    return write


def _note_start(job: WorkingCopy, write: NodeWrite, attempt: Reported | Lost | Started) -> None:
    state = write.state
    if state.started_at is None and attempt.started_at is not None:
        state.started_at = attempt.started_at
        job.event(
            "node_started",
            state.node_id,
            attempt.task_id,
            attempt=attempt.attempt,
            worker=attempt.worker,
            started_at=attempt.started_at,
        )


def _retry_or_fail(
    job: WorkingCopy,
    write: NodeWrite,
    error: dict[str, Json],
    task_id: int | None,
    *,
    retryable: bool = True,
    after_seconds: float | None = None,
) -> None:
    state = write.state
    policy = job.definition_of(state).retry
    delay = None
    if policy.retries(str(error["code"]), retryable=retryable):
        delay = policy.delay_after(state.attempt - state.uncounted_attempts, job.random())
    if delay is not None and after_seconds is not None:
        delay = min(after_seconds, policy.max_delay_seconds)
    if delay is None:
        _fail_attempt(job, write, error, task_id)
    else:
        _schedule_retry(job, write, error, task_id, seconds=delay)


def _fail_attempt(
    job: WorkingCopy, write: NodeWrite, error: dict[str, Json], task_id: int | None, node_error: Json = None
) -> None:
    """Fail the last attempt with `error`, and the node with `node_error` or the same error."""
    state = write.state
    job.event("task_failed", state.node_id, task_id, error=error, attempt=state.attempt, will_retry=False)
    job.fail(write, node_error or _without_traceback(error), task_id)


def _schedule_retry(
    job: WorkingCopy, write: NodeWrite, error: dict[str, Json], task_id: int | None, *, seconds: float
) -> None:
    state = write.state
    job.event("task_failed", state.node_id, task_id, error=error, attempt=state.attempt, will_retry=True)
    state.error = _without_traceback(error)
    _make_ready(job, write, state.error, task_id, seconds=seconds)


def _make_ready(
    job: WorkingCopy, write: NodeWrite, reason: dict[str, Json], task_id: int | None, *, seconds: float
) -> None:
    state = write.state
    job.move(write, "retry")
    state.not_before = job.now + timedelta(seconds=seconds)
    job.event(
        "node_retry",
        state.node_id,
        task_id,
        retry_count=state.attempt - state.uncounted_attempts,
        max_retries=job.definition_of(state).retry.max_attempts - 1,
        not_before=state.not_before,
        delay_seconds=round(seconds, 3),
        error=reason,
    )


def _without_traceback(error: dict[str, Json]) -> dict[str, Json]:
    """Return the error without its traceback, which is stored only once, in `task_failed`."""
    details = error.get("details")
    if not isinstance(details, dict) or "traceback" not in details:
        return error
    return {**error, "details": {key: value for key, value in details.items() if key != "traceback"}}


def _count_child(job: WorkingCopy, write: NodeWrite) -> None:
    """Count an ended child in its fan-out."""
    child = write.state
    if child.parent is None or child.status not in NODE_TERMINAL:
        return
    parent = job.row(child.parent).state
    parent.ended += 1
    if child.status == "failed":
        count_failed_child(parent, child.node_id, child.error)


def count_failed_child(parent: NodeState, node_id: str, error: Json) -> None:
    """Count a failed child; keep the names of the first five and the first error."""
    known = parent.error or {"code": "children_failed", "children": [], "first": error}
    parent.failed += 1
    parent.error = _children_error(parent, known, [*known["children"], node_id][:5])


def uncount_failed_child(parent: NodeState, node_id: str) -> None:
    """Remove a child that is retried from the failed ones."""
    parent.ended -= 1
    parent.failed -= 1
    names = [name for name in parent.error["children"] if name != node_id]
    parent.error = _children_error(parent, parent.error, names) if parent.failed else None


def _children_error(parent: NodeState, error: Json, names: list[str]) -> Json:
    message = f"{parent.failed} of {parent.total} children failed: {', '.join(names)}"
    if parent.failed > len(names):
        message += ", ..." if names else "..."
    return {**error, "children": names, "message": message}
