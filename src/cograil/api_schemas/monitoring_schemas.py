"""The response types of webhooks, monitoring, metrics and health."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from cograil.api_schemas.job_schemas import Json, Moment, NodeStatus


class Subscription(TypedDict):
    """A subscription to events; no types mean all, no workflow means any."""

    subscription_id: str
    url: str
    types: list[str]
    workflow_id: str | None
    style: str
    created_by: str | None
    created_at: Moment
    disabled_at: Moment | None
    disabled_reason: str | None


class SubscriptionWithSecret(Subscription):
    """A subscription with its secret, which is shown only once."""

    secret: str
    overlap_hours: NotRequired[float]


class SubscriptionList(TypedDict):
    """The subscriptions of a tenant, oldest first."""

    subscriptions: list[Subscription]


class Removed(TypedDict):
    """A removed subscription."""

    subscription_id: str
    is_removed: bool


class Delivery(TypedDict):
    """The delivery of an event to one destination."""

    delivery_id: str
    job_id: str | None
    sequence: int | None
    type: str
    destination: str
    url: str
    state: Literal["pending", "delivered", "dead"]
    tries: int
    next_try_at: Moment | None
    last_status: int | None
    last_error: str | None
    created_at: Moment
    delivered_at: Moment | None


class DeliveryPage(TypedDict):
    """A page of deliveries."""

    deliveries: list[Delivery]
    next_cursor: str | None


class NodeAmongAll(TypedDict):
    """A node, listed across jobs."""

    job_id: str
    workflow_id: str
    node_id: str
    status: NodeStatus
    attempt: int
    parent_node_id: str | None
    fan_out_index: int | None
    error: dict[str, Json] | None
    started_at: Moment | None
    completed_at: Moment | None
    task_id: str | None
    queue: str | None
    handler: str | None
    worker: str | None


class NodePage(TypedDict):
    """A page of nodes; it may be short although `next_cursor` is set."""

    nodes: list[NodeAmongAll]
    next_cursor: str | None


class LiveTask(TypedDict):
    """A queued or running attempt."""

    task_id: str
    job_id: str
    workflow_id: str
    node_id: str
    attempt: int
    state: Literal["ready", "held", "running"]
    queue: str
    handler: str
    priority: int
    worker: str | None
    created_at: Moment
    started_at: Moment | None
    deadline: Moment | None
    age_seconds: float


class EndedTask(TypedDict):
    """An ended attempt, from the events of its job."""

    task_id: str
    job_id: str
    workflow_id: str
    node_id: str
    attempt: int
    state: Literal["completed", "failed"]
    worker: str | None
    started_at: Moment | None
    ended_at: Moment
    error: dict[str, Json] | None


class TaskPage(TypedDict):
    """A page of tasks; it may be short although `next_cursor` is set."""

    tasks: list[LiveTask | EndedTask]  # EndedTask with state=ended
    next_cursor: str | None


class Process(TypedDict):
    """A worker or an orchestrator."""

    id: str
    name: str
    state: str
    queues: list[str] | None
    handlers: list[str] | None
    info: Json
    started_at: Moment
    pulsed_at: Moment
    is_live: bool


class Workers(TypedDict):
    """The workers that have not signed off."""

    workers: list[Process]


class Orchestrators(TypedDict):
    """The orchestrators, and how long the oldest input of a job waits."""

    status: Literal["active", "none"]
    orchestrators: list[Process]
    oldest_news_seconds: float | None


class QueuePause(TypedDict):
    """A pause: its actor and reason."""

    by: str | None
    reason: str | None
    at: Moment


class Queue(TypedDict):
    """A queue: its queued and running tasks, the oldest age, its workers."""

    queue: str
    depth: int
    held: int
    running: int
    oldest_at: Moment | None
    oldest_seconds: float | None
    workers: int
    is_paused: bool
    paused: QueuePause | None
    depth_truncated: bool


class Queues(TypedDict):
    """All queues."""

    queues: list[Queue]


class PausedQueue(TypedDict):
    """Whether a queue is paused."""

    queue: str
    is_paused: bool


class CommonFailure(TypedDict):
    """An error code and its count."""

    error_code: str | None
    error_message: str | None
    count: int


class WorkflowNumbers(TypedDict):
    """The metrics of a workflow; durations are in seconds, a rate is from 0 to 1."""

    workflow_id: str
    total_jobs: int
    completed: int
    failed: int
    cancelled: int
    active: int
    success_rate: float | None
    avg_duration: float | None
    p50_duration: float | None
    p95_duration: float | None
    complete_since: Moment | None
    common_failures: list[CommonFailure]
    has_more_failures: bool


class WorkflowMetrics(TypedDict):
    """The metrics of the workflows."""

    days: int
    workflows: list[WorkflowNumbers]


class NodeNumbers(TypedDict):
    """The metrics of a node in the newest jobs of its workflow."""

    node_id: str
    is_child: bool
    total_executions: int
    completed: int
    failed: int
    skipped: int
    success_rate: float | None
    avg_duration: float | None
    total_retries: int
    jobs_seen: int
    truncated: bool


class NodeMetrics(TypedDict):
    """The metrics of the nodes of a workflow."""

    workflow_id: str
    days: int
    nodes: list[NodeNumbers]


class FailureCount(TypedDict):
    """One kind of failure."""

    workflow_id: str
    node_id: str
    error_code: str | None
    error_message: str | None
    occurrences: int
    jobs: int
    first_seen: Moment
    last_seen: Moment
    last_job_id: str


class FailureMetrics(TypedDict):
    """The failures, the most common first; `truncated` if jobs were left out."""

    days: int
    failures: list[FailureCount]
    has_more: bool
    truncated: bool


class Bucket(TypedDict):
    """The jobs of a bucket of time."""

    bucket_start: Moment
    jobs_submitted: int
    jobs_completed: int
    jobs_failed: int
    jobs_cancelled: int
    avg_duration: float | None
    is_complete: bool


class Throughput(TypedDict):
    """Buckets without gaps."""

    hours: int
    bucket_minutes: int
    buckets: list[Bucket]


class AuditEntry(TypedDict):
    """An entry of the audit log."""

    id: int
    at: Moment
    key_id: str | None
    user_id: str | None
    role: str
    action: str
    target: str
    request_id: str
    address: str
    data: dict[str, Json] | None


class AuditPage(TypedDict):
    """A page of the audit log, newest first."""

    entries: list[AuditEntry]
    next_cursor: str | None


State = Literal["healthy", "degraded", "unhealthy", "skipped"]


class CheckReport(TypedDict):
    """The result of a health check."""

    status: State
    message: str
    category: str
    tier: int
    is_required: bool
    duration_ms: float
    details: dict[str, Json]


class NamedCheck(CheckReport):
    """The result of one health check, by name."""

    check: str


class Category(TypedDict):
    """The state of a category, and its number of checks in each state."""

    status: State
    healthy: NotRequired[int]
    degraded: NotRequired[int]
    unhealthy: NotRequired[int]
    skipped: NotRequired[int]


class HealthReport(TypedDict):
    """The results of all health checks; the state is that of the worst required check."""

    status: State
    duration_ms: float
    summary: dict[str, Category]
    checks: dict[str, CheckReport]


class Alive(TypedDict):
    """The event loop runs."""

    alive: bool
    status: NotRequired[str]


class Ready(TypedDict):
    """Whether the server is ready, and the state of each check."""

    ready: bool
    status: NotRequired[str]
    checks: dict[str, str]


class HandlerName(TypedDict):
    """A handler, and its number of workers."""

    name: str
    workers: int


class HandlerList(TypedDict):
    """The handlers of live workers."""

    handlers: list[HandlerName]


class HandlerTrial(TypedDict):
    """The result of a handler test."""

    job_id: str
    handler: str | None
    status: NodeStatus
    output: Json
    error: dict[str, Json] | None
    started_at: Moment | None
    completed_at: Moment | None


class KeyEntry(TypedDict):
    """An API key as it is listed: never the key itself."""

    key_id: str
    tenant: str
    role: str
    user_id: str
    name: str
    created_at: Moment
    expires_at: Moment | None
    revoked_at: Moment | None
    last_used_at: Moment | None


class KeyList(TypedDict):
    """The keys of a tenant, newest first."""

    keys: list[KeyEntry]


class Overview(TypedDict):
    """One frame of `cograil top`."""

    at: Moment
    tenant: str
    jobs: dict[str, int]
    truncated: Json
    throughput: dict[str, Json]
    queues: list[dict[str, Json]]
    workers: list[dict[str, Json]]
    orchestrators: list[dict[str, Json]]
    oldest_news_seconds: float | None
    missing_handlers: Json
    waiting: list[dict[str, Json]]
    failing: list[dict[str, Json]]
