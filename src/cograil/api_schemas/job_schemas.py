"""The response types of jobs, workflows and tasks, for the OpenAPI document and for clients.

The objects themselves are plain dictionaries. Times are texts in UTC. Clients must accept further keys,
because later versions may add some. `monitoring_schemas` has the other types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired

from typing_extensions import TypedDict

Json = Any


@dataclass(frozen=True, slots=True)
class StringSchema:
    """Adds a format or a pattern to the JSON Schema of a string."""

    format: str

    def __get_pydantic_json_schema__(self, schema: Any, described: Any) -> dict[str, Any]:
        return {**described(schema), "format": self.format}


Moment = Annotated[str, StringSchema("date-time")]
JobStatus = Literal["pending", "running", "completed", "failed", "cancelled"]
WaitingFor = Literal["approval", "timer", "retry", "start"]
NodeStatus = Literal[
    "pending", "ready", "dispatched", "running", "waiting", "completed", "failed", "skipped", "cancelled"
]


class Job(TypedDict):
    """One run of one workflow version."""

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
    owner_heartbeat_at: NotRequired[Moment | None]  # only of a single job
    retry_of: str | None
    not_before: Moment | None
    deadline: Moment | None
    waiting_for: WaitingFor | None
    result_data: dict[str, Json] | None
    error_message: dict[str, Json] | None


class JobPage(TypedDict):
    """A page of jobs."""

    jobs: list[Job]
    next_cursor: str | None


class Children(TypedDict):
    """The children of a fan-out, by status."""

    total: int
    expanded: int
    ended: int
    failed: int


class NodeProgress(TypedDict):
    """The progress that a handler reports."""

    current: float | None
    total: float | None
    message: str | None


class ChildJob(TypedDict):
    """The job of a subworkflow."""

    job_id: str
    status: JobStatus


class Node(TypedDict):
    """A node of a job. `payload_omitted`: input and output are too large for this list; get the node alone."""

    node_id: str
    type: str
    status: NodeStatus
    attempt: int
    task_id: str | None
    parent_node_id: str | None
    fan_out_index: int | None
    input: Json
    output: Json
    error: dict[str, Json] | None
    started_at: Moment | None
    completed_at: Moment | None
    not_before: Moment | None
    skip_reason: str | None
    children: Children | None
    progress: NodeProgress | None
    queue: str | None
    handler: str | None
    task_state: str | None
    worker: str | None
    child_job: ChildJob | None
    payload_omitted: bool


class JobWithNodes(TypedDict):
    """A job with its nodes."""

    job: Job
    nodes: list[Node]
    node_summary: dict[str, int]


class NodesOfJob(TypedDict):
    """The nodes of a job, in the order of the workflow."""

    job_id: str
    nodes: list[Node]


class Event(TypedDict):
    """An event of a job; `event_id` consists of the job id and the event number."""

    event_id: str
    job_id: str
    seq: int
    event_type: str
    event_status: Literal["info", "success", "warning", "failure"]
    node_id: str | None
    task_id: str | None
    data: dict[str, Json]
    created_at: Moment


class EventPage(TypedDict):
    """A page of events of a job."""

    job_id: str
    events: list[Event]
    next_after: int | None


class LogLine(TypedDict):
    """A log line of a handler; `cursor` is its position in the log of the job."""

    cursor: str
    node_id: str
    attempt: int
    at: Moment | None
    level: str
    message: str
    fields: dict[str, Json]


class LogLines(TypedDict):
    """A page of log lines of a job."""

    job_id: str
    logs: list[LogLine]
    next_cursor: str | None


class TimelineBar(TypedDict):
    """The time span of a node."""

    node_id: str
    status: NodeStatus
    attempt: int
    started_at: Moment
    completed_at: Moment | None
    parent_node_id: str | None
    duration_seconds: float | None


class Timeline(TypedDict):
    """The time spans of the nodes, and the events."""

    job_id: str
    status: JobStatus
    bars: list[TimelineBar]
    events: list[Event]


class NodeCounts(TypedDict):
    """The number of nodes by status; dispatched counts as running, ready as pending."""

    total: int
    completed: int
    running: int
    pending: int
    failed: int
    skipped: int
    waiting: int
    cancelled: int


class ProgressOfTask(TypedDict):
    """The progress of an attempt."""

    node_id: str
    task_id: str | None
    progress_current: float | None
    progress_total: float | None
    progress_percent: float | None
    progress_message: str | None


class JobProgress(TypedDict):
    """The progress of a job."""

    job_id: str
    status: JobStatus
    overall_percent: float
    nodes: NodeCounts
    current_tasks: list[ProgressOfTask]


class ProgressOfNode(ProgressOfTask):
    """The progress of a node."""

    job_id: str
    status: NodeStatus
    attempt: int
    children: Children | None
    worker: str | None


class JobMatches(TypedDict):
    """The newest jobs that meet all criteria."""

    jobs: list[Job]


class JobId(TypedDict):
    """The complete id of a job."""

    job_id: str


class JobWorkflow(TypedDict):
    """The workflow that a job runs, and the app that owns it."""

    job_id: str
    workflow_id: str
    version: int
    app: str | None
    definition: dict[str, Json]


class Failure(TypedDict):
    """A node that failed."""

    node_id: str
    attempt: int
    error: dict[str, Json] | None


class Failures(TypedDict):
    """The failed nodes of a job, the first to fail first."""

    job_id: str
    failures: list[Failure]


class NodeTraceback(TypedDict):
    """The traceback of an attempt, with its job and node."""

    text: str
    job_id: str
    node_id: str


class TracebackLookup(TypedDict):
    """The traceback of a node; null if it did not raise."""

    traceback: NodeTraceback | None


class WatchedNode(TypedDict):
    """The progress of a node; for a fan-out also the number of ended children."""

    node_id: str
    status: NodeStatus
    attempt: int
    started_at: Moment | None
    finished_at: Moment | None
    not_before: Moment | None
    skip_reason: str | None
    taken_branch: str | None
    total: int | None
    ended: int
    failed: int
    current: float | None
    out_of: float | None
    message: str | None
    error_code: str | None
    error_message: str | None
    backing_off: int


class WatchedJob(TypedDict):
    """The progress of a job at `now`, by the clock of the database, and its new events."""

    job_id: str
    status: JobStatus
    created_at: Moment
    started_at: Moment | None
    finished_at: Moment | None
    now: Moment
    nodes: list[WatchedNode]
    events: list[Event]


class Pause(TypedDict):
    """Something that is paused."""

    kind: Literal["job", "queue", "workflow"]
    name: str
    by: str
    reason: str
    at: Moment


class Pauses(TypedDict):
    """Everything that is paused."""

    pauses: list[Pause]


class BulkPreview(TypedDict):
    """What a bulk operation would change: how many jobs, and the first of them."""

    verb: Literal["cancel", "retry"]
    filter: dict[str, Json]
    count: int
    ids: list[str]


class BulkProgress(TypedDict):
    """The progress of a bulk operation; `reasons` has a count and an example for each code."""

    job_id: str
    verb: Literal["cancel", "retry"]
    filter: dict[str, Json]
    total: int
    done: int
    failed: int
    skipped: int
    reasons: dict[str, Json]
    is_finished: bool


class Blocker(TypedDict):
    """One reason why a job waits."""

    kind: str
    message: str
    node_id: str | None
    until: Moment | None
    data: dict[str, Json]


class Explanation(TypedDict):
    """The reasons why a job waits, in order."""

    job_id: str
    status: JobStatus
    blockers: list[Blocker]


class RetryPreview(TypedDict):
    """The effect of a retry."""

    job_id: str
    is_in_place: bool
    kept: list[str]
    again: list[str]
    reopened: list[str]
    changed: list[str]
    outdated: dict[str, list[str]]
    skipped: list[str]
    same_keys: list[str]
    new_keys: list[str]


class Answered(TypedDict):
    """The decision of a signal, and the status of the job after it."""

    job_id: str
    node_id: str
    by: str | None
    decision: Literal["approved", "rejected"]
    job_status: JobStatus


class ItemError(TypedDict):
    """The error of one item of a batch."""

    code: str
    detail: str
    pointer: str


class BatchResult(TypedDict):
    """The result of one item of a batch."""

    status: int
    job_id: NotRequired[str]
    error: NotRequired[ItemError]


class BatchResults(TypedDict):
    """The results of a batch, in order."""

    results: list[BatchResult]


class Request(TypedDict):
    """An accepted external request."""

    request_id: str
    workflow_id: str
    submitted_at: Moment
    status: Literal["accepted"]
    job_id: str
    correlation_id: str


class PublishedSchedule(TypedDict):
    """The change of a schedule by a published file."""

    name: str
    change: Literal["created", "changed", "resumed", "paused"]


class Published(TypedDict):
    """A published version; `is_new` is false if the same version existed."""

    workflow_id: str
    version: int
    is_new: bool
    schedules: list[PublishedSchedule]  # the changed schedules of the file


class PublishedFile(Published):
    """One of several files; `warnings` names the handlers that no running worker has."""

    digest: str
    warnings: list[str]


class PublishedFiles(TypedDict):
    """What publishing did, for each file in order."""

    workflows: list[PublishedFile]


class WorkflowVersion(TypedDict):
    """A published version."""

    workflow_id: str
    version: int
    name: str | None
    digest: str
    published_at: Moment
    node_count: int


class Workflow(WorkflowVersion):
    """A published version with its definition."""

    definition: dict[str, Json]
    source: str


class WorkflowList(TypedDict):
    """The published workflows."""

    workflows: list[WorkflowVersion]


class VersionList(TypedDict):
    """The versions of a workflow, newest first."""

    versions: list[WorkflowVersion]


class PausedWorkflow(TypedDict):
    """Whether a workflow is paused."""

    workflow_id: str
    is_paused: bool


class Task(TypedDict):
    """A claimed attempt."""

    task_id: str
    fence: int
    job_id: str
    node_id: str
    handler: str
    params: dict[str, Json]
    timeout_seconds: float
    retry_count: int
    checkpoint: Json
    correlation_id: str | None
    trace_parent: str | None
    idempotency_key: str
    dispatched_at: Moment
    lease_seconds: float


class Tasks(TypedDict):
    """The claimed attempts."""

    tasks: list[Task]


class Heartbeat(TypedDict):
    """Whether the task must stop, and its new lease."""

    cancelled: bool
    lease_seconds: float


class Accepted(TypedDict):
    """An accepted report of a task."""

    status: Literal["accepted"]
    task_id: str


class AcceptedCheckpoint(TypedDict):
    """A stored checkpoint."""

    status: Literal["accepted"]
    checkpoint_id: str
