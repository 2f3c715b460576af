"""Manual retry in a running job: a failed node gets new attempts, and its descendants are reopened."""

from __future__ import annotations

from collections import deque

from cograil.engine.attempts import uncount_failed_child
from cograil.engine.readiness import NextMove
from cograil.engine.working_copy import WorkingCopy
from cograil.model.job import RetryRequested


def retry_node(job: WorkingCopy, request: RetryRequested) -> None:
    """Retry a failed node with a new set of attempts, and reopen the nodes that failed because of it.

    Does nothing when the node has not failed. The event names every node that moved, so the history of the
    job can be rebuilt from its events alone.
    """
    state = job.find(request.node_id)
    if state is None or state.status != "failed":
        return
    write = job.row(request.node_id)
    job.move(write, "retry")
    write.state.uncounted_attempts = write.state.attempt
    write.state.lost = 0
    write.state.finished_at = None
    write.state.not_before = job.now
    resumed = [] if state.parent is None else _resume_fan_out(job, state.parent, request.node_id)
    reopened = _reopen_descendants(job, state.parent or request.node_id)
    job.event(
        "node_retry",
        request.node_id,
        retry_count=0,
        by=request.by,
        not_before=job.now.isoformat(),
        reopened=reopened,
        resumed=resumed,
    )


def _resume_fan_out(job: WorkingCopy, fan_out: str, child: str) -> list[str]:
    write = job.row(fan_out)
    uncount_failed_child(write.state, child)
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
        if state is None or not _failed_by_upstream(state.status, state.skip_reason, state.error):
            continue
        write = job.row(name)
        job.move(write, "reopen")
        write.state.skip_reason = None
        write.state.error = None
        write.state.finished_at = None
        reopened.append(name)
        queue.extend(job.workflow.nodes[name].successors)
    return reopened


def _failed_by_upstream(status: str, skip_reason: str | None, error: object) -> bool:
    if status == "skipped":
        return skip_reason == NextMove.SKIP_FAILURE.value
    return status == "failed" and isinstance(error, dict) and error.get("code") == "children_failed"
