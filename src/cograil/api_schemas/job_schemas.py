"""What the API answers of jobs, workflows and tasks: once for its description, and once for its clients.

The objects themselves are plain dictionaries. Times are texts in UTC. A client takes keys that are not named
here, for there may be more of them tomorrow. `surveys` has the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired

from typing_extensions import TypedDict

Json = Any


@dataclass(frozen=True, slots=True)
class Written:
    """How a text is written, for whoever describes it as JSON Schema."""

    format: str

    def __get_pydantic_json_schema__(self, schema: Any, described: Any) -> dict[str, Any]:
        return {**described(schema), "format": self.format}


Moment = Annotated[str, Written("date-time")]
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
    owner_heartbeat_at: NotRequired[Moment | None]  # of one job; lists leave it out
    retry_of: str | None
    not_before: Moment | None
    deadline: Moment | None
    waiting_for: WaitingFor | None
    result_data: dict[str, Json] | None
    error_message: dict[str, Json] | None


class JobPage(TypedDict):
    """Some jobs, and where the next ones begin."""

    jobs: list[Job]
    next_cursor: str | None


class Children(TypedDict):
    """Those of a fan-out."""

    total: int
    expanded: int
    ended: int
    failed: int


class NodeProgress(TypedDict):
    """What a handler says of itself."""

    current: float | None
    total: float | None
    message: str | None


class ChildJob(TypedDict):
    """The job of a subworkflow."""

    job_id: str
    status: JobStatus


class Node(TypedDict):
    """A node of a job. `payload_omitted`: its input and output were too much for this list; ask for it alone."""

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
    """A job seen from close by."""

    job: Job
    nodes: list[Node]
    node_summary: dict[str, int]


class NodesOfJob(TypedDict):
    """The nodes of a job, in the order of its workflow."""

    job_id: str
    nodes: list[Node]


class Event(TypedDict):
    """Something that happened in a job; `event_id` is that of its job and its number there."""

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
    """Some events of a job, and after which number the next ones are."""

    job_id: str
    events: list[Event]
    next_after: int | None


class LogLine(TypedDict):
    """A line that a handler logged; `cursor` is its place among the lines of the job."""

    cursor: str
    node_id: str
    attempt: int
    at: Moment | None
    level: str
    message: str
    fields: dict[str, Json]


class LogLines(TypedDict):
    """Some log lines of a job, and after which one the next are."""

    job_id: str
    logs: list[LogLine]
    next_cursor: str | None


class Bar(TypedDict):
    """When a node ran."""

    node_id: str
    status: NodeStatus
    attempt: int
    started_at: Moment
    completed_at: Moment | None
    parent_node_id: str | None
    duration_seconds: float | None


class Timeline(TypedDict):
    """When each node ran, and what happened."""

    job_id: str
    status: JobStatus
    bars: list[Bar]
    events: list[Event]


class NodeCounts(TypedDict):
    """How many nodes are how far; dispatched counts as running, ready as pending."""

    total: int
    completed: int
    running: int
    pending: int
    failed: int
    skipped: int
    waiting: int
    cancelled: int


class ProgressOfTask(TypedDict):
    """How far an attempt is."""

    node_id: str
    task_id: str | None
    progress_current: float | None
    progress_total: float | None
    progress_percent: float | None
    progress_message: str | None


class JobProgress(TypedDict):
    """How far a job is."""

    job_id: str
    status: JobStatus
    overall_percent: float
    nodes: NodeCounts
    current_tasks: list[ProgressOfTask]


class ProgressOfNode(ProgressOfTask):
    """How far a node is."""

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


class FoundTraceback(TypedDict):
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
    """Why a job is not further along, the first reason first."""

    job_id: str
    status: JobStatus
    blockers: list[Blocker]


class RetryPreview(TypedDict):
    """What a retry would do."""

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
    """What was decided, and the status of the job after it."""

    job_id: str
    node_id: str
    by: str | None
    decision: Literal["approved", "rejected"]
    job_status: JobStatus


class Refused(TypedDict):
    """What is wrong with one of many."""

    code: str
    detail: str
    pointer: str


class BatchResult(TypedDict):
    """What became of one of many."""

    status: int
    job_id: NotRequired[str]
    error: NotRequired[Refused]


class BatchResults(TypedDict):
    """For each job, in order."""

    results: list[BatchResult]


class Request(TypedDict):
    """A request of somebody outside, accepted."""

    request_id: str
    workflow_id: str
    submitted_at: Moment
    status: Literal["accepted"]
    job_id: str
    correlation_id: str


class PublishedSchedule(TypedDict):
    """What publishing a file did to one of its schedules."""

    name: str
    change: Literal["created", "changed", "resumed", "paused"]


class Published(TypedDict):
    """A version of a workflow; `is_new` False: the very same was there."""

    workflow_id: str
    version: int
    is_new: bool
    schedules: list[PublishedSchedule]  # those of its file that this changed


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
    """A published version with all of it."""

    definition: dict[str, Json]
    source: str


class WorkflowList(TypedDict):
    """The published workflows."""

    workflows: list[WorkflowVersion]


class VersionList(TypedDict):
    """The versions of a workflow, newest first."""

    versions: list[WorkflowVersion]


class PausedWorkflow(TypedDict):
    """Whether its jobs begin anything new."""

    workflow_id: str
    is_paused: bool


class Task(TypedDict):
    """An attempt that a worker has claimed."""

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
    """What a worker has claimed."""

    tasks: list[Task]


class Heartbeat(TypedDict):
    """Whether the task is to be stopped, and for how long it is kept."""

    cancelled: bool
    lease_seconds: float


class Accepted(TypedDict):
    """What was said of a task counts."""

    status: Literal["accepted"]
    task_id: str


class AcceptedCheckpoint(TypedDict):
    """A checkpoint is kept."""

    status: Literal["accepted"]
    checkpoint_id: str
