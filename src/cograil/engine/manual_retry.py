"""Retry by hand in a running job: a failed node gets new attempts, what it took down is open again."""

from __future__ import annotations

from collections import deque

from cograil.engine.attempts import forgive_failed_child
from cograil.engine.readiness import Verdict
from cograil.engine.working_copy import WorkingCopy
from cograil.model.job import RetryRequested


def retry_by_hand(job: WorkingCopy, news: RetryRequested) -> None:
    """A failed node gets a new budget of attempts; what was given up because of it is open again.

    The event names all that moved: the history of a job must be readable from its events alone.
    """
    state = job.find(news.node_id)
    if state is None or state.status != "failed":
        return
    write = job.row(news.node_id)
    job.move(write, "retry")
    write.state.uncounted_attempts = write.state.attempt
    write.state.lost = 0
    write.state.finished_at = None
    write.state.not_before = job.now
    resumed = [] if state.parent is None else _resume_fan_out(job, state.parent, news.node_id)
    reopened = _reopen_descendants(job, state.parent or news.node_id)
    job.event(
        "node_retry",
        news.node_id,
        retry_count=0,
        by=news.by,
        not_before=job.now.isoformat(),
        reopened=reopened,
        resumed=resumed,
    )


def _resume_fan_out(job: WorkingCopy, fan_out: str, child: str) -> list[str]:
    write = job.row(fan_out)
    forgive_failed_child(write.state, child)
    if write.state.status != "completed":
        return []
    job.move(write, "resume")
    write.state.finished_at = None
    return [fan_out]


def _reopen_descendants(job: WorkingCopy, node_id: str) -> list[str]:
    reopened = []
    queue = deque(job.workflow.nodes[node_id].successors)
    while queue:
        name = queue.popleft()
        state = job.find(name)
        if state is None or not _was_given_up(state.status, state.skip_reason, state.error):
            continue
        write = job.row(name)
        job.move(write, "reopen")
        write.state.skip_reason = None
        write.state.error = None
        write.state.finished_at = None
        reopened.append(name)
        queue.extend(job.workflow.nodes[name].successors)
    return reopened


def _was_given_up(status: str, skip_reason: str | None, error: object) -> bool:
    if status == "skipped":
        return skip_reason == Verdict.SKIP_FAILURE.value
    return status == "failed" and isinstance(error, dict) and error.get("code") == "children_failed"
