"""Runs a workflow to its end in memory, with a clock that jumps to the next time that a job waits for."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from cograil.definitions import load_workflow, read_workflow
from cograil.definitions.inputs_section import apply_inputs
from cograil.errors import CograilError, UsageError
from cograil.model.job import (
    CancelRequested,
    Changes,
    ChildEnded,
    ChildRefused,
    ChildRequest,
    Input,
    JobState,
    PreparedChildJob,
    Reported,
    Signalled,
    Submitted,
    TaskWrite,
)
from cograil.model.outcome import Completed, Failed
from cograil.model.workflow import Json, Workflow
from cograil.testing.handler_context import Context
from cograil.testing.handler_stubs import Stub, StubbedHandlers
from cograil.testing.in_memory_job import MemoryJob
from cograil.testing.run_result import Call, EngineEvent, JobResult, NodeResult

START = datetime(2026, 1, 1, tzinfo=UTC)
MAX_ATTEMPTS = 100_000  # attempts of one test: a workflow that never ends is a mistake

Source = str | Path | Mapping[str, Json] | Workflow


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to an approval, and its delay after the request."""

    decision: str = "approve"  # or reject
    by: str | None = None
    reason: str | None = None
    data: Json = None
    after: timedelta = timedelta()


def run_workflow(
    workflow: Source,
    inputs: Mapping[str, Json] | None = None,
    *,
    handlers: Mapping[str, Stub] | None = None,
    approvals: Mapping[str, Answer | bool | str | Mapping[str, Json]] | None = None,
    subworkflows: Sequence[Source] = (),
    clock: datetime = START,
) -> JobResult:
    """Run a job of this workflow (a path, the text of a file, a document) to its end; return its result.

    `handlers` replace the registered ones: a function, its return value, an exception that it raises, or a
    list of these, one for each attempt. `approvals` answer approval nodes: True or "approve", False or
    "reject", the data of the form, or an `Answer`; a node without one times out. `subworkflows` are the
    workflows that subworkflow nodes may start. `clock` is the time of submission.

    Raises InvalidWorkflow, InvalidInput, and UsageError for a missing handler or an approval that would
    wait for ever.
    """
    world = _World(handlers or {}, approvals or {}, subworkflows, clock)
    job = world.submit(_read(workflow), dict(inputs or {}))
    _call_outside_loops(world.run)
    return world.result_of(job)


def _read(source: Source) -> Workflow:
    if isinstance(source, Workflow):
        return source
    if isinstance(source, Mapping):
        return load_workflow(dict(source))
    if isinstance(source, Path) or "\n" not in source:
        path = Path(source)
        return read_workflow(path.read_text(encoding="utf-8"), str(path))
    return read_workflow(source)


