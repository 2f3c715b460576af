"""A job in memory, driven by hand: tasks in a dict, a clock that is moved, advanced as our verbs do it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

import orjson
from tests.support.job_rows import T0, USUAL, Json, Rows

from cograil.definitions import load_workflow, read_workflow
from cograil.engine.advance import UNLIMITED, Evaluation
from cograil.model.job import (
    Bounds,
    CancelRequested,
    Changes,
    ChildEnded,
    ChildRefused,
    ChildRequest,
    ExpandMore,
    Input,
    JobState,
    Late,
    Lost,
    NodeState,
    PreparedChildJob,
    Reported,
    RetryRequested,
    Signalled,
    Started,
    Submitted,
    TaskWrite,
)
from cograil.model.outcome import Completed, Failed
from cograil.model.workflow import Workflow


class Job:
    """One job, driven by hand. `tasks` are the attempts that are out."""

    def __init__(
        self,
        workflow: str | dict[str, Json] | Workflow,
        inputs: dict[str, Json] | None = None,
        *,
        bounds: Bounds = USUAL,
        random: Callable[[], float] = lambda: 0.5,
        not_before: datetime | None = None,
        refuses: Collection[str] = (),
        evaluation: Evaluation = UNLIMITED,
    ) -> None:
        if isinstance(workflow, str):
            workflow = read_workflow(workflow)
        elif isinstance(workflow, dict):
            workflow = load_workflow(workflow)
        self.workflow = workflow
        self.now = T0
        self.bounds = bounds
        self.random = random
        self.evaluation = evaluation
        self.rows = Rows(workflow, inputs or {}, T0, not_before)
        self.tasks: dict[str, TaskWrite] = {}
        self.to_expand: list[str] = []
        self.dispatched: list[tuple[str, int]] = []
        self.alone: set[tuple[str, int]] = set()  # those of them that have a worker for themselves
        self.children: dict[str, PreparedChildJob] = {}  # the jobs that subworkflow nodes wait for
        self.refuses = refuses  # workflows of which no job can be made
        self.was_revoked = False  # in the last advance
        self.advance(Submitted())

    # -- driving -------------------------------------------------------------------------------------

    def advance(self, *news: Input) -> Changes:
        """Apply these news, as an orchestrator would."""
        return self._apply(news)

    def cancel(self, *reported: Input) -> Changes:
        """Cancel as the verb does: the tasks go first, then what was reported is applied."""
        return self._apply((*reported, CancelRequested("ann", "no longer needed")), is_revoked=True)

    def _apply(self, news: Sequence[Input], *, is_revoked: bool = False) -> Changes:
        happenings = [*(ExpandMore(name) for name in self.to_expand), *news]
        self.to_expand = []
        is_late = self.rows.deadline is not None and self.rows.deadline <= self.now
        self.was_revoked = is_revoked or is_late
        changes = self._decide(happenings)
        if changes.needs_revoke:
            assert not self.was_revoked, "asked twice to revoke"
            self.was_revoked = True
            changes = self._decide(happenings)
        if self.was_revoked:
            self.tasks.clear()
        self.rows.write(changes, self.now)
        self.children |= {child.node_id: child for child in changes.children}
        for task in changes.tasks:
            assert task.node_id not in self.tasks, f"{task.node_id} is out twice"
            self.rows.params(task)
            self.tasks[task.node_id] = task
            self.dispatched.append((task.node_id, task.attempt))
            self.alone |= {(task.node_id, task.attempt)} if task.is_exclusive else set()
        self.to_expand.extend(changes.to_expand)
        self.rows.check()
        return changes

    def _decide(self, news: Sequence[Input]) -> Changes:
        rows, is_revoked = self.rows, self.was_revoked
        return rows.decide(
            news,
            self.now,
            self.random,
            self.bounds,
            is_revoked=is_revoked,
            prepare=self.prepare,
            evaluation=self.evaluation,
        )

    def prepare(self, wanted: ChildRequest) -> PreparedChildJob | ChildRefused:
        """A job for this node, which exists once the node waits for it."""
        if wanted.workflow_id in self.refuses:
            return ChildRefused("workflow_not_found", "there is none")
        name = f"{wanted.node_id}-{self.rows.seq}"
        state = JobState(
            name, "default", 2, "pending", orjson.dumps(wanted.inputs), 0, self.now, parent_job="job"
        )
        return PreparedChildJob(
            wanted.node_id, wanted.workflow_id, wanted.version or 1, state, Changes("running", 0)
        )

    def child_ended(self, node_id: str, status: str = "completed", output: Json = None) -> ChildEnded:
        """The news that the job of this node has ended."""
        child, attempt = self.children.pop(node_id), self.rows.nodes[node_id].attempt
        is_good = status == "completed"
        error = None if is_good else {"code": "x", "message": f"it is {status}"}
        text = orjson.dumps(output or {}) if is_good else None
        return ChildEnded(node_id, attempt, child.state.job_id, status, text, error)

    def end_child(self, node_id: str, status: str = "completed", output: Json = None) -> Changes:
        return self.advance(self.child_ended(node_id, status, output))

    def signal(self, node_id: str, name: str = "approve", **more: Json) -> Changes:
        return self.advance(Signalled(name, node_id, **more))

    def completed(self, node_id: str, output: Json = None) -> Reported:
        """The news that this attempt is done; the attempt is no longer out."""
        task = self.tasks.pop(node_id)
        return Reported(node_id, task.attempt, 7, Completed(orjson.dumps(output or {})), "w", self.now)

    def failed(self, node_id: str, code: str = "error", *, retryable: bool = True) -> Reported:
        """The news that this attempt failed."""
        task = self.tasks.pop(node_id)
        return Reported(node_id, task.attempt, 7, Failed(code, f"{code}!", retryable), "w", self.now)

    def lost(self, node_id: str, reason: str = "worker_lost") -> Lost:
        """The news that this attempt is gone."""
        task = self.tasks.pop(node_id)
        return Lost(node_id, task.attempt, 7, reason, "w", self.now)

    def complete(self, node_id: str, output: Json = None) -> Changes:
        return self.advance(self.completed(node_id, output))

    def fail(self, node_id: str, code: str = "error", *, retryable: bool = True) -> Changes:
        return self.advance(self.failed(node_id, code, retryable=retryable))

    def lose(self, node_id: str, reason: str = "worker_lost") -> Changes:
        return self.advance(self.lost(node_id, reason))

    def start(self, node_id: str) -> Changes:
        return self.advance(Started(node_id, self.tasks[node_id].attempt, 7, "w", self.now))

    def retry(self, node_id: str) -> Changes:
        return self.advance(RetryRequested(node_id, "ann"))

    def late(self, node_id: str, attempt: int) -> Changes:
        return self.advance(Late(node_id, attempt, 7, "result", "zombie"))

    def sleep(self, seconds: float) -> None:
        """Let time pass; the job is woken when it asked for that."""
        until = self.now + timedelta(seconds=seconds)
        while self.rows.wake_at is not None and self.rows.wake_at <= until:
            assert self.rows.wake_at > self.now or self.advance_is_due(), "woken again and again"
            self.now = max(self.now, self.rows.wake_at)
            self.advance()
        self.now = until

    def advance_is_due(self) -> bool:
        """Whether something waits for this very moment."""
        return self.rows.wake_at is not None and self.rows.wake_at <= self.now

    # -- looking -------------------------------------------------------------------------------------

    @property
    def status(self) -> str:
        return self.rows.status

    @property
    def error(self) -> Json:
        return self.rows.error

    @property
    def result(self) -> Json:
        return None if self.rows.result is None else orjson.loads(self.rows.result)

    @property
    def statuses(self) -> dict[str, str]:
        """The status of every node of the workflow."""
        return {name: self[name] for name in self.workflow.nodes}

    def __getitem__(self, node_id: str) -> str:
        row = self.rows.nodes.get(node_id)
        return "pending" if row is None else row.status

    def row(self, node_id: str) -> NodeState:
        return self.rows.nodes[node_id]

    def output(self, node_id: str) -> Json:
        text = self.rows.outputs.get(node_id)
        return None if text is None else orjson.loads(text)

    def params(self, node_id: str) -> Json:
        return orjson.loads(self.rows.params(self.tasks[node_id]))

    def events(self, node_id: str | None = None) -> list[str]:
        """The types of the events about this node (None: about the job)."""
        return [event.type for event in self.rows.events if event.node_id == node_id]

    def data(self, type_: str, node_id: str | None = None) -> dict[str, Json]:
        """What the last such event says."""
        return [e.data for e in self.rows.events if e.type == type_ and e.node_id == node_id][-1]

    def wakes_in(self) -> float | None:
        """Seconds until the job wants to be looked at."""
        return None if self.rows.wake_at is None else (self.rows.wake_at - self.now).total_seconds()
