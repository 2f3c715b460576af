"""Metrics and traces of committed changes. No decision depends on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial

from cograil import metrics, tracing
from cograil.model.job import Changes, JobState
from cograil.model.workflow import NodeType, Workflow
from cograil.store.database import Transaction
from cograil.store.locked_jobs import LockedJobs, attempts_of_children
from cograil.store.task_queries import EndedJob
from cograil.store.write_batch import JobAttributes, WriteBatch

ENDED_NODES = frozenset({"completed", "failed"})


def note_written(workflows: Mapping[int, Workflow], batch: WriteBatch) -> None:
    """Count the jobs that were created and the jobs that ended."""
    if batch.new_jobs.rows:
        metrics.jobs_submitted.inc(len(batch.new_jobs.rows))
    for state, changes, new in batch.traced:
        fields: dict[str, str | int] = {
            "cograil.workflow.id": new.workflow_id,
            "cograil.workflow.version": new.workflow_version,
        }
        queue = changes.tasks[0].queue if changes.tasks else "default"
        link = state.trace_link
        tracing.record_submit(state.job_id, state.trace_caller, state.created_at, queue, fields, link)
    for status, jobs in Counter([changes.status for _, changes in batch.finished]).items():
        metrics.jobs_ended.labels(status).inc(jobs)
    for state, changes in batch.finished:
        _note_end(state, changes, workflows.get(state.definition_id))


def note_ended(jobs: Sequence[EndedJob]) -> None:
    """Count the jobs that ended with their last task."""
    metrics.jobs_ended.labels("completed").inc(len(jobs))
    waited, ran = metrics.job_wait_seconds.labels(), metrics.job_run_seconds.labels("completed")
    for _, wait_seconds, run_seconds in jobs:
        if wait_seconds is not None:
            waited.observe(max(0.0, wait_seconds))
        ran.observe(max(0.0, run_seconds))


def _note_end(state: JobState, changes: Changes, workflow: Workflow | None) -> None:
    assert changes.finished_at is not None
    trace = tracing.trace_id(tracing.job_traceparent(state.job_id, state.trace_parent))
    began = _first_start(state, changes, workflow)
    if began is not None:
        might = max(state.created_at, state.not_before or state.created_at)
        metrics.job_wait_seconds.labels().observe(max(0.0, (began - might).total_seconds()), trace)
    started = changes.started_at or state.started_at
    if started is not None:
        seconds = max(0.0, (changes.finished_at - started).total_seconds())
        metrics.job_run_seconds.labels(changes.status).observe(seconds, trace)
    if workflow is not None and tracing.is_on():
        _tell_end(state, changes, workflow)


def _first_start(state: JobState, changes: Changes, workflow: Workflow | None) -> datetime | None:
    """Return when a worker first started a task of this job, as far as the batch shows it."""
    if workflow is None:
        return None
    first: datetime | None = None
    for node in (*state.nodes.values(), *[write.state for write in changes.nodes]):
        # Later attempts do not show when the first began.
        if node.started_at is None or node.attempt != 1 or (first is not None and node.started_at >= first):
            continue
        is_task = node.parent is not None or workflow.nodes[node.node_id].handler
        if is_task and node.started_at >= state.created_at:  # a retry keeps nodes of an older job
            first = node.started_at
    return first


def _tell_end(state: JobState, changes: Changes, workflow: Workflow) -> None:
    assert changes.finished_at is not None
    fields: dict[str, str | int] = {
        "cograil.workflow.id": workflow.workflow_id,
        "cograil.workflow.version": workflow.version,
        "cograil.job.status": changes.status,
    }
    error = None if changes.status == "completed" else changes.status
    moments = (state.created_at, changes.finished_at)
    tracing.record_job_end(state.job_id, state.trace_parent, *moments, workflow.workflow_id, fields, error)


def note_opened(
    batch: WriteBatch, locked: LockedJobs, decided: Mapping[str, Changes], workflows: Mapping[int, Workflow]
) -> None:
    """Trace jobs that were submitted by SQL: their caller creates no span, unless the submission names one."""
    for job_id in locked.new:
        state = locked.states[job_id]
        workflow = workflows.get(state.definition_id)
        if state.trace_parent is None and job_id in decided and workflow is not None:
            new = JobAttributes(workflow.workflow_id, workflow.version)
            batch.traced.append((state, decided[job_id], new))


async def note_joined(
    tx: Transaction,
    workflows: Mapping[int, Workflow],
    states: Mapping[str, JobState],
    decided: Mapping[str, Changes],
) -> None:
    """Trace fan-ins that have joined their children; called only while tracing is enabled."""
    for job_id, changes in decided.items():
        workflow = workflows.get(states[job_id].definition_id)
        for write in changes.nodes if workflow is not None and workflow.has_fan_outs else ():
            assert workflow is not None
            node = write.state
            if node.parent is not None or node.status not in ENDED_NODES:
                continue
            definition = workflow.nodes[node.node_id]
            if definition.type is not NodeType.FAN_IN or node.finished_at is None:
                continue
            fans = [name for name in definition.predecessors if workflow.nodes[name].type is NodeType.FAN_OUT]
            attempts = await attempts_of_children(tx, job_id, fans, tracing.MAX_LINKS)
            moments = (node.started_at or node.finished_at, node.finished_at)
            error = None if node.status == "completed" else "failed"
            span = (job_id, states[job_id].trace_parent, node.node_id, moments, workflow.workflow_id)
            tx.afterwards(partial(tracing.record_fan_in, *span, attempts, error))
