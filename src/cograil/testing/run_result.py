"""The result of a job in a test."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from cograil.model.workflow import Json
from cograil.testing.handler_context import LogLine, Progress


class Call(NamedTuple):
    """One attempt: the params of the handler, and its outcome."""

    node_id: str
    handler: str
    attempt: int
    params: dict[str, Json]
    is_completed: bool
    idempotency_key: str
    logged: list[LogLine]
    progresses: list[Progress]


@dataclass(frozen=True, slots=True)
class NodeResult:
    """The end of a node. `attempt` is the number of the last one."""

    node_id: str
    status: str
    attempt: int
    output: Json
    error: Json
    skip_reason: str | None


class EngineEvent(NamedTuple):
    """One event of the job, as `cograil events` shows it."""

    type: str
    node_id: str | None
    data: dict[str, Json]


@dataclass(frozen=True, slots=True)
class JobResult:
    """A job at its end. Times are those of the clock of the test."""

    job_id: str
    status: str
    result: Json
    error: Json
    nodes: dict[str, NodeResult]
    events: list[EngineEvent]
    attempts: list[Call]
    started_at: datetime
    finished_at: datetime
    children: list[JobResult] = field(default_factory=list)

    @property
    def duration(self) -> timedelta:
        """The duration of the job, if handlers took no time."""
        return self.finished_at - self.started_at

    @property
    def path(self) -> list[str]:
        """The completed nodes, in the order of completion."""
        return [event.node_id for event in self.events if event.type == "node_completed" and event.node_id]

    def output(self, node_id: str) -> Json:
        """Return the output of this node."""
        return self.nodes[node_id].output

    def calls(self, handler: str) -> list[Call]:
        """Return the attempts of this handler, in all nodes."""
        return [call for call in self.attempts if call.handler == handler]
