"""The rows of one job in memory, loaded and written as our store does it.

It hands `advance` what the store would load (the nodes of the workflow, the children that the news are
about or whose backoff is over, outputs only when asked for, and never those of this very pass) and writes
what the store would write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from cograil import engine
from cograil.engine.advance import UNLIMITED, Evaluation
from cograil.model.job import (
    Bounds,
    Changes,
    ChildRefused,
    ChildRequest,
    EventWrite,
    Input,
    JobState,
    NodeState,
    Outputs,
    PreparedChildJob,
    Reported,
    TaskWrite,
)
from cograil.model.outcome import Completed
from cograil.model.states import EVENT_TYPES, JOB_TERMINAL, NODE_TERMINAL
from cograil.model.workflow import Workflow

Json = Any
T0 = datetime(2030, 1, 1, tzinfo=UTC)
EVENTS = frozenset(EVENT_TYPES)
USUAL = Bounds()


class Rows:
    """The rows of one job."""

    def __init__(self, workflow: Workflow, inputs: Json, now: datetime, not_before: datetime | None = None):
        self.workflow = workflow
        self.status = "pending"
        self.seq = 0
        self.input_text = orjson.dumps(inputs)
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
        self.parent: tuple[int, str] | None = None  # the job and the node that wait for this one
        self.is_child = False  # there is, or will be, such a node
        self.is_held = workflow.limit is not None  # until it is admitted

    # -- reading -------------------------------------------------------------------------------------

    def load(self, news: Iterable[Input], now: datetime) -> JobState:
        """The job as the store loads it. The node states are the rows themselves: advance must copy."""
        nodes, wake = self.nodes, None
        if self.workflow.has_fan_outs:
            nodes, wake = self._without_quiet_children(news, now)
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
            parent_job="parent" if self.is_child else None,
            is_held=self.is_held,
            nodes=nodes,
            children_wake_at=wake,
            children_sleeping=self._sleeping_children(nodes),
        )

    def _sleeping_children(self, loaded: dict[str, NodeState]) -> int:
        rows = [row for name, row in self.nodes.items() if row.parent is not None and name not in loaded]
        return sum(row.not_before is not None for row in rows)

    def _without_quiet_children(
        self, news: Iterable[Input], now: datetime
    ) -> tuple[dict[str, NodeState], datetime | None]:
        about = {getattr(happening, "node_id", None) for happening in news}
        nodes: dict[str, NodeState] = {}
        wake: datetime | None = None
        for name, row in self.nodes.items():
            if row.parent is None or name in about:
                nodes[name] = row
            elif row.status == "ready" and row.not_before is not None:
                if row.not_before <= now:
                    nodes[name] = row
                elif wake is None or row.not_before < wake:
                    wake = row.not_before
        return nodes, wake

    def decide(
        self,
        news: Sequence[Input],
        now: datetime,
        random: Callable[[], float],
        bounds: Bounds,
        advance: Callable[..., Changes] = engine.advance,
        *,
        is_revoked: bool = False,
        prepare: Callable[[ChildRequest], PreparedChildJob | ChildRefused] | None = None,
        evaluation: Evaluation = UNLIMITED,
    ) -> Changes:
        """Ask advance until it has all it needs; `prepare` makes the jobs of subworkflow nodes ready."""
        state = self.load(news, now)
        outputs = Outputs()
        for happening in news:
            if isinstance(happening, Reported) and isinstance(happening.outcome, Completed):
                outputs.raw[happening.node_id] = happening.outcome.output
        while True:
            changes = advance(
                self.workflow,
                state,
                news,
                now=now,
                random=random,
                outputs=outputs,
                bounds=bounds,
                is_revoked=is_revoked,
                **({} if evaluation is UNLIMITED else {"evaluation": evaluation}),
            )
            if not changes.missing and not changes.missing_children and not changes.missing_jobs:
                return changes
            if changes.missing_jobs:
                assert prepare is not None
                known = outputs.jobs or {}
                assert not any(lookup.node_id in known for lookup in changes.missing_jobs), (
                    "asked twice for a job"
                )
                outputs.jobs = known | {lookup.node_id: prepare(lookup) for lookup in changes.missing_jobs}
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
    "approval_requested": "waiting",
    "child_started": "waiting",
}
UNMOVING = ("warning", "task_failed", "node_timeout", "approval_decided")
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
        if name is None or event.type in UNMOVING:
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
