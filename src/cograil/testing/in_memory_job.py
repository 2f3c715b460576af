"""One job in memory: rows are loaded and written as the store does it, and the engine decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

import orjson

from cograil.engine import advance
from cograil.model.job import (
    Changes,
    ChildRefused,
    ChildRequest,
    EventWrite,
    ExpandMore,
    Input,
    JobState,
    NodeState,
    Outputs,
    PreparedChildJob,
    Reported,
    TaskWrite,
)
from cograil.model.outcome import Completed
from cograil.model.states import JOB_TERMINAL, NODE_TERMINAL
from cograil.model.workflow import Json, Workflow

Prepare = Callable[[ChildRequest], PreparedChildJob | ChildRefused]


class MemoryJob:
    """The rows of one job. `tasks` are the attempts to run."""

    def __init__(self, job_id: str, workflow: Workflow, inputs: Json, now: datetime) -> None:
        self.job_id = job_id
        self.workflow = workflow
        self.parent: tuple[MemoryJob, str] | None = (
            None  # the parent job and the node that waits for this job
        )
        self.status = "pending"
        self.created_at = now
        self.started_at: datetime | None = None
        self.finished_at: datetime | None = None
        self.wake_at: datetime | None = None
        self.result: bytes | None = None
        self.error: Json = None
        self.nodes: dict[str, NodeState] = {}
        self.outputs: dict[str, bytes | None] = {}
        self.inputs: dict[str, bytes] = {}
        self.events: list[EventWrite] = []
        self.tasks: list[TaskWrite] = []
        self._more: list[str] = []
        self._seq = 0
        self._input_text = orjson.dumps(inputs)
        seconds = workflow.timeout_seconds
        self._deadline = None if seconds is None else now + timedelta(seconds=seconds)

    @property
    def is_over(self) -> bool:
        return self.status in JOB_TERMINAL

    @property
    def has_more(self) -> bool:
        """Whether a fan-out has children that are not created yet."""
        return bool(self._more)

    def advance(self, news: Sequence[Input], now: datetime, prepare: Prepare) -> Changes:
        """Apply these inputs, as an orchestrator would; the changes contain the child jobs to create."""
        happenings = [*(ExpandMore(name) for name in self._more), *news]
        self._more = []
        is_revoked = self._deadline is not None and self._deadline <= now
        changes = self._decide(happenings, now, prepare, is_revoked=is_revoked)
        if changes.needs_revoke:
            is_revoked = True
            changes = self._decide(happenings, now, prepare, is_revoked=True)
        if is_revoked:
            self.tasks.clear()
        self._write(changes, now)
        self.tasks.extend(changes.tasks)
        self._more.extend(changes.to_expand)
        return changes

    def params(self, task: TaskWrite) -> dict[str, Json]:
        """Return the params of this attempt, or those of the previous attempt."""
        text = self.inputs[task.node_id] if task.params is None else task.params
        params: dict[str, Json] = orjson.loads(text)
        return params

    def _decide(self, news: Sequence[Input], now: datetime, prepare: Prepare, *, is_revoked: bool) -> Changes:
        """Call the engine until nothing is missing."""
        state, outputs = self._load(news, now), Outputs()
        for happening in news:
            if isinstance(happening, Reported) and isinstance(happening.outcome, Completed):
                outputs.raw[happening.node_id] = happening.outcome.output
        while True:
            changes = advance(
                self.workflow, state, news, now=now, random=_half, outputs=outputs, is_revoked=is_revoked
            )
            if not (changes.missing or changes.missing_children or changes.missing_jobs):
                return changes
            if changes.missing_jobs:
                ready = {request.node_id: prepare(request) for request in changes.missing_jobs}
                outputs.jobs = (outputs.jobs or {}) | ready
            outputs.raw |= {name: self.outputs.get(name) for name in changes.missing}
            outputs.children |= {name: self._children_of(name) for name in changes.missing_children}

    def _load(self, news: Iterable[Input], now: datetime) -> JobState:
        """Return the job without the fan-out children that the inputs do not concern."""
        about = {getattr(happening, "node_id", None) for happening in news}
        loaded: dict[str, NodeState] = {}
        sleeping: list[datetime] = []
        for name, row in self.nodes.items():
            is_asleep = row.parent is not None and row.not_before is not None and row.not_before > now
            is_quiet = row.parent is not None and name not in about
            if is_quiet and (is_asleep or row.status != "ready" or row.not_before is None):
                sleeping += [row.not_before] if is_asleep and row.not_before is not None else []
            else:
                loaded[name] = row
        return JobState(
            job_id=self.job_id,
            tenant_id="default",
            definition_id=1,
            status=self.status,
            input_text=self._input_text,
            seq=self._seq,
            created_at=self.created_at,
            deadline=self._deadline,
            started_at=self.started_at,
            parent_job=None if self.parent is None else self.parent[0].job_id,
            nodes=loaded,
            children_wake_at=min(sleeping, default=None),
            children_sleeping=len(sleeping),
        )

    def _children_of(self, parent: str) -> list[tuple[str, str, bytes | None]]:
        rows = sorted(
            (row for row in self.nodes.values() if row.parent == parent), key=lambda row: row.index or 0
        )
        return [(row.node_id, row.status, self.outputs.get(row.node_id)) for row in rows]

    def _write(self, changes: Changes, now: datetime) -> None:
        self.status, self._seq, self.wake_at = changes.status, changes.seq, changes.wake_at
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
                if row.status not in NODE_TERMINAL:
                    row.status, row.finished_at, row.not_before = "cancelled", now, None
        self.events.extend(changes.events)


def _half() -> float:
    """Return the random number of every backoff: tests need the same one in every run."""
    return 0.5
