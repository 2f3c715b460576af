"""What a job does next: `advance(workflow, state, inputs) -> Changes`.

    1. apply the inputs in the order of their arrival
    2. apply due timers: backoffs, waits, approvals, the deadline of the job
    3. settle: start, skip or leave waiting every node whose predecessors ended, until nothing moves
    4. end the job when every node is terminal, else compute when to wake it

`advance` decides everything about conditions, joins, fan-outs, retries, skips, timeouts and outcomes. It is
a pure function: the same arguments give the same changes. When it needs outputs that are not loaded, it
names them in `Changes.missing`; the caller loads them and calls it again. When a job ends while its tasks
may be running, it sets `Changes.needs_revoke`; the caller revokes the tasks and calls it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from cograil.engine import approvals, attempts, fan_out, job_completion, node_start, timers
from cograil.engine.manual_retry import retry_node
from cograil.engine.readiness import NextMove, dependencies_met, verdict
from cograil.engine.wait_reason import waiting_for
from cograil.engine.working_copy import WorkingCopy, as_error
from cograil.model.evaluation_budget import AllowanceSpent, Budget, Clock
from cograil.model.job import (
    Bounds,
    CancelRequested,
    Changes,
    ChildEnded,
    ExpandMore,
    Input,
    InvalidSubmission,
    JobState,
    Late,
    Lost,
    NodeWrite,
    Outputs,
    RandomFloat,
    Reported,
    Resumed,
    RetryRequested,
    Signalled,
    Started,
    Submitted,
)
from cograil.model.states import JOB_TERMINAL
from cograil.model.workflow import NodeType, RenderError, Workflow, WorkflowNode

DEFAULT_BOUNDS = Bounds()
SILENT_TYPES = (NodeType.START, NodeType.END)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Limits on the evaluation of expressions in one pass. `steps` None: only the limit of each node counts.

    `clock` limits the time, in case steps are slower than expected. With `defers_missing`, nodes without
    their outputs wait for the next pass, and `Changes.missing` stays empty.
    """

    steps: int | None = None
    clock: Clock | None = None
    defers_missing: bool = False
    soft_steps: int | None = None  # after these, no other node is started


UNLIMITED = Evaluation()


def advance(
    workflow: Workflow,
    state: JobState,
    inputs: Sequence[Input],
    *,
    now: datetime,
    random: RandomFloat,
    outputs: Outputs,
    bounds: Bounds = DEFAULT_BOUNDS,
    is_revoked: bool = False,
    evaluation: Evaluation = UNLIMITED,
) -> Changes:
    """Decide what the job does after these inputs at this time.

    `is_revoked`: no task of the job is running, and its inbox was taken after the tasks were revoked.
    `evaluation` limits the evaluation steps of this pass. Nodes beyond the limit wait for the next pass.
    """

    def fresh(limit: Evaluation = evaluation, begin_limit: int | None = None) -> WorkingCopy:
        budget = Budget(
            limit.steps,
            bounds.node_steps,
            node_seconds=bounds.node_seconds,
            clock=limit.clock,
            soft_allowance=limit.soft_steps,
        )
        job = WorkingCopy(
            workflow, state, now=now, random=random, outputs=outputs, bounds=bounds, budget=budget
        )
        job.begin_limit = begin_limit
        job.defers_missing = limit.defers_missing
        return job

    again: Callable[[], WorkingCopy] = fresh
    job, spent = fresh(), 0
    try:
        changes = _decide(job, inputs)
    except AllowanceSpent:
        job, changes, again, spent = _decide_again(fresh, evaluation, job, inputs)
    if job.missing or job.missing_children or job.missing_jobs:
        changes = _missing_changes(job)
    elif changes.status not in JOB_TERMINAL and (end := _find_early_end(job, inputs)) is not None:
        if not is_revoked and _may_have_tasks(state):
            changes = Changes(state.status, state.seq, needs_revoke=True)
        else:
            last = [item for item in inputs if not isinstance(item, ExpandMore | RetryRequested)]
            changes = end(again(), last)
    changes.steps = spent + job.budget.used
    return changes


