"""Schedules: which workflow runs when, and what becomes of moments that come at a bad time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, get_args

from typing_extensions import TypedDict

from cograil.model.shapes import Moment
from cograil.model.workflow import Json

Overlap = Literal["skip", "allow", "cancel"]
Missed = Literal["once", "all", "skip"]
Origin = Literal["user", "file"]
FileChange = Literal["created", "changed", "resumed", "paused"]
Outcome = Literal["submitted", "overlapped", "missed", "refused"]

OVERLAPS: tuple[Overlap, ...] = get_args(Overlap)
MISSED: tuple[Missed, ...] = get_args(Missed)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a schedule runs, and when. `due_input` is the input that is given the moment."""

    workflow_id: str
    cron: str
    timezone: str = "UTC"
    input: dict[str, Json] | None = None
    version: int | None = None
    due_input: str | None = None
    priority: int = 0
    overlap: Overlap = "skip"
    missed: Missed = "once"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule under its lock, with the job of its last firing that is still under way."""

    tenant_id: str
    name: str
    plan: Plan
    next_at: datetime | None
    job_under_way: str | None = None
    origin: Origin = "user"
    paused_by: str | None = None  # None: it is not paused
    left_file_at: datetime | None = None  # when it was removed from the file of its workflow


class Firing(NamedTuple):
    """What became of one moment of a schedule."""

    tenant_id: str
    schedule: str
    due_at: datetime
    outcome: Outcome
    is_backfill: bool = False
    job_id: str | None = None
    error: bytes | None = None


class ShownSchedule(TypedDict):
    """A schedule as people see it."""

    name: str
    workflow_id: str
    version: int | None
    input_params: dict[str, Json]
    due_input: str | None
    priority: int
    cron: str
    timezone: str
    overlap: Overlap
    missed: Missed
    next_at: Moment | None
    paused_at: Moment | None
    paused_by: str | None
    paused_for: str | None
    created_by: str
    created_at: Moment
    changed_at: Moment
    last_due_at: Moment | None
    last_outcome: Outcome | None
    last_job_id: str | None
    origin: Origin  # `file`: it is in the file of its workflow, and changes there
    left_file_at: Moment | None  # when it was removed from that file; it does not run until it is back


class PassedMoments(TypedDict):
    """Moments since the last job that led to none."""

    outcome: Outcome
    moments: int
    reason: str
    job_id: str | None
    job_status: str | None
    waiting_for: str | None


class ScheduleWithPassed(ShownSchedule):
    """A schedule, and which moments it passed over since its last job."""

    passed_over: list[PassedMoments]


class ScheduleRun(TypedDict):
    """The job that was submitted now."""

    name: str
    job_id: str
    due_at: Moment


class ScheduleList(TypedDict):
    """All of them, by name."""

    schedules: list[ShownSchedule]


class ShownFiring(TypedDict):
    """What became of one moment."""

    due_at: Moment
    outcome: Outcome
    is_backfill: bool
    job_id: str | None
    job_status: str | None
    error: dict[str, Json] | None
    at: Moment


class FiringPage(TypedDict):
    """Some of them, the latest first, and where the next ones begin."""

    name: str
    firings: list[ShownFiring]
    next_cursor: str | None


class Backfill(TypedDict):
    """What making good a range of time did, or would do."""

    name: str
    submitted: int
    refused: int
    kept: int  # moments that have led to a job before
    moments: list[Moment]
    is_preview: bool


class RemovedSchedule(TypedDict):
    """It is gone, with its history; its jobs stay."""

    name: str
    is_removed: bool
