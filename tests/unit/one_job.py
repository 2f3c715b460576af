"""A job in memory, advanced the way our verbs do it.

`Rows` is what the database keeps of one job. It hands `advance` what the store would load (the nodes of
the workflow, the children that the news are about or whose backoff is over, outputs only when asked for,
and never those of this very pass) and writes what the store would write. `Job` is a hand-driven job for
tests: tasks in a dict, a clock that is moved by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from cograil import engine
from cograil.definitions import load_workflow, read_workflow
from cograil.engine.states import EVENT_TYPES, JOB_TERMINAL, NODE_TERMINAL
from cograil.model.job import (
    Bounds,
    CancelAsked,
    Changes,
    EventWrite,
    Happening,
    JobState,
    Late,
    Lost,
    More,
    NodeState,
    Outputs,
    Reported,
    RetryAsked,
    Started,
    Submitted,
    TaskWrite,
)
from cograil.model.outcome import Completed, Failed
from cograil.model.workflow import Workflow

Json = Any
T0 = datetime(2030, 1, 1, tzinfo=UTC)
EVENTS = frozenset(EVENT_TYPES)
USUAL = Bounds()


class Rows:
    """The rows of one job."""

    def __init__(self, workflow: Workflow, given: Json, now: datetime, not_before: datetime | None = None):
        self.workflow = workflow
        self.status = "pending"
        self.seq = 0
        self.input_text = orjson.dumps(given)
        self.created_at = now
        self.not_before = not_before
        self.started_at: datetime | None = None
        self.finished_at: datetime | None = None
        self.wake_at: datetime | None = None
        limit = workflow.timeout_seconds
        self.deadline = None if limit is None else max(now, not_before or now) + timedelta(seconds=limit)
        self.nodes: dict[str, NodeState] = {}
        self.outputs: dict[str, bytes | None] = {}
        self.inputs: dict[str, bytes] = {}
        self.events: list[EventWrite] = []
        self.result: bytes | None = None
        self.error: Json = None

    # -- reading -------------------------------------------------------------------------------------

    def load(self, news: Iterable[Happening], now: datetime) -> JobState:
        """The job as the store loads it. The node states are the rows themselves: advance must copy."""
        about = {happening.node_id for happening in news if hasattr(happening, "node_id")}
        nodes, wake = {}, None
        for name, row in self.nodes.items():
            if row.parent is None or name in about:
                nodes[name] = row
            elif row.status == "ready" and row.not_before is not None:
                if row.not_before <= now:
                    nodes[name] = row
                elif wake is None or row.not_before < wake:
                    wake = row.not_before
        return JobState(
            job_id="job",
            tenant_id="default",
            definition_id=1,
            status=self.status,
            input_text=self.input_text,
            seq=self.seq,
            created_at=self.created_at,
            not_before=self.not_before,
            deadline=self.deadline,
            started_at=self.started_at,
            nodes=nodes,
            children_wake_at=wake,
        )

    def decide(
        self,
        news: Sequence[Happening],
        now: datetime,
        dice: Callable[[], float],
        bounds: Bounds,
        advance: Callable[..., Changes] = engine.advance,
    ) -> Changes:
        """Ask advance until it has every output it needs."""
        state = self.load(news, now)
        outputs = Outputs()
        for happening in news:
            if isinstance(happening, Reported) and isinstance(happening.outcome, Completed):
                outputs.raw[happening.node_id] = happening.outcome.output
        while True:
            changes = advance(self.workflow, state, news, now=now, dice=dice, outputs=outputs, bounds=bounds)
            if not changes.missing and not changes.missing_children:
                return changes
            for name in changes.missing:
                assert name not in outputs.raw, f"asked twice for {name}"
                outputs.raw[name] = self.outputs.get(name)
            for name in changes.missing_children:
                assert name not in outputs.children, f"asked twice for the children of {name}"
                outputs.children[name] = self._children(name)

    def _children(self, parent: str) -> list[tuple[str, str, bytes | None]]:
        rows = sorted((row.index or 0, row) for row in self.nodes.values() if row.parent == parent)
        return [(row.node_id, row.status, self.outputs.get(row.node_id)) for _, row in rows]

    # -- writing -------------------------------------------------------------------------------------

    def write(self, changes: Changes, now: datetime) -> None:
        """What write_changes.sql and close_nodes.sql do, but for tasks and `more`."""
        self.status, self.seq, self.wake_at = changes.status, changes.seq, changes.wake_at
        self.started_at = self.started_at or changes.started_at
        self.finished_at = self.finished_at or changes.finished_at
        self.result = changes.result or self.result
        self.error = changes.error or self.error
        for write in changes.nodes:
            name = write.state.node_id
            self.nodes[name] = write.state
            if write.output is not None:
                self.outputs[name] = write.output
            if write.input is not None:
                self.inputs[name] = write.input
        if changes.closes_nodes:
            for row in self.nodes.values():
                if row.parent is not None and row.status not in NODE_TERMINAL:
                    row.status, row.finished_at, row.not_before = "cancelled", now, None
        self.events.extend(changes.events)

    def params(self, task: TaskWrite) -> bytes:
        """What the attempt is given; `tasks.params` may not be null."""
        params = self.inputs.get(task.node_id) if task.params is None else task.params
        assert params is not None, f"{task.node_id} is handed out without params"
        return params

    # -- what must always hold -----------------------------------------------------------------------

    def check(self) -> dict[str, str]:
        """The rows agree with each other, and the events alone tell every status: here it is."""
        assert [event.seq for event in self.events] == list(range(1, self.seq + 1)), "events have gaps"
        assert {event.type for event in self.events} <= EVENTS
        assert (self.status in JOB_TERMINAL) == (self.finished_at is not None)
        assert self.wake_at is None or self.finished_at is None
        job, nodes = replay(self.events)
        assert job == self.status
        for name, row in self.nodes.items():
            assert (row.status in NODE_TERMINAL) == (row.finished_at is not None), row
            if row.status == "cancelled":
                assert job in ("cancelled", "failed")
                continue
            assert nodes.get(name) == row.status, f"{name} is {row.status}, its events say {nodes.get(name)}"
        for name, status in nodes.items():
            assert name in self.nodes, f"{name} is {status} by its events and has no row"
        return nodes


NODE_EVENTS = {
    "node_ready": "ready",
    "node_dispatched": "dispatched",
    "node_completed": "completed",
    "node_failed": "failed",
    "node_skipped": "skipped",
    "node_retry": "ready",
}
JOB_EVENTS = {
    "job_created": "pending",
    "job_started": "running",
    "job_completed": "completed",
    "job_failed": "failed",
    "job_cancelled": "cancelled",
}


def replay(events: Iterable[EventWrite]) -> tuple[str, dict[str, str]]:
    """The status of the job and of its nodes, from the events alone."""
    job, nodes = "pending", {}
    for event in events:
        job = JOB_EVENTS.get(event.type, job)
        name = event.node_id
        if name is None or event.type in ("warning", "task_failed", "node_timeout"):
            continue
        if event.type in NODE_EVENTS:
            nodes[name] = NODE_EVENTS[event.type]
        elif "children" in event.data:
            nodes[name] = "running"
        elif "waits_until" in event.data:
            nodes[name] = "waiting"
        nodes.update(dict.fromkeys(event.data.get("reopened", ()), "pending"))
        nodes.update(dict.fromkeys(event.data.get("resumed", ()), "running"))
    return job, nodes


class Job:
    """One job, driven by hand. `tasks` are the attempts that are out."""

    def __init__(
        self,
        workflow: str | dict[str, Json] | Workflow,
        given: dict[str, Json] | None = None,
        *,
        bounds: Bounds = USUAL,
        dice: Callable[[], float] = lambda: 0.5,
        not_before: datetime | None = None,
    ) -> None:
        if isinstance(workflow, str):
            workflow = read_workflow(workflow)
        elif isinstance(workflow, dict):
            workflow = load_workflow(workflow)
        self.workflow = workflow
        self.now = T0
        self.bounds = bounds
        self.dice = dice
        self.rows = Rows(workflow, given or {}, T0, not_before)
        self.tasks: dict[str, TaskWrite] = {}
        self.more: list[str] = []
        self.dispatched: list[tuple[str, int]] = []
        self.advance(Submitted())

    # -- driving -------------------------------------------------------------------------------------

    def advance(self, *news: Happening) -> Changes:
        """Apply these news, as an orchestrator would."""
        return self._apply(news)

    def cancel(self, *reported: Happening) -> Changes:
        """Cancel as the verb does: the tasks go first, then what was reported is applied."""
        self.tasks.clear()
        return self._apply((*reported, CancelAsked("ann", "no longer needed")))

    def _apply(self, news: Sequence[Happening]) -> Changes:
        happenings = [*(More(name) for name in self.more), *news]
        self.more = []
        if self.rows.deadline is not None and self.rows.deadline <= self.now:
            self.tasks.clear()
        changes = self.rows.decide(happenings, self.now, self.dice, self.bounds)
        self.rows.write(changes, self.now)
        for task in changes.tasks:
            assert task.node_id not in self.tasks, f"{task.node_id} is out twice"
            self.rows.params(task)
            self.tasks[task.node_id] = task
            self.dispatched.append((task.node_id, task.attempt))
        self.more.extend(changes.more)
        self.rows.check()
        return changes

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
        return self.advance(RetryAsked(node_id, "ann"))

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