def _decide_again(
    fresh: Callable[[Evaluation, int | None], WorkingCopy],
    evaluation: Evaluation,
    job: WorkingCopy,
    inputs: Sequence[Input],
) -> tuple[WorkingCopy, Changes, Callable[[], WorkingCopy], int]:
    """Decide up to the node at which the steps ran out.

    Returns also a function that creates the same working copy again, and the steps that were wasted.
    """
    spent = job.budget.used
    again = partial(fresh, evaluation, job.begun - 1)
    job = again()
    try:
        return job, _decide(job, inputs), again, spent
    except AllowanceSpent:
        # Only starting a node should cost steps. If something else does, decide without a limit.
        spent += job.budget.used
        again = partial(fresh, replace(evaluation, steps=None, soft_steps=None), None)
        job = again()
        return job, _decide(job, inputs), again, spent


def _missing_changes(job: WorkingCopy) -> Changes:
    """Return changes that decide nothing and name what must be loaded first."""
    return Changes(
        job.state.status,
        job.state.seq,
        missing=frozenset(job.missing),
        missing_children=frozenset(job.missing_children),
        missing_jobs=job.missing_jobs,
    )


def _decide(job: WorkingCopy, inputs: Sequence[Input]) -> Changes:
    """Decide without regard to cancellation, deadline and fail-fast."""
    _apply_inputs(job, inputs)
    if job.state.status in JOB_TERMINAL:
        return job.changes(wake_at=None)
    _settle(job)
    if job.status == "running" and job_completion.is_over(job):
        return job_completion.finish(job)
    changes = job.changes(timers.wake_at(job))
    if not job.tasks:  # most passes dispatch a task, and then the job waits for nothing
        changes.waiting_for = waiting_for(job)
    return changes


# -- early end: reports that arrived before count, nothing new starts ---------------------------------

End = Callable[[WorkingCopy, Sequence[Input]], Changes]


def _find_early_end(job: WorkingCopy, inputs: Sequence[Input]) -> End | None:
    """Return how the job ends early: cancelled, invalid, past its deadline or failed fast. None: it goes on."""
    for item in inputs:
        if isinstance(item, CancelRequested):
            return partial(_cancel, item)
    if job.invalid is not None:
        return partial(_refuse, job.invalid)
    if timers.is_past_deadline(job.state, job.now):
        return _time_out
    if job.workflow.fail_fast and job_completion.failures(job):
        return _fail_fast
    return None


def _may_have_tasks(state: JobState) -> bool:
    return any(node.status in attempts.ACTIVE for node in state.nodes.values())


def _cancel(request: CancelRequested, job: WorkingCopy, inputs: Sequence[Input]) -> Changes:
    _apply_inputs(job, inputs)
    return job_completion.cancel(job, request.by, request.reason)


def _refuse(invalid: InvalidSubmission, job: WorkingCopy, inputs: Sequence[Input]) -> Changes:
    _apply_inputs(job, inputs)
    return job_completion.refuse(job, invalid)


def _time_out(job: WorkingCopy, inputs: Sequence[Input]) -> Changes:
    _apply_inputs(job, inputs)
    return job_completion.time_out(job)


def _fail_fast(job: WorkingCopy, inputs: Sequence[Input]) -> Changes:
    """Fail fast. Nodes that failed before dispatch are found by settling again, without starting any."""
    job.is_closing = True
    _apply_inputs(job, inputs)
    if not job_completion.failures(job):
        _settle(job)
    return job_completion.fail_fast(job)


# -- 1. inputs --------------------------------------------------------------------------------------


def _apply_inputs(job: WorkingCopy, inputs: Sequence[Input]) -> None:
    """Apply the inputs. After the end of the job, only refused reports are recorded."""
    for item in inputs:
        if isinstance(item, Late):
            attempts.late(job, item)
        elif job.state.status not in JOB_TERMINAL:
            _apply(job, item)


def _apply(job: WorkingCopy, item: Input) -> None:
    """Apply one input. A cancel request changes nothing here: `_find_early_end` handles it."""
    apply = _APPLY.get(type(item))
    if apply is not None:
        apply(job, item)


def _create(job: WorkingCopy, submitted: Submitted) -> None:
    state = job.state
    job.event(
        "job_created",
        workflow_id=job.workflow.workflow_id,
        workflow_version=job.workflow.version,
        submitted_by=state.submitted_by,
        correlation_id=state.correlation_id,
        retry_of=state.retry_of,
        kept_nodes=sorted(state.nodes),
    )


