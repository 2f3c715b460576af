"""The types of the arguments and results of the client: plain dictionaries.

Results may have further keys. Arguments may not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NotRequired
from urllib.parse import quote

from typing_extensions import TypedDict

from cograil.api_schemas.job_schemas import (
    Answered,
    BatchResult,
    Blocker,
    BulkPreview,
    BulkProgress,
    Event,
    EventPage,
    Explanation,
    Failure,
    Job,
    JobPage,
    JobProgress,
    JobStatus,
    JobWithNodes,
    JobWorkflow,
    Json,
    LogLine,
    LogLines,
    Node,
    NodeStatus,
    NodeTraceback,
    Pause,
    PausedWorkflow,
    ProgressOfNode,
    Published,
    PublishedFile,
    Request,
    RetryPreview,
    Task,
    Timeline,
    TimelineBar,
    WatchedJob,
    Workflow,
    WorkflowVersion,
)
from cograil.api_schemas.monitoring_schemas import (
    AuditEntry,
    AuditPage,
    Delivery,
    DeliveryPage,
    EndedTask,
    FailureMetrics,
    HandlerName,
    HandlerTrial,
    HealthReport,
    KeyEntry,
    LiveTask,
    NamedCheck,
    NodeAmongAll,
    NodeMetrics,
    NodePage,
    Orchestrators,
    Overview,
    PausedQueue,
    Process,
    Queue,
    Ready,
    Removed,
    Subscription,
    SubscriptionWithSecret,
    TaskPage,
    Throughput,
    WorkflowMetrics,
)
from cograil.model.schedule import (
    Backfill,
    FiringPage,
    Missed,
    Overlap,
    RemovedSchedule,
    ScheduleList,
    ScheduleRun,
    ScheduleWithPassed,
    ShownFiring,
    ShownSchedule,
)


class JobFacts(TypedDict, total=False):
    """The options of a job, in addition to its workflow and its inputs."""

    version: int
    priority: int
    correlation_id: str
    submitted_by: str
    labels: Mapping[str, str]
    callback: Mapping[str, Json]
    idempotency_key: str
    not_before: str


class NewJob(TypedDict):
    """A job for `submit_many`."""

    workflow_id: str
    version: NotRequired[int]
    input_params: NotRequired[Mapping[str, Json]]
    priority: NotRequired[int]
    correlation_id: NotRequired[str]
    submitted_by: NotRequired[str]
    labels: NotRequired[Mapping[str, str]]
    callback: NotRequired[Mapping[str, Json]]
    idempotency_key: NotRequired[str]
    not_before: NotRequired[str]


class RequestFacts(TypedDict, total=False):
    """The options of a request, in addition to its workflow and its inputs."""

    callback_url: str
    priority: int
    idempotency_key: str


class SignalFacts(TypedDict, total=False):
    """The options of a signal: node, sender, reason, data."""

    node_id: str
    reason: str
    by: str
    data: Json


class JobCriteria(TypedDict, total=False):
    """The criteria of `search_jobs`; timestamps are RFC 3339 texts."""

    statuses: Sequence[str]
    workflow_id: str
    labels: Mapping[str, str]
    since: str
    until: str
    text: str
    error: str
    before: str
    limit: int


class BulkOptions(TypedDict, total=False):
    """Which jobs a bulk operation changes, and why; timestamps are RFC 3339 texts."""

    statuses: Sequence[str]
    workflow_id: str
    labels: Mapping[str, str]
    correlation_id: str
    created_before: str
    created_after: str
    reason: str


class CalendarFacts(TypedDict, total=False):
    """The options of a schedule, in addition to its workflow and its cron expression."""

    timezone: str
    input_params: Mapping[str, Json]
    version: int | None
    due_input: str | None
    priority: int
    overlap: Overlap
    missed: Missed


class CalendarChanges(CalendarFacts, total=False):
    """The fields of a schedule to change."""

    workflow_id: str
    cron: str


class SubscriptionFacts(TypedDict, total=False):
    """The options of a subscription, in addition to its URL; no types mean all, no workflow means any."""

    types: Sequence[str]
    workflow_id: str
    secret: str
    style: str
    headers: Mapping[str, str]


class ClaimFacts(TypedDict, total=False):
    """The tasks that a worker can run."""

    queues: Sequence[str]
    handlers: Sequence[str]
    max: int


class StreamedEvent(Event):
    """An event of a stream; resume after it with `place`."""

    place: str


def step(text: str) -> str:
    """Return a value quoted as a path segment."""
    return quote(text, safe="")


__all__ = [
    "Answered",
    "AuditEntry",
    "AuditPage",
    "Backfill",
    "BatchResult",
    "Blocker",
    "BulkOptions",
    "BulkPreview",
    "BulkProgress",
    "CalendarChanges",
    "CalendarFacts",
    "ClaimFacts",
    "Delivery",
    "DeliveryPage",
    "EndedTask",
    "Event",
    "EventPage",
    "Explanation",
    "Failure",
    "FailureMetrics",
    "FiringPage",
    "HandlerName",
    "HandlerTrial",
    "HealthReport",
    "Job",
    "JobCriteria",
    "JobFacts",
    "JobPage",
    "JobProgress",
    "JobStatus",
    "JobWithNodes",
    "JobWorkflow",
    "Json",
    "KeyEntry",
    "LiveTask",
    "LogLine",
    "LogLines",
    "Missed",
    "NamedCheck",
    "NewJob",
    "Node",
    "NodeAmongAll",
    "NodeMetrics",
    "NodePage",
    "NodeStatus",
    "NodeTraceback",
    "Orchestrators",
    "Overlap",
    "Overview",
    "Pause",
    "PausedQueue",
    "PausedWorkflow",
    "Process",
    "ProgressOfNode",
    "Published",
    "PublishedFile",
    "Queue",
    "Ready",
    "Removed",
    "RemovedSchedule",
    "Request",
    "RequestFacts",
    "RetryPreview",
    "ScheduleList",
    "ScheduleRun",
    "ScheduleWithPassed",
    "ShownFiring",
    "ShownSchedule",
    "SignalFacts",
    "StreamedEvent",
    "Subscription",
    "SubscriptionFacts",
    "SubscriptionWithSecret",
    "Task",
    "TaskPage",
    "Throughput",
    "Timeline",
    "TimelineBar",
    "WatchedJob",
    "Workflow",
    "WorkflowMetrics",
    "WorkflowVersion",
    "step",
]
