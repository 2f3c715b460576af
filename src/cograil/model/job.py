"""A job as `advance` sees it: its row, the loaded nodes, its inputs and its changes.

Nodes that never left `pending` have no row and no `NodeState`. Children of a fan-out are in
`nodes` only when an input concerns them: their parent keeps the counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from cograil import strict_json
from cograil.model.evaluation_budget import MAX_NODE_SECONDS, MAX_NODE_STEPS
from cograil.model.outcome import Outcome
from cograil.model.workflow import Json


@dataclass
class NodeState:
    """One node of one job. `advance` changes copies only."""

    node_id: str
    status: str
    attempt: int = 0
    lost: int = 0  # attempts that ended with their worker
    uncounted_attempts: int = 0  # attempts that do not count: released, or before a manual retry
    parent: str | None = None
    index: int | None = None
    not_before: datetime | None = None
    skip_reason: str | None = None  # branch | upstream_failed | when
    taken_branch: str | None = None
    total: int | None = None  # fan_out: how many children in all
    expanded: int = 0  # fan_out: how many exist
    ended: int = 0  # fan_out: how many are terminal
    failed: int = 0  # fan_out: how many of these failed
    error: Json = None
    started_at: datetime | None = None
    finished_at: datetime | None = None

    def copy(self) -> NodeState:
        """Return a copy to change. A class without slots copies ten times faster than one with slots."""
        new: NodeState = object.__new__(NodeState)
        new.__dict__.update(self.__dict__)
        return new


def shown_node_status(status: str) -> str:
    """Return the display status of a node: `dispatched` is shown as queued."""
    return "queued" if status == "dispatched" else status


@dataclass(slots=True)
class JobState:
    """One job under its row lock."""

    job_id: str
    tenant_id: str
    definition_id: int
    status: str
    input_text: bytes  # JSON; parsed when a template asks for it
    seq: int
    created_at: datetime
    priority: int = 0
    not_before: datetime | None = None
    deadline: datetime | None = None
    started_at: datetime | None = None
    correlation_id: str | None = None
    submitted_by: str | None = None
    trace_parent: str | None = None
    parent_job: str | None = None  # the job whose subworkflow this is
    is_held: bool = False  # its workflow has a limit, and it is not admitted yet
    is_paused: bool = False  # the job or its workflow is paused: nothing is dispatched
    has_callback: bool = False  # it has a callback
    key_roots: bytes | None = None  # JSON (model/idempotency_keys.py); None: its idempotency keys are its own
    nodes: dict[str, NodeState] = field(default_factory=dict)
    children_wake_at: datetime | None = None  # the earliest backoff among children that are not loaded
    children_sleeping: int = 0  # how many of those wait for their next attempt
    retry_of: str | None = None  # known while the job is created
    trace_caller: str | None = None  # the span of the caller, known while the job is created
    trace_link: str | None = None  # the span of the retried job


@dataclass(slots=True)
class Outputs:
    """The loaded outputs as JSON text, parsed when a template reads them.

    `jobs` holds the child jobs prepared for subworkflow nodes, or the reason for a refusal.
    """

    raw: dict[str, bytes | None] = field(default_factory=dict)
    children: dict[str, list[tuple[str, str, bytes | None]]] = field(default_factory=dict)
    jobs: dict[str, PreparedChildJob | ChildRefused] | None = None
    _parsed: dict[str, Json] = field(default_factory=dict)

    def is_parsed(self, node_id: str) -> bool:
        """Whether the output of a node was parsed before."""
        return node_id in self._parsed

    def value(self, node_id: str) -> Json:
        """The output of a node as a JSON value."""
        if node_id not in self._parsed:
            text = self.raw[node_id]
            self._parsed[node_id] = None if text is None else strict_json.load(text)
        return self._parsed[node_id]


# -- inputs: what arrived in the inbox, in the order of arrival --------------------------------------


@dataclass(frozen=True, slots=True)
class Submitted:
    """The job was just created."""


@dataclass(frozen=True, slots=True)
class InvalidSubmission:
    """The job was submitted by SQL without a check and does not match its workflow."""

    code: str
    message: str
    details: Json = None


class Reported(NamedTuple):
    """A worker ended an attempt; the fence held."""

    node_id: str
    attempt: int
    task_id: int
    outcome: Outcome
    worker: str | None = None
    started_at: datetime | None = None


class Started(NamedTuple):
    """A worker has been running the attempt for a while."""

    node_id: str
    attempt: int
    task_id: int
    worker: str | None = None
    started_at: datetime | None = None


class Lost(NamedTuple):
    """The attempt is gone: its worker died (`worker_lost`) or released it (`released`), or its time was
    over (`timeout`).
    """

    node_id: str
    attempt: int
    task_id: int
    reason: str = "worker_lost"
    worker: str | None = None
    started_at: datetime | None = None


class Late(NamedTuple):
    """A worker reported an attempt that it no longer held. The report was refused."""

    node_id: str
    attempt: int
    task_id: int
    what: str = "result"
    worker: str | None = None


class ExpandMore(NamedTuple):
    """A fan-out has more children to create."""

    node_id: str


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """A caller cancels the job. Its tasks are revoked before this is decided."""

    by: str = ""
    reason: str = ""


class Resumed(NamedTuple):
    """The job may continue: it was admitted, or a pause has ended."""


@dataclass(frozen=True, slots=True)
class RetryRequested:
    """A caller retries a failed node of this running job."""

    node_id: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class Signalled:
    """A person decided an approval. Permission and form data were checked before."""

    name: str  # approve | reject
    node_id: str
    by: str | None = None
    reason: str | None = None
    data: Json = None


@dataclass(frozen=True, slots=True)
class ChildEnded:
    """The job that a subworkflow node waits for has ended, with this result or this error."""

    node_id: str
    attempt: int
    job_id: str
    status: str
    output: bytes | None = None
    error: Json = None


Input = (
    Submitted
    | InvalidSubmission
    | Reported
    | Started
    | Lost
    | Late
    | ExpandMore
    | Resumed
    | CancelRequested
    | RetryRequested
    | Signalled
    | ChildEnded
)


# -- changes: what one transaction writes -----------------------------------------------------------


@dataclass(slots=True)
class NodeWrite:
    """A node row to write. `task_id`, `input` and `output` None keep the stored values."""

    state: NodeState
    is_new: bool  # it has no row yet
    task_id: int | None = None
    input: bytes | None = None
    output: bytes | None = None


class TaskLimit(NamedTuple):
    """The limit of a task. The task is held until the limit has a free slot."""

    key: str
    concurrency: int | None
    rate: float | None
    per_seconds: float


@dataclass(slots=True)
class TaskWrite:
    """An attempt to dispatch. `params` None: those of the last attempt."""

    node_id: str
    attempt: int
    queue: str
    handler: str
    timeout_seconds: float
    params: bytes | None
    limit: TaskLimit | None = None
    is_exclusive: bool = False  # the task is exclusive: its worker holds nothing else that it could take down
    is_resumed: bool = False  # its external work may still run, so it is claimed before other tasks
    is_last: bool = False  # its success ends the job, unless something else happens to the job before
    key_root: str | None = None  # the job of its idempotency key, if that is another one


@dataclass(slots=True)
class EventWrite:
    """An event to append."""

    seq: int
    type: str
    node_id: str | None
    task_id: int | None
    data: dict[str, Json]


@dataclass(frozen=True, slots=True)
class ChildRequest:
    """A child job that a subworkflow node requests."""

    node_id: str
    workflow_id: str
    version: int | None
    inputs: Json


@dataclass(frozen=True, slots=True)
class ChildRefused:
    """Why a requested child job is refused."""

    code: str
    message: str


@dataclass(slots=True)
class PreparedChildJob:
    """A prepared child job of a subworkflow node, with its first advance."""

    node_id: str
    workflow_id: str
    workflow_version: int
    state: JobState
    changes: Changes


@dataclass(slots=True)
class Changes:
    """The decisions of one advance of one job.

    With something `missing`, nothing was decided: load it and call `advance` again. The same holds for
    `needs_revoke`: the job ends while its tasks may run. Revoke them, take its inbox again and call again.
    """

    status: str
    seq: int
    started_at: datetime | None = None
    finished_at: datetime | None = None
    wake_at: datetime | None = None
    waiting_for: str | None = None  # approval | timer | retry | start: no worker holds a task of it
    result: bytes | None = None
    error: Json = None
    nodes: list[NodeWrite] = field(default_factory=list)
    tasks: list[TaskWrite] = field(default_factory=list)
    events: list[EventWrite] = field(default_factory=list)
    to_expand: list[str] = field(default_factory=list)
    closes_nodes: bool = False  # every node that is not terminal becomes cancelled
    children: tuple[PreparedChildJob, ...] = ()  # jobs to create
    stops_children: tuple[str, ...] = ()  # cancel the child jobs of these nodes, which took too long
    cancels_children: bool = False  # cancel the child jobs of all its nodes
    missing: frozenset[str] = frozenset()  # outputs of these nodes
    missing_children: frozenset[str] = frozenset()  # outputs of the children of these fan-outs
    missing_jobs: tuple[ChildRequest, ...] = ()  # child jobs to prepare
    needs_revoke: bool = False
    steps: int = 0  # steps used to evaluate expressions
    is_cut: bool = False  # nodes that could begin wait for another pass: no steps were left


RandomFloat = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of decisions."""

    poison_limit: int = 3  # workers that a node may kill before it fails
    chunk: int = 1000  # children created in one pass: more would delay the other jobs of the loop
    fan_out_items: int = 10_000
    fan_in_bytes: int = 64 * 1024 * 1024
    chunk_bytes: int = 4 * 1024 * 1024  # bytes of the params of these children
    node_steps: int = MAX_NODE_STEPS  # steps to evaluate the expressions of one node
    node_seconds: float = MAX_NODE_SECONDS  # the same as a time, where a clock is passed
