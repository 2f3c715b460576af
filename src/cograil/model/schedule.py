"""Schedules: which workflow runs when, and how due times are handled that are missed or overlap."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, get_args

from typing_extensions import TypedDict

from cograil.api_schemas.job_schemas import Moment
from cograil.model.workflow import Json

Overlap = Literal["skip", "allow", "cancel"]
Missed = Literal["once", "all", "skip"]
Origin = Literal["user", "file"]
FileChange = Literal["created", "changed", "resumed", "paused"]
Outcome = Literal["submitted", "overlapped", "missed", "refused"]

OVERLAPS: tuple[Overlap, ...] = get_args(Overlap)
MISSED: tuple[Missed, ...] = get_args(Missed)


@dataclass(frozen=True, slots=True)
class SchedulePlan:
    """The workflow of a schedule, its input and its times. `due_input` names the input that gets the due
    time.
    """

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
    """A locked schedule, with the job of its last firing if that is still open."""

    tenant_id: str
    name: str
    plan: SchedulePlan
    next_at: datetime | None
    job_under_way: str | None = None
    origin: Origin = "user"
    paused_by: str | None = None  # None: not paused
    left_file_at: datetime | None = None  # when the schedule was removed from the file of its workflow


class Firing(NamedTuple):
    """The outcome of one due time of a schedule."""

    tenant_id: str
    schedule: str
    due_at: datetime
    outcome: Outcome
    is_backfill: bool = False
    job_id: str | None = None
    error: bytes | None = None


class ShownSchedule(TypedDict):
    """A schedule in the API."""

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
    origin: Origin  # `file`: defined in the file of its workflow, and changed there
    left_file_at: Moment | None  # when it was removed from that file; it does not run until it is added again


class PassedMoments(TypedDict):
    """Due times since the last job that led to no job."""

    outcome: Outcome
    moments: int
    reason: str
    job_id: str | None
    job_status: str | None
    waiting_for: str | None


class ScheduleWithPassed(ShownSchedule):
    """A schedule, and the due times since its last job that led to no job."""

    passed_over: list[PassedMoments]


class ScheduleRun(TypedDict):
    """The job that was submitted now."""

    name: str
    job_id: str
    due_at: Moment


class ScheduleList(TypedDict):
    """All schedules, by name."""

    schedules: list[ShownSchedule]


class ShownFiring(TypedDict):
    """The outcome of one due time."""

    due_at: Moment
    outcome: Outcome
    is_backfill: bool
    job_id: str | None
    job_status: str | None
    waiting_for: str | None  # of the job: approval, timer, retry, start
    error: dict[str, Json] | None
    at: Moment


class FiringPage(TypedDict):
    """A page of outcomes, the latest first, and the cursor of the next page."""

    name: str
    firings: list[ShownFiring]
    next_cursor: str | None


class Backfill(TypedDict):
    """The result of a backfill, or of its preview."""

    name: str
    submitted: int
    refused: int
    kept: int  # due times that had led to a job before
    moments: list[Moment]
    is_preview: bool


class RemovedSchedule(TypedDict):
    """The schedule was deleted with its history; its jobs stay."""

    name: str
    is_removed: bool
