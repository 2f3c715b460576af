"""How an attempt ended. A handler's exception becomes `Failed` in one place (runners/python_runner.py)."""

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
    """The attempt failed. `retryable` False means that trying again cannot help.

    With `after_seconds` the next attempt, if there is one, waits so long instead of the usual delay.
    """

    code: str
    message: str
    retryable: bool = True
    details: Json = None
    after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Released:
    """The attempt was given back unfinished (shutdown); it does not count."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The result is in the database already: it was committed with the handler's own SQL."""


Outcome = Completed | Failed | Released | Recorded


class WorkItem(NamedTuple):
    """One attempt handed to a runner. It knows nothing of the database."""

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
    steps: dict[str, Json] | None = None  # what earlier attempts have done, by the name of the step
    is_last: bool = False  # with its success the job is over, as far as was known when it was handed out
    key_root: str | None = None  # the job that its idempotency key is from, if that is another one

    @property
    def idempotency_key(self) -> str:
        """Stable across attempts and retries: other systems recognise a repeat by it."""
        return f"{self.key_root or self.job_id}/{self.node_id}"

    @property
    def place(self) -> str:
        """The node in its job."""
        return f"{self.job_id}/{self.node_id}"
