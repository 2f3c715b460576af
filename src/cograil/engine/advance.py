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

from cograil.engine import approvals, attempts, fan_out, job_completion, node_start, timers
from cograil.engine.manual_retry import retry_by_hand
from cograil.engine.readiness import Verdict, dependencies_met, verdict
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
    happenings: Sequence[Input],
    *,
    now: datetime,
    random: RandomFloat,
    outputs: Outputs,
    bounds: Bounds = DEFAULT_BOUNDS,
    is_revoked: bool = False,
    evaluation: Evaluation = UNLIMITED,
) -> Changes:
    """Decide what these happenings and this moment mean for the job.

    `is_revoked` says that no task of the job is out any more, and its inbox was taken after that.
    `evaluation` limits the steps of this pass: nodes for which none are left are left for another one.
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
        changes = _decide(job, happenings)
    except AllowanceSpent:
        job, changes, again, spent = _decide_again(fresh, evaluation, job, happenings)
    if job.missing or job.missing_children or job.missing_jobs:
        changes = _lacking(job)
    elif changes.status not in JOB_TERMINAL and (end := _end_from_outside(job, happenings)) is not None:
        if not is_revoked and _may_have_tasks(state):
            changes = Changes(state.status, state.seq, needs_revoke=True)
        else:
            last = [news for news in happenings if not isinstance(news, ExpandMore | RetryRequested)]
            changes = end(again(), last)
    changes.steps = spent + job.budget.used
    return changes


def _decide_again(
    fresh: Callable[[Evaluation, int | None], WorkingCopy],
    evaluation: Evaluation,
    job: WorkingCopy,
    happenings: Sequence[Input],
) -> tuple[WorkingCopy, Changes, Callable[[], WorkingCopy], int]:
    """What the job does up to the node in the middle of which the steps of this job ran out.

    Returns also how to make such a board again, and the steps that were spent in vain.
    """
    spent = job.budget.used
    again = partial(fresh, evaluation, job.begun - 1)
    job = again()
    try:
        return job, _decide(job, happenings), again, spent
    except AllowanceSpent:
        # Nothing but the beginning of a node should cost steps; if it does, it has to be paid.
        spent += job.budget.used
        again = partial(fresh, replace(evaluation, steps=None, soft_steps=None), None)
        job = again()
        return job, _decide(job, happenings), again, spent


def _lacking(job: WorkingCopy) -> Changes:
    """Nothing is decided: this must be loaded first."""
    return Changes(
        job.state.status,
        job.state.seq,
        missing=frozenset(job.missing),
        missing_children=frozenset(job.missing_children),
        missing_jobs=job.missing_jobs,
    )


def _decide(job: WorkingCopy, happenings: Sequence[Input]) -> Changes:
    """What the job does by itself."""
    _apply_news(job, happenings)
    if job.state.status in JOB_TERMINAL:
        return job.changes(wake_at=None)
    _settle(job)
    if job.status == "running" and job_completion.is_over(job):
        return job_completion.finish(job)
    changes = job.changes(timers.wake_at(job))
    if not job.tasks:  # most passes hand out a task, and then it waits for nothing
        changes.waiting_for = waiting_for(job)
    return changes


# -- cut short: what was reported before counts, nothing new begins ----------------------------------

End = Callable[[WorkingCopy, Sequence[Input]], Changes]


def _end_from_outside(job: WorkingCopy, happenings: Sequence[Input]) -> End | None:
    """How a job ends that does not end by itself now, if somebody, its deadline or a failure wants that."""
    for news in happenings:
        if isinstance(news, CancelRequested):
            return partial(_cancel, news)
    if job.invalid is not None:
        return partial(_refuse, job.invalid)
    if timers.is_past_deadline(job.state, job.now):
        return _time_out
    if job.workflow.fail_fast and job_completion.failures(job):
        return _give_up
    return None


def _may_have_tasks(state: JobState) -> bool:
    return any(node.status in attempts.ACTIVE for node in state.nodes.values())


def _cancel(asked: CancelRequested, job: WorkingCopy, happenings: Sequence[Input]) -> Changes:
    _apply_news(job, happenings)
    return job_completion.cancel(job, asked.by, asked.reason)


def _refuse(misfit: InvalidSubmission, job: WorkingCopy, happenings: Sequence[Input]) -> Changes:
    _apply_news(job, happenings)
    return job_completion.refuse(job, misfit)


def _time_out(job: WorkingCopy, happenings: Sequence[Input]) -> Changes:
    _apply_news(job, happenings)
    return job_completion.time_out(job)


def _give_up(job: WorkingCopy, happenings: Sequence[Input]) -> Changes:
    """Fail fast. What failed without being handed out is found again by settling, without beginning."""
    job.is_closing = True
    _apply_news(job, happenings)
    if not job_completion.failures(job):
        _settle(job)
    return job_completion.give_up(job)


# -- 1. news ----------------------------------------------------------------------------------------


def _apply_news(job: WorkingCopy, happenings: Sequence[Input]) -> None:
    """Apply the news. Once the job has ended, only what was refused is still recorded."""
    for news in happenings:
        if isinstance(news, Late):
            attempts.late(job, news)
        elif job.state.status not in JOB_TERMINAL:
            _apply(job, news)


def _apply(job: WorkingCopy, news: Input) -> None:
    """Nothing is applied for a cancel: it ends the job from outside."""
    apply = _APPLY.get(type(news))
    if apply is not None:
        apply(job, news)


def _create(job: WorkingCopy, news: Submitted) -> None:
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


def _expand_more(job: WorkingCopy, node: Node) -> None:
    if job.state.is_paused or not job.has_outputs_for(node):
        return
    if job.status_of(node.node_id) == "running" and job.may_begin(node.node_id):
        fan_out.continue_fan_out(job, node)


def _note_misfit(job: WorkingCopy, news: InvalidSubmission) -> None:
    job.invalid = news


def _note_resumed(job: WorkingCopy, news: Resumed) -> None:
    job.is_resumed = True


def _hear_more(job: WorkingCopy, news: ExpandMore) -> None:
    """A fan-out has more children to make, or the pass before had no steps left to begin this node."""
    if job.status_of(news.node_id) == "pending":
        job.asked.append(news.node_id)
    else:
        _expand_more(job, job.workflow.nodes[news.node_id])


_APPLY: dict[type, Callable[[WorkingCopy, Any], None]] = {
    Reported: attempts.report,
    Lost: attempts.lose,
    Started: attempts.start,
    Submitted: _create,
    InvalidSubmission: _note_misfit,
    Resumed: _note_resumed,
    ExpandMore: _hear_more,
    RetryRequested: retry_by_hand,
    Signalled: approvals.answer,
    ChildEnded: attempts.end_child,
}


# -- 2. settle --------------------------------------------------------------------------------------


def _settle(job: WorkingCopy) -> None:
    """Let every node that can move do so, until nothing moves."""
    if job.invalid is not None or not timers.start_if_due(job) or job.state.is_paused:
        return
    timers.apply_due(job)
    if job.is_resumed:
        _pick_up_fan_outs(job)
    queue = deque(job.workflow.nodes if _is_fresh(job) else job.asked)
    _close_fan_outs(job)
    nodes = job.workflow.nodes
    while True:
        while job.newly_ended:
            queue.extend(nodes[job.newly_ended.pop()].successors)
        if not queue:
            return
        name = queue.popleft()
        if job.status_of(name) == "pending":
            _consider(job, nodes[name])


def _is_fresh(job: WorkingCopy) -> bool:
    """Whether this is the pass in which the job starts or nodes were opened again: look at all nodes."""
    if job.state.status == "pending" or job.is_resumed:
        return True
    return "pending" in [write.state.status for write in job.writes.values()]


def _pick_up_fan_outs(job: WorkingCopy) -> None:
    """Children that were not made, or whose end was not seen, while the job was paused."""
    for name, state in job.state.nodes.items():
        if state.total is not None and state.status == "running":
            if state.expanded < state.total:
                _expand_more(job, job.workflow.nodes[name])
            fan_out.end_fan_out(job, name)


def _close_fan_outs(job: WorkingCopy) -> None:
    if job.workflow.has_fan_outs:
        for name in [name for name, write in job.writes.items() if write.state.total is not None]:
            fan_out.end_fan_out(job, name)


def _consider(job: WorkingCopy, node: Node) -> None:
    match verdict(job, node):
        case Verdict.WAIT:
            return
        case Verdict.RUN:
            if node_start.has_inputs(job, node):
                if job.may_begin(node.node_id):
                    _run(job, node)
            elif job.defers_missing:
                job.leave_missing(node)
        case skip:
            _skip(job, node, skip.value)


def _ready(job: WorkingCopy, node: Node) -> NodeWrite:
    write = job.row(node.node_id)
    job.move(write, "ready")
    if node.type not in QUIET:
        met = list(node.predecessors) if not node.any_of else dependencies_met(job, node)
        job.event("node_ready", node.node_id, dependencies_met=met)
    return write


def _run(job: WorkingCopy, node: Node) -> None:
    """Begin the node, unless its `when` says that it is not wanted, or says nothing."""
    try:
        is_wanted = node.when is None or node_start.is_wanted(job, node, node.when)
    except RenderError as error:
        job.fail(_ready(job, node), as_error(error))
        return
    node_start.start_node(job, _ready(job, node), node) if is_wanted else _skip(job, node, "when")


def _skip(job: WorkingCopy, node: Node, reason: str) -> None:
    write = job.row(node.node_id)
    job.move(write, "skip")
    write.state.skip_reason = reason
    if reason == Verdict.SKIP_FAILURE.value:
        write.state.error = {"code": "upstream_failed", "message": "a node it needs has failed"}
    job.event("node_skipped", node.node_id, reason=reason)
