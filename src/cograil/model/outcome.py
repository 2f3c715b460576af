"""The outcomes of attempts. A handler's exception becomes `Failed` in one place (runners/python_runner.py)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from cograil.model.workflow import Json


class Completed(NamedTuple):
    """The handler returned this JSON object. `output` is its JSON text, checked and within limits."""

    output: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed. `retryable` False means that a retry cannot succeed.

    With `after_seconds` the next attempt, if there is one, waits that long instead of the usual delay.
    """

    code: str
    message: str
    retryable: bool = True
    details: Json = None
    after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Released:
    """The attempt was released unfinished (shutdown); it does not count."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The result is committed already, together with the handler's own SQL."""


Outcome = Completed | Failed | Released | Recorded


class WorkItem(NamedTuple):
    """One attempt that a runner executes. It does not know the database."""

    task_id: int
    fence: int
    job_id: str
    node_id: str
    attempt: int
    handler: str
    params: dict[str, Json]
    timeout_seconds: float
    checkpoint: Json = None
    correlation_id: str | None = None
    trace_parent: str | None = None
    tenant_id: str = "default"
    claimed_at: datetime | None = None
    steps: dict[str, Json] | None = None  # results of earlier attempts by the name of the step
    is_last: bool = False  # at the time of the claim, its success would end the job
    key_root: str | None = None  # the job of its idempotency key, if that is another one

    @property
    def idempotency_key(self) -> str:
        """The key that attempts and retries share: other systems recognise a repeated request by it."""
        return f"{self.key_root or self.job_id}/{self.node_id}"

    @property
    def place(self) -> str:
        """The node in its job, as text."""
        return f"{self.job_id}/{self.node_id}"
