"""What the gateway answers, for its description."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from cograil.api_schemas.job_schemas import Event, Job, JobStatus, Json, Moment, Node, NodeStatus


class TakenRequest(TypedDict):
    """A request, under the id that it is known by from now on."""

    request_id: str
    workflow_id: str
    submitted_at: Moment


class AcceptedRequest(TakenRequest):
    """A request of a caller outside."""

    status: Literal["accepted"]


class AcceptedSubmit(TakenRequest):
    """A submit of an operator; `message_id` is the id of the request."""

    status: Literal["queued"]
    message_id: str
    correlation_id: str


class BatchError(TypedDict):
    """What is wrong with one of many, by its place."""

    index: int
    error: str
    code: str


class AcceptedBatch(TypedDict):
    """How many were accepted, their ids, and what is wrong with the others."""

    submitted: int
    failed: int
    message_ids: list[str]
    errors: list[BatchError]


class RequestProgress(TypedDict):
    """How far a request is."""

    completed: int
    total: int
    percent: float


class RequestStatus(TypedDict):
    """What became of a request."""

    request_id: str
    workflow_id: str
    status: Literal["pending", "running", "completed", "failed"]
    submitted_at: Moment
    completed_at: Moment | None
    result: dict[str, Json] | None
    error: str | None
    progress: RequestProgress


class SeenJob(TypedDict):
    """A job as operators look at it."""

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
    """Some jobs, newest first."""

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
    """The events of a job in their order."""

    job_id: str
    events: list[Event]
    count: int


class JobCounts(TypedDict):
    """How many jobs are in each state."""

    pending: int
    running: int
    completed: int
    failed: int
    cancelled: int


class Stats(JobCounts):
    """The same twice, and how many there are."""

    stats: JobCounts
    total: int
    is_total_cut: bool


class GatewayHealth(TypedDict):
    """How the gateway is doing."""

    status: Literal["healthy", "degraded"]
    checks: dict[str, str]


class WholeHealth(GatewayHealth):
    """And the processes that do the work."""

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
    """The latest first."""

    events: list[Event]
    count: int


class Orphan(TypedDict):
    """A job whose news or hour have waited for long."""

    job_id: str
    workflow_id: str
    status: JobStatus
    wake_at: Moment | None
    news_since: Moment | None
    owner_id: str | None
    created_at: Moment


class Orphans(TypedDict):
    """Jobs that nobody looks after."""

    orphans: list[Orphan]
    count: int
    threshold_seconds: float


class RunningNode(TypedDict):
    """A node that a worker has in its hands."""

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
    """The oldest first."""

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
    """The latest first."""

    nodes: list[FailedNode]
    count: int


class TargetState(TypedDict):
    """Whether it answers."""

    status: str


class ProxyHealth(TypedDict):
    """Whether the API and the worker answer."""

    status: Literal["healthy", "degraded"]
    orchestrator: TargetState
    worker: TargetState


class GatewayReady(TypedDict):
    """Whether it serves, else what is missing."""

    ready: bool
    checks: dict[str, str]
    error: NotRequired[str]
    details: NotRequired[dict[str, str]]
