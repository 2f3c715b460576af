"""The working copy of a job during one advance: its state, its changes and the missing outputs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import orjson

from cograil import strict_json
from cograil.model.evaluation_budget import Budget, ExpressionTooCostly
from cograil.model.job import (
    Bounds,
    Changes,
    ChildRequest,
    EventWrite,
    InvalidSubmission,
    JobState,
    NodeState,
    NodeWrite,
    Outputs,
    PreparedChildJob,
    RandomFloat,
    TaskWrite,
)
from cograil.model.states import JOB_MOVES, NODE_MOVES, NODE_TERMINAL, moved
from cograil.model.workflow import Json, RenderError, Template, Workflow, WorkflowNode

_PARSED_SHIFT = 7  # parsing 2**7 bytes takes about as long as a step


class WorkingCopy:
    """One job during one advance. Reads fall through to `state`; the first write of a node copies it."""

    def __init__(
        self,
        workflow: Workflow,
        state: JobState,
        *,
        now: datetime,
        random: RandomFloat,
        outputs: Outputs,
        bounds: Bounds,
        budget: Budget | None = None,
    ) -> None:
        self.workflow = workflow
        self.state = state
        self.now = now
        self.random = random
        self.outputs = Outputs(dict(outputs.raw), outputs.children, outputs.jobs)
        self.bounds = bounds
        self.budget = Budget(None, bounds.node_steps) if budget is None else budget
        self.begun = 0  # nodes evaluated in this pass
        self.begin_limit: int | None = None  # maximum of `begun`
        self.is_cut = self.defers_missing = False  # nodes were left; nodes without outputs are left
        self.deferred: list[str] = []  # pending nodes left by the last pass
        self.too_costly: dict[
            str, ExpressionTooCostly
        ] = {}  # by fan-out: the error of its first too costly child
        self._inputs: Json = None
        self._timed_before: list[NodeState] | None = None  # timed nodes before this pass
        self.status = state.status
        self.started_at, self.seq = state.started_at, state.seq
        self.newly_ended: list[str] = []  # nodes whose successors are visited next
        self.writes: dict[str, NodeWrite] = {}
        self.tasks: list[TaskWrite] = []
        self.events: list[EventWrite] = []
        self.to_expand: list[str] = []
        self.is_closing = False  # no node may start
        self.items: dict[str, list[Json]] = {}  # rendered lists by fan-out
        self.invalid: InvalidSubmission | None = None  # the submission does not match the workflow
        self.is_resumed = False  # visit all nodes: inputs during a pause were only recorded
        self.missing: set[str] = set()
        self.missing_children: set[str] = set()
        self.missing_jobs: tuple[ChildRequest, ...] = ()
        self.children: tuple[PreparedChildJob, ...] = ()
        self.stops_children: tuple[str, ...] = ()  # nodes whose child jobs are cancelled

    # -- reading -------------------------------------------------------------------------------------

    def find(self, node_id: str) -> NodeState | None:
        """The node's state, or None while it is pending and has no row."""
        write = self.writes.get(node_id)
        return write.state if write is not None else self.state.nodes.get(node_id)

    def timed_nodes(self) -> list[NodeState]:
        """Return every node with a `not_before`, in its current state."""
        writes = self.writes
        if self._timed_before is None:
            self._timed_before = [
                state for state in self.state.nodes.values() if state.not_before is not None
            ]
        timed = (
            [state for state in self._timed_before if state.node_id not in writes]
            if self._timed_before
            else []
        )
        for write in writes.values():
            if write.state.not_before is not None:
                timed.append(write.state)
        return timed

    def status_of(self, node_id: str) -> str:
        """The node's status; pending when it has no row."""
        write = self.writes.get(node_id)
        node = write.state if write is not None else self.state.nodes.get(node_id)
        return "pending" if node is None else node.status

    def definition_of(self, state: NodeState) -> WorkflowNode:
        """The node's definition; a child is defined by its fan-out."""
        return self.workflow.nodes[state.parent or state.node_id]

    def render(
        self, template: Template, node: WorkflowNode | None, extra: dict[str, Json] | None = None
    ) -> Json:
        """The template's value. Raises RenderError; call `has_outputs_for` first."""
        nodes: dict[str, Json] = {}
        for reference in template.references:
            state = self.find(reference)
            entry: dict[str, Json] = {"status": "pending" if state is None else state.status}
            entry["error"] = state.error if state is not None and state.status == "failed" else None
            if state is not None and state.status == "completed":
                entry["output"] = self._output_of(reference)
            nodes[reference] = entry
        if self._inputs is None:
            if steps := len(self.state.input_text) >> _PARSED_SHIFT:
                self.budget.spend(steps)
            self._inputs = strict_json.load(self.state.input_text)
        scope: dict[str, Json] = {"inputs": self._inputs, "nodes": nodes}
        if template.uses_output and node is not None:
            self._add_predecessor(scope, node)
        if extra:
            scope.update(extra)
        try:
            return template.evaluate(scope, self.budget)
        except ExpressionTooCostly as error:
            raise error.located(node_id=node.node_id if node is not None else "") from None

    def _output_of(self, node_id: str) -> Json:
        steps = len(self.outputs.raw[node_id] or b"") >> _PARSED_SHIFT
        if steps and not self.outputs.is_parsed(node_id):
            self.budget.spend(steps)
        return self.outputs.value(node_id)

    def _add_predecessor(self, scope: dict[str, Json], node: WorkflowNode) -> None:
        """`output` is that of the predecessor that completed: of several branches, the one that ran."""
        completed = [name for name in node.predecessors if self.status_of(name) == "completed"]
        if completed:
            value = self._output_of(completed[0])
            scope["output"] = value
            scope["upstream"] = {"output": value}

    def has_outputs_for(self, node: WorkflowNode) -> bool:
        """Whether all outputs that the node may read are loaded; records the missing ones."""
        is_complete = True
        for node_id in node.reads:
            if node_id not in self.outputs.raw and self.status_of(node_id) == "completed":
                self.missing.add(node_id)
                is_complete = False
        return is_complete

    def may_begin(self, node_id: str) -> bool:
        """Whether this pass has steps left to start a node. If not, the node is left for the next pass."""
        if self.begun != self.begin_limit and self.budget.begin_next_node():
            self.begun += 1
            return True
        self.leave(node_id)
        return False

    def is_exhausted(self) -> bool:
        """Whether this pass has no steps left. If it has some, count one more node."""
        if self.begun != self.begin_limit and self.budget.begin_next_node():
            self.begun += 1
            return False
        self.is_cut = True
        return True

    def leave_missing(self, node: WorkflowNode) -> None:
        """Leave a node to the next pass, which loads its outputs."""
        self.missing.difference_update(node.reads)
        self.missing_children.difference_update(node.predecessors)
        self.to_expand.append(node.node_id)

    def leave(self, node_id: str) -> None:
        """Leave a node to the next pass."""
        self.is_cut = True
        if node_id not in self.to_expand:
            self.to_expand.append(node_id)

    # -- writing -------------------------------------------------------------------------------------

    def row(self, node_id: str, *, parent: str | None = None, index: int | None = None) -> NodeWrite:
        """Return the row of the node for writing; create it if there is none."""
        write = self.writes.get(node_id)
        if write is None:
            node = self.state.nodes.get(node_id)
            state = NodeState(node_id, "pending", parent=parent, index=index) if node is None else node.copy()
            write = self.writes[node_id] = NodeWrite(state, node is None)
        return write

    def move(self, write: NodeWrite, verb: str) -> None:
        """Apply a move of NODE_MOVES to the node."""
        state = write.state
        state.status = moved(NODE_MOVES, verb, state.status)
        if state.status in NODE_TERMINAL:
            state.finished_at = self.now
            state.not_before = None
            if state.parent is None:
                self.newly_ended.append(state.node_id)

    def move_job(self, verb: str) -> None:
        """Apply a move of JOB_MOVES to the job."""
        self.status = moved(JOB_MOVES, verb, self.status)

    def event(
        self, type_: str, node_id: str | None = None, task_id: int | None = None, /, **data: Json
    ) -> None:
        """Append an event with the next sequence number of the job."""
        self.seq += 1
        self.events.append(EventWrite(self.seq, type_, node_id, task_id, data))

    def complete(
        self, write: NodeWrite, output: bytes | None, task_id: int | None = None, worker: str | None = None
    ) -> None:
        """Complete the node with this output."""
        self.move(write, "complete")
        write.output = output
        state = write.state
        state.error = None
        self.outputs.raw[state.node_id] = output
        data = _duration(state)
        if worker is not None:
            data["worker"] = worker
        self.event("node_completed", state.node_id, task_id, **data)

    def fail(self, write: NodeWrite, error: dict[str, Json], task_id: int | None = None) -> None:
        """Fail the node for good."""
        state = write.state
        self.move(write, "fail")
        state.error = error
        node = self.definition_of(state)
        self.event(
            "node_failed",
            state.node_id,
            task_id,
            error=error,
            will_retry=False,
            retry_count=max(0, state.attempt - state.uncounted_attempts - 1),
            max_retries=node.retry.max_attempts - 1,
        )

    def changes(self, wake_at: datetime | None) -> Changes:
        """Return the changes to write."""
        return Changes(
            status=self.status,
            seq=self.seq,
            started_at=self.started_at,
            wake_at=wake_at,
            nodes=list(self.writes.values()),
            tasks=self.tasks,
            events=self.events,
            to_expand=self.to_expand,
            children=self.children,
            stops_children=self.stops_children,
            is_cut=self.is_cut,
        )


def _duration(state: NodeState) -> dict[str, Any]:
    if state.started_at is None or state.finished_at is None:
        return {}
    return {"duration_seconds": round((state.finished_at - state.started_at).total_seconds(), 6)}


def as_error(error: RenderError) -> dict[str, Json]:
    """Return the stored form of a RenderError."""
    return {"code": error.code, "message": str(error)}


def dump(value: Json) -> bytes:
    """Return the JSON text of a rendered value. Raises RenderError for a number out of range."""
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise RenderError("invalid_number", str(error)) from error