def _call_outside_loops(run: Any) -> None:
    """Run it outside of event loops: coroutine handlers get their own loop, so a test that is a coroutine
    needs a thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        contextvars.copy_context().run(run)
        return
    raised: list[BaseException] = []

    def guarded() -> None:
        try:
            run()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=[guarded])
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


@dataclass(slots=True)
class _World:
    """The jobs of one test and their clock."""

    stubs: Mapping[str, Stub]
    approvals: Mapping[str, Any]
    subworkflows: Sequence[Source]
    now: datetime
    jobs: list[MemoryJob] = field(default_factory=list)
    calls: dict[str, list[Call]] = field(default_factory=dict)
    answers: list[tuple[datetime, MemoryJob, Signalled]] = field(default_factory=list)
    kept: dict[tuple[str, str], Context] = field(default_factory=dict)  # the last attempt of each node
    reported_children: set[str] = field(
        default_factory=set
    )  # child jobs whose end was reported to their parents
    _handlers: StubbedHandlers | None = None
    _known: dict[str, Workflow] = field(default_factory=dict)

    def submit(
        self, workflow: Workflow, inputs: dict[str, Json], parent: tuple[MemoryJob, str] | None = None
    ) -> MemoryJob:
        job_input = apply_inputs(workflow, inputs)
        job = MemoryJob(f"00000000-0000-7000-8000-{len(self.jobs) + 1:012}", workflow, job_input, self.now)
        job.parent = parent
        self.jobs.append(job)
        self.calls[job.job_id] = []
        self._known |= {workflow.workflow_id: workflow for workflow in map(_read, self.subworkflows)}
        self.advance(job, Submitted())
        return job

    def run(self) -> None:
        """Run due attempts, or advance the clock, until the first job is over and nothing is left to do."""
        self._handlers = StubbedHandlers(self.stubs)
        first, count = self.jobs[0], 0
        while not first.is_over:
            job = next((candidate for candidate in self.jobs if candidate.tasks or candidate.has_more), None)
            if job is None:
                self._let_time_pass()
            elif job.tasks:
                count += 1
                self._run_task(job, job.tasks.pop(0))
                if count > MAX_ATTEMPTS:
                    raise AssertionError(f"the job has not ended after {MAX_ATTEMPTS:,} attempts")
            else:
                self.advance(job)

    def advance(self, job: MemoryJob, *news: Input) -> None:
        """Advance a job with its inputs, and apply the effects on other jobs."""
        before = len(job.events)
        prepared: dict[str, PreparedChildJob | ChildRefused] = {}

        def prepare(wanted: ChildRequest) -> PreparedChildJob | ChildRefused:
            if wanted.node_id not in prepared:  # a decision may request it twice
                prepared[wanted.node_id] = self._prepare(job, wanted)
            return prepared[wanted.node_id]

        changes = job.advance(news, self.now, prepare)
        for event in job.events[before:]:
            if event.type == "approval_requested" and event.node_id is not None:
                self._answer(job, event.node_id)
        if changes.cancels_children or changes.stops_children:
            self._stop_children(job, changes)
        if job.is_over and job.parent is not None:
            self._tell_parent(job, *job.parent)
        for child in [
            candidate
            for candidate in self.jobs
            if candidate.is_over and candidate.parent and candidate.parent[0] is job
        ]:
            self._tell_parent(child, job, child.parent[1] if child.parent else "")

    def _run_task(self, job: MemoryJob, task: TaskWrite) -> None:
        assert self._handlers is not None
        context = self._context(job, task)
        item = context._item
        outcome = self._handlers.run(item, context)
        if isinstance(outcome, Failed) and outcome.code == "timeout":
            self.now += timedelta(seconds=task.timeout_seconds)
        is_completed = isinstance(outcome, Completed)
        key, logs, progresses = item.idempotency_key, context.logged, context.progresses
        call = Call(
            task.node_id, task.handler, task.attempt, item.params, is_completed, key, logs, progresses
        )
        self.calls[job.job_id].append(call)
        self.kept[job.job_id, task.node_id] = context
        self.advance(job, Reported(task.node_id, task.attempt, 1, outcome, "test", self.now))

    def _context(self, job: MemoryJob, task: TaskWrite) -> Context:
        """Return the context of an attempt, with the state that the previous attempt saved."""
        before = self.kept.get((job.job_id, task.node_id))
        checkpoints = before.checkpoints if before is not None else []
        return Context(
            job.params(task),
            attempt=task.attempt,
            job_id=job.job_id,
            node_id=task.node_id,
            handler=task.handler,
            checkpoint=checkpoints[-1] if checkpoints else None,
            steps=before.steps if before is not None else None,
            timeout_seconds=task.timeout_seconds,
        )

    def _let_time_pass(self) -> None:
        """Advance the clock to the next wake-up time of a job, or the next answer."""
        wakes = [job.wake_at for job in self.jobs if job.wake_at is not None and not job.is_over]
        moments = [*wakes, *(moment for moment, _, _ in self.answers)]
        if not moments:
            raise UsageError(self._why_stuck())
        self.now = max(self.now, min(moments))
        due = [answer for answer in self.answers if answer[0] <= self.now]
        self.answers = [answer for answer in self.answers if answer[0] > self.now]
        for _, job, signal in due:
            if not job.is_over and job.nodes[signal.node_id].status == "waiting":
                self.advance(job, signal)
        for job in list(self.jobs):
            if not job.is_over and job.wake_at is not None and job.wake_at <= self.now:
                self.advance(job)

    def _why_stuck(self) -> str:
        waiting = [
            node.node_id
            for job in self.jobs
            if not job.is_over
            for node in job.nodes.values()
            if node.status == "waiting"
        ]
        names = ", ".join(waiting) or "the job"
        return (
            f"{names} would wait for ever; answer with approvals={{{waiting[0] if waiting else ''!r}: True}}"
        )

    # -- approvals

    def _answer(self, job: MemoryJob, node_id: str) -> None:
        if node_id not in self.approvals:
            return
        answer = _answer_of(self.approvals[node_id])
        approval = job.workflow.nodes[node_id].approval
        if approval is not None and approval.approvers and answer.by not in approval.approvers:
            approvers = ", ".join(approval.approvers)
            by = answer.by or approval.approvers[0]
            if answer.by is not None:
                raise UsageError(f"{answer.by} may not answer {node_id!r}; its approvers are {approvers}")
            answer = Answer(answer.decision, by, answer.reason, answer.data, answer.after)
        signal = Signalled(answer.decision, node_id, answer.by, answer.reason, answer.data)
        self.answers.append((self.now + answer.after, job, signal))

    # -- subworkflows

    def _prepare(self, parent: MemoryJob, wanted: ChildRequest) -> PreparedChildJob | ChildRefused:
        """Return a job for this node; it is submitted when the decision that requests it is final."""
        workflow = self._known.get(wanted.workflow_id)
        if workflow is None:
            raise UsageError(
                f"node {wanted.node_id!r} starts the workflow {wanted.workflow_id!r}: "
                "pass it with subworkflows=[...]"
            )
        try:
            job = self.submit(workflow, dict(wanted.inputs), (parent, wanted.node_id))
        except CograilError as error:
            return ChildRefused(error.code, str(error))
        state = JobState(job.job_id, "default", 2, "pending", b"{}", 0, self.now, parent_job=parent.job_id)
        return PreparedChildJob(
            wanted.node_id, workflow.workflow_id, workflow.version, state, Changes("running", 0)
        )

    def _stop_children(self, job: MemoryJob, changes: Changes) -> None:
        for child in self.jobs:
            if child.is_over or child.parent is None or child.parent[0] is not job:
                continue
            if changes.cancels_children or child.parent[1] in changes.stops_children:
                self.advance(child, CancelRequested("engine", "its parent cancels it"))

    def _tell_parent(self, job: MemoryJob, parent: MemoryJob, node_id: str) -> None:
        if job.job_id in self.reported_children or parent.is_over or node_id not in parent.nodes:
            return
        self.reported_children.add(job.job_id)
        attempt = parent.nodes[node_id].attempt
        self.advance(parent, ChildEnded(node_id, attempt, job.job_id, job.status, job.result, job.error))

    # -- results

    def result_of(self, job: MemoryJob) -> JobResult:
        assert job.finished_at is not None
        return JobResult(
            job_id=job.job_id,
            status=job.status,
            result=None if job.result is None else orjson.loads(job.result),
            error=job.error,
            nodes={name: _node_result(job, name) for name in [*job.workflow.nodes, *job.nodes]},
            events=[EngineEvent(event.type, event.node_id, event.data) for event in job.events],
            attempts=self.calls[job.job_id],
            started_at=job.created_at,
            finished_at=job.finished_at,
            children=[
                self.result_of(child)
                for child in self.jobs
                if child.parent and child.parent[0] is job and child.is_over
            ],
        )


def _node_result(job: MemoryJob, name: str) -> NodeResult:
    row, text = job.nodes.get(name), job.outputs.get(name)
    output = None if text is None else orjson.loads(text)
    if row is None:
        return NodeResult(name, "pending", 0, None, None, None)
    return NodeResult(name, row.status, row.attempt, output, row.error, row.skip_reason)


def _answer_of(answer: Any) -> Answer:
    if isinstance(answer, Answer):
        return answer
    if isinstance(answer, Mapping):
        return Answer(data=dict(answer))
    if answer in (True, "approve"):
        return Answer()
    if answer in (False, "reject"):
        return Answer("reject")
    raise UsageError(
        f"an approval must be answered with True, False, data of its form or an Answer, not {answer!r}"
    )
