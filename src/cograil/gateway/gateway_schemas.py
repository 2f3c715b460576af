"""The response types of the gateway, for its OpenAPI document."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from cograil.api_schemas.job_schemas import Event, Job, JobStatus, Json, Moment, Node, NodeStatus


class TakenRequest(TypedDict):
    """An accepted request and its id."""

    request_id: str
    workflow_id: str
    submitted_at: Moment


class AcceptedRequest(TakenRequest):
    """A request of an external caller."""

    status: Literal["accepted"]


class AcceptedSubmit(TakenRequest):
    """A submit of an operator; `message_id` is the id of the request."""

    status: Literal["queued"]
    message_id: str
    correlation_id: str


class BatchError(TypedDict):
    """The error of one item of a batch, by its index."""

    index: int
    error: str
    code: str


class AcceptedBatch(TypedDict):
    """The number of accepted jobs, their ids, and the errors of the others."""

    submitted: int
    failed: int
    message_ids: list[str]
    errors: list[BatchError]


class RequestProgress(TypedDict):
    """The progress of a request."""

    completed: int
    total: int
    percent: float


class RequestStatus(TypedDict):
    """The state of a request."""

    request_id: str
    workflow_id: str
    status: Literal["pending", "running", "completed", "failed"]
    submitted_at: Moment
    completed_at: Moment | None
    result: dict[str, Json] | None
    error: str | None
    progress: RequestProgress


class SeenJob(TypedDict):
    """A job for operators."""

    job_id: str
    workflow_id: str
    workflow_version: int
    status: JobStatus
    input_params: dict[str, Json]
    result: dict[str, Json] | None
    error: dict[str, Json] | None
    created_at: Moment
    started_at: Moment | None
    completed_at: Moment | None
    submitted_by: str | None
    correlation_id: str | None
    priority: int
    labels: dict[str, str]
    owner_id: str | None
    retry_of: str | None
    not_before: Moment | None
    deadline: Moment | None
    error_message: str | None
    nodes: list[Node] | None


class SeenJobs(TypedDict):
    """A page of jobs, newest first."""

    jobs: list[SeenJob]
    count: int
    total: int
    is_total_cut: bool
    limit: int
    offset: int


class SeenNodes(TypedDict):
    """The nodes of a job."""

    job_id: str
    nodes: list[Node]
    count: int


class SeenEvents(TypedDict):
    """The events of a job, in order."""

    job_id: str
    events: list[Event]
    count: int


class JobCounts(TypedDict):
    """The number of jobs in each state."""

    pending: int
    running: int
    completed: int
    failed: int
    cancelled: int


class Stats(JobCounts):
    """The counts by state, twice, and their total."""

    stats: JobCounts
    total: int
    is_total_cut: bool


class GatewayHealth(TypedDict):
    """The health of the gateway."""

    status: Literal["healthy", "degraded"]
    checks: dict[str, str]


class WholeHealth(GatewayHealth):
    """The health of the gateway, and the live processes."""

    processes: dict[str, int]
    jobs: dict[str, int]


class GatewayConfig(TypedDict):
    """The settings, without secrets."""

    version: str
    is_read_only: bool
    config: dict[str, Json]
    orchestrator_url: str


class ActiveJobs(TypedDict):
    """Jobs that have not ended."""

    jobs: list[Job]
    count: int


class RecentEvents(TypedDict):
    """A page, the latest first."""

    events: list[Event]
    count: int


class Orphan(TypedDict):
    """A job whose inputs or wake-up time have waited too long."""

    job_id: str
    workflow_id: str
    status: JobStatus
    wake_at: Moment | None
    news_since: Moment | None
    owner_id: str | None
    created_at: Moment


class Orphans(TypedDict):
    """Jobs without progress."""

    orphans: list[Orphan]
    count: int
    threshold_seconds: float


class RunningNode(TypedDict):
    """A node that runs on a worker."""

    job_id: str
    node_id: str
    attempt: int
    task_id: str
    handler: str
    queue: str
    started_at: Moment | None
    deadline: Moment | None
    worker: str | None
    workflow_id: str
    status: NodeStatus


class RunningNodes(TypedDict):
    """A page, the oldest first."""

    nodes: list[RunningNode]
    count: int


class FailedNode(TypedDict):
    """A node that failed."""

    job_id: str
    node_id: str
    attempt: int
    error: dict[str, Json] | None
    started_at: Moment | None
    completed_at: Moment | None
    workflow_id: str
    job_status: JobStatus
    status: NodeStatus


class FailedNodes(TypedDict):
    """A page, the latest first."""

    nodes: list[FailedNode]
    count: int


class TargetState(TypedDict):
    """Whether a target responds."""

    status: str


class ProxyHealth(TypedDict):
    """Whether the API and the worker respond."""

    status: Literal["healthy", "degraded"]
    orchestrator: TargetState
    worker: TargetState


class GatewayReady(TypedDict):
    """Whether the gateway is ready, else what is missing."""

    ready: bool
    checks: dict[str, str]
    error: NotRequired[str]
    details: NotRequired[dict[str, str]]