def _expand_more(job: WorkingCopy, node: WorkflowNode) -> None:
    if job.state.is_paused or not job.has_outputs_for(node):
        return
    if job.status_of(node.node_id) == "running" and job.may_begin(node.node_id):
        fan_out.continue_fan_out(job, node)


def _note_invalid(job: WorkingCopy, submission: InvalidSubmission) -> None:
    job.invalid = submission


def _note_resumed(job: WorkingCopy, resumed: Resumed) -> None:
    job.is_resumed = True


def _expand_or_begin(job: WorkingCopy, more: ExpandMore) -> None:
    """Continue a fan-out, or start a node for which the last pass had no steps left."""
    if job.status_of(more.node_id) == "pending":
        job.deferred.append(more.node_id)
    else:
        _expand_more(job, job.workflow.nodes[more.node_id])


_APPLY: dict[type, Callable[[WorkingCopy, Any], None]] = {
    Reported: attempts.report,
    Lost: attempts.lose,
    Started: attempts.start,
    Submitted: _create,
    InvalidSubmission: _note_invalid,
    Resumed: _note_resumed,
    ExpandMore: _expand_or_begin,
    RetryRequested: retry_node,
    Signalled: approvals.apply_signal,
    ChildEnded: attempts.end_child,
}


# -- 2. settle --------------------------------------------------------------------------------------


def _settle(job: WorkingCopy) -> None:
    """Visit nodes until none of them moves."""
    if job.invalid is not None or not timers.start_if_due(job) or job.state.is_paused:
        return
    timers.apply_due(job)
    if job.is_resumed:
        _pick_up_fan_outs(job)
    queue = deque(job.workflow.nodes if _is_fresh(job) else job.deferred)
    _close_fan_outs(job)
    nodes = job.workflow.nodes
    while True:
        while job.newly_ended:
            queue.extend(nodes[job.newly_ended.pop()].successors)
        if not queue:
            return
        name = queue.popleft()
        if job.status_of(name) == "pending":
            _visit(job, nodes[name])


def _is_fresh(job: WorkingCopy) -> bool:
    """Whether all nodes must be visited: the job starts or resumes, or nodes were reopened."""
    if job.state.status == "pending" or job.is_resumed:
        return True
    return "pending" in [write.state.status for write in job.writes.values()]


def _pick_up_fan_outs(job: WorkingCopy) -> None:
    """Create the children and end the fan-outs that waited while the job was paused."""
    for name, state in job.state.nodes.items():
        if state.total is not None and state.status == "running":
            if state.expanded < state.total:
                _expand_more(job, job.workflow.nodes[name])
            fan_out.end_fan_out(job, name)


def _close_fan_outs(job: WorkingCopy) -> None:
    if job.workflow.has_fan_outs:
        for name in [name for name, write in job.writes.items() if write.state.total is not None]:
            fan_out.end_fan_out(job, name)


def _visit(job: WorkingCopy, node: WorkflowNode) -> None:
    match verdict(job, node):
        case NextMove.WAIT:
            return
        case NextMove.RUN:
            if node_start.has_inputs(job, node):
                if job.may_begin(node.node_id):
                    _start(job, node)
            elif job.defers_missing:
                job.leave_missing(node)
        case skip:
            _skip(job, node, skip.value)


def _ready(job: WorkingCopy, node: WorkflowNode) -> NodeWrite:
    write = job.row(node.node_id)
    job.move(write, "ready")
    if node.type not in SILENT_TYPES:
        met = list(node.predecessors) if not node.any_of else dependencies_met(job, node)
        job.event("node_ready", node.node_id, dependencies_met=met)
    return write


def _start(job: WorkingCopy, node: WorkflowNode) -> None:
    """Start the node, skip it when its `when` is false, or fail it when its `when` cannot be evaluated."""
    try:
        is_wanted = node.when is None or node_start.is_wanted(job, node, node.when)
    except RenderError as error:
        job.fail(_ready(job, node), as_error(error))
        return
    node_start.start_node(job, _ready(job, node), node) if is_wanted else _skip(job, node, "when")


def _skip(job: WorkingCopy, node: WorkflowNode, reason: str) -> None:
    write = job.row(node.node_id)
    job.move(write, "skip")
    write.state.skip_reason = reason
    if reason == NextMove.SKIP_FAILURE.value:
        write.state.error = {"code": "upstream_failed", "message": "a node it needs has failed"}
    job.event("node_skipped", node.node_id, reason=reason)
