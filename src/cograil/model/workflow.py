"""A workflow as the engine sees it: checked, with its templates compiled and its edges resolved.

`definitions/` makes these from YAML or from the stored document; nobody else builds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from cograil.model.budget import Budget
    from cograil.model.schedules import Plan

Json = Any  # str | int | float | bool | None | list | dict, nested; checked where it enters
Scope = Mapping[str, Json]

DEFAULT_QUEUE = "default"
DEFAULT_TIMEOUT_SECONDS = 3600.0
CONTAINER = "container"  # the handler of what runs outside its worker


class NodeType(StrEnum):
    """What a node does. All but task and fan_out children are done by the orchestrator itself."""

    START = "start"
    END = "end"
    TASK = "task"
    CONDITIONAL = "conditional"
    FAN_OUT = "fan_out"
    FAN_IN = "fan_in"
    WAIT = "wait"
    APPROVAL = "approval"
    SUBWORKFLOW = "subworkflow"


class Template(Protocol):
    """A value with holes, compiled once.

    `references` names the nodes whose output or status it reads. `render` needs a scope with
    `inputs`, `nodes` ({id: {"output": .., "status": ..}}), and where they apply `item`, `index`
    and `output` (of the direct predecessor). It raises `RenderError`; it never renders a value twice.
    A budget counts its steps and limits them (model/budget.py); `evaluate` is `render` for callers that
    have one.
    """

    references: frozenset[str]
    uses_output: bool

    @property
    def evaluate(self) -> Callable[[Scope, Budget], Json]: ...

    def render(self, scope: Scope, budget: Budget | None = None) -> Json: ...

    def reads_input(self, name: str) -> bool: ...


class RenderError(Exception):
    """A template could not be rendered; `code` says why (template_undefined, template_too_large, ...)."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and when a failed attempt is made again. `max_attempts` counts every execution."""

    max_attempts: int = 3
    backoff: str = "exponential"  # fixed | linear | exponential
    initial_delay_seconds: float = 5.0
    max_delay_seconds: float = 300.0
    jitter: float = 0.0
    retry_on: frozenset[str] | None = None

    def delay_after(self, attempt: int, dice: float) -> float | None:
        """Seconds to wait after attempt number `attempt` failed; None if it was the last."""
        if attempt >= self.max_attempts:
            return None
        match self.backoff:
            case "fixed":
                grown = self.initial_delay_seconds
            case "linear":
                grown = self.initial_delay_seconds * attempt
            case _:
                grown = self.initial_delay_seconds * 2.0 ** min(attempt - 1, 64)
        capped = min(grown, self.max_delay_seconds)
        return max(0.0, capped * (1 + self.jitter * (2 * dice - 1)))

    def retries(self, code: str, *, retryable: bool) -> bool:
        """Whether a failure of this kind may be tried again at all."""
        if self.retry_on is not None:
            return code in self.retry_on
        return retryable


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One declared input of a workflow."""

    name: str
    type: str  # string | integer | number | boolean | array | object
    required: bool = True
    default: Json = None
    has_default: bool = False
    description: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """A dependency on `source`. With `branches`, it is alive only when one of those was taken.

    `is_gate`: a branch pointer to a node whose explicit depends_on does not name the conditional;
    when it is dead the node is skipped whatever its other dependencies say.
    """

    source: str
    branches: frozenset[str] | None = None
    is_gate: bool = False


@dataclass(frozen=True, slots=True)
class Branch:
    """One way out of a conditional. `test` renders to true or false; None is the default branch."""

    name: str
    test: Template | None
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Approval:
    """A question to people. `form` is a JSON Schema for what they may fill in."""

    message: Template
    approvers: tuple[str, ...] = ()  # who may answer; empty: anybody
    form: Mapping[str, Json] | None = None
    timeout_seconds: float | None = None
    on_timeout: str = "reject"  # reject | fail


@dataclass(frozen=True, slots=True)
class Subworkflow:
    """Another workflow, run as a job of its own. Without a version: the newest when it starts."""

    workflow_id: str
    version: int | None = None
    inputs: Template | None = None  # renders to a mapping


@dataclass(frozen=True, slots=True)
class Limit:
    """At most so many at a time, or so many in a span of time, for each value of the key."""

    concurrency: int | None = None
    rate: float | None = None  # how many may begin
    per_seconds: float = 1.0  # within this many seconds
    key: Template | None = None  # None: one limit for all


@dataclass(frozen=True, slots=True)
class Node:
    """One step. Of a fan_out, handler, queue, params, timeout and retry are those of its children."""

    node_id: str
    type: NodeType
    all_of: tuple[Edge, ...] = ()
    any_of: tuple[Edge, ...] = ()
    successors: tuple[str, ...] = ()
    required: bool = True
    description: str = ""
    handler: str = ""
    queue: str = DEFAULT_QUEUE
    has_own_queue: bool = False  # the file names the queue
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    longest_wait_seconds: float | None = None  # wait and subworkflow: the timeout that the file gives them
    retry: RetryPolicy = RetryPolicy()
    params: Template | None = None
    branches: tuple[Branch, ...] = ()  # conditional
    source: Template | None = None  # fan_out: renders to the list of items
    aggregation: str = "collect"  # fan_in
    wait_seconds: Template | None = None  # wait: renders to a number
    wait_until: Template | None = None  # wait: renders to an RFC 3339 time
    when: Template | None = None  # renders to true or false; false skips the node
    approval: Approval | None = None
    subworkflow: Subworkflow | None = None
    limit: Limit | None = None  # of its tasks
    predecessors: tuple[str, ...] = field(init=False)  # every node this one depends on, in the order written
    reads: frozenset[str] = field(init=False, compare=False)  # the nodes whose output its templates may read
    templates: tuple[Template, ...] = field(init=False, compare=False)

    @property
    def is_outside(self) -> bool:
        """Whether its work goes on when its worker dies, and is taken up by the next one."""
        return self.handler == CONTAINER

    def __post_init__(self) -> None:
        """What follows from the rest, worked out once and not at every decision."""
        sources = tuple(dict.fromkeys(edge.source for edge in (*self.all_of, *self.any_of)))
        given: tuple[Template | None, ...] = (
            self.params,
            self.source,
            self.wait_seconds,
            self.wait_until,
            self.when,
            None if self.approval is None else self.approval.message,
            None if self.subworkflow is None else self.subworkflow.inputs,
            None if self.limit is None else self.limit.key,
            *(branch.test for branch in self.branches),
        )
        templates = [template for template in given if template is not None]
        read = frozenset().union(*(template.references for template in templates))
        if any(template.uses_output for template in templates):
            read |= frozenset(sources)
        object.__setattr__(self, "predecessors", sources)
        object.__setattr__(self, "reads", read)
        object.__setattr__(self, "templates", tuple(templates))


@dataclass(frozen=True, slots=True)
class Workflow:
    """A checked workflow. `nodes` is in topological order: predecessors come first."""

    workflow_id: str
    version: int
    name: str
    nodes: Mapping[str, Node]
    inputs: Mapping[str, InputSpec] | None = None
    description: str = ""
    timeout_seconds: float | None = None
    fail_fast: bool = False  # the first failure of a required node cancels the rest
    limit: Limit | None = None  # of its jobs
    outputs: Mapping[str, Template] | None = None  # what its jobs result in; None: what all nodes returned
    schedules: Mapping[str, Plan] = field(default_factory=dict)  # of the file; not part of the version
    document: Mapping[str, Json] = field(default_factory=dict)
    digest: str = ""
    app: str | None = None  # that published it and alone starts jobs of it; None: a workflow of users
    has_limits: bool = field(init=False, compare=False)
    has_fan_outs: bool = field(init=False, compare=False)
    is_one_task: bool = field(init=False, compare=False)  # and no more: with its success a job is over

    def __post_init__(self) -> None:
        """What follows from the rest, worked out once."""
        nodes = self.nodes.values()
        limits = (self.limit, *(node.limit for node in nodes))
        object.__setattr__(self, "has_limits", any(limit is not None for limit in limits))
        object.__setattr__(self, "has_fan_outs", any(node.type is NodeType.FAN_OUT for node in nodes))
        is_task = [node.type is NodeType.TASK for node in nodes] == [True]
        object.__setattr__(self, "is_one_task", is_task and not self.has_limits and self.outputs is None)
