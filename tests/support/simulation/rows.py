"""The rows of the simulated database, its errors, and the diary that the invariants are checked against."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from cograil.model.job import Changes, Input, TaskLimit


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
    limit: TaskLimit | None = None
    is_exclusive: bool = False
    state: str = "ready"
    fence: int = 0
    worker: int | None = None
    started_at: datetime | None = None
    deadline: datetime | None = None
    is_announced: bool = False
    locked_by: Transaction | None = None
    last_at: int | None = None


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


@dataclass(slots=True)
class Diary:
    """What really happened, for the invariants only."""

    holders: dict[int, tuple[int, int]] = field(default_factory=dict)  # task -> worker, fence
    fences: dict[int, int] = field(default_factory=dict)
    accepted: dict[int, bool] = field(default_factory=dict)  # task -> was it a success
    succeeded: set[tuple[int, str]] = field(default_factory=set)
    killers: set[tuple[int, str]] = field(default_factory=set)  # nodes that killed their worker
    struck: set[int | None] = field(default_factory=set)  # workers that something from outside befell


class Transaction:
    """Locks and unwritten changes. `now` is when it began, as in PostgreSQL."""

    __slots__ = ("changes", "is_over", "jobs", "now", "revoked", "taken", "touched_at")

    def __init__(self, now: datetime) -> None:
        self.now = self.touched_at = now
        self.jobs: list[int] = []
        self.taken: dict[int, list[Input]] = {}
        self.revoked: list[Task] = []
        self.changes: dict[int, Changes] = {}
        self.is_over = False


@dataclass(slots=True)
class Admission:
    """A job under a limit of its workflow."""

    job: int
    limit: TaskLimit
    is_admitted: bool = False


class HeldKey(NamedTuple):
    """A limit that holds something back: what is task or job."""

    what: str
    key: str
    limit: TaskLimit
    waiting: int


class Bucket(NamedTuple):
    tokens: float
    refilled_at: datetime


class Letting(Transaction):
    """One look at the limits: the locks of their names, and what is let go when it commits."""

    __slots__ = ("admitted", "buckets", "keys", "tasks")

    def __init__(self, now: datetime) -> None:
        super().__init__(now)
        self.keys: list[tuple[str, str]] = []
        self.tasks: list[Task] = []
        self.admitted: list[Admission] = []
        self.buckets: dict[str, Bucket] = {}
