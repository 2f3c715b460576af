"""The rows of the simulated database, its errors, and the diary that the invariants are checked against."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from cograil.model.job import Changes, Happening


class Blocked(Exception):
    """Somebody else holds the row: wait."""


class Aborted(Exception):
    """The server ended this transaction, or its connection."""


class Violation(AssertionError):
    """An invariant does not hold."""


def ensure(holds: object, what: str) -> None:
    if not holds:
        raise Violation(what)


@dataclass(slots=True)
class Task:
    task_id: int
    job: int
    node: str
    attempt: int
    timeout: float
    state: str = "ready"
    fence: int = 0
    worker: int | None = None
    started_at: datetime | None = None
    deadline: datetime | None = None
    is_announced: bool = False
    locked_by: Transaction | None = None


class Item(NamedTuple):
    """What a worker gets with a claim."""

    task_id: int
    fence: int
    job: int
    node: str
    attempt: int
    timeout: float


@dataclass(slots=True)
class Process:
    lease_until: datetime
    state: str = "alive"


@dataclass
class Diary:
    """What really happened, for the invariants only."""

    holders: dict[int, tuple[int, int]] = field(default_factory=dict)  # task -> worker, fence
    fences: dict[int, int] = field(default_factory=dict)
    accepted: dict[int, bool] = field(default_factory=dict)  # task -> was it a success
    succeeded: set[tuple[int, str]] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Transaction:
    """One advance: locks and unwritten changes. `now` is when it began, as in PostgreSQL."""

    now: datetime
    touched_at: datetime
    jobs: list[int] = field(default_factory=list)
    taken: dict[int, list[Happening]] = field(default_factory=dict)
    revoked: list[Task] = field(default_factory=list)
    changes: dict[int, Changes] = field(default_factory=dict)
    is_over: bool = False
