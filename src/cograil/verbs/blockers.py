"""The blockers of a job: what `explain` reports as the reasons why a job has not ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cograil.model.workflow import Workflow
from cograil.store.database import Transaction
from cograil.store.explain_queries import EngineState

ORDER = (
    "no_orchestrator",
    "paused",
    "limit",
    "rate",
    "approval",
    "child",
    "no_worker",
    "backoff",
    "waiting_until",
    "alone",
    "queued",
    "priority",
    "running",
    "news",
    "dependency",
    "deadline",
)


@dataclass(frozen=True, slots=True)
class JobBlocker:
    """One reason, the most fundamental first. `kind` is one of ORDER."""

    kind: str
    message: str
    node_id: str | None = None
    until: datetime | None = None
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Look:
    """A snapshot of an open job that the blocker functions read."""

    tx: Transaction
    job: dict[str, Any]
    workflow: Workflow
    engine: EngineState
    tenant: str

    @property
    def job_id(self) -> str:
        return str(self.job["job_id"])
