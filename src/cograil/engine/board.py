"""The working copy of one job during one advance: what it is, what changes, what is still unknown."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import orjson

from cograil import jsontext
from cograil.engine.states import JOB_MOVES, NODE_MOVES, NODE_TERMINAL, moved
from cograil.model.budget import Budget, ExpressionTooCostly
from cograil.model.job import (
    Bounds,
    Changes,
    ChildJob,
    Dice,
    EventWrite,
    JobState,
    NodeState,
    NodeWrite,
    NotFit,
    Outputs,
    TaskWrite,
    WantedJob,
)
from cograil.model.workflow import Json, Node, RenderError, Template, Workflow

_PARSED_SHIFT = 7  # this power of two of bytes is parsed in the time of a step


class Board:
    """Reads fall through to the given state; the first write of a node copies it."""

    def __init__(
        self,
        workflow: Workflow,
        state: JobState,
        *,
        now: datetime,
        dice: Dice,
        outputs: Outputs,
        bounds: Bounds,
        budget: Budget | None = None,
    ) -> None:
        self.workflow = workflow
        self.state = state
        self.now, self.dice = now, dice
        self.outputs = Outputs(dict(outputs.raw), outputs.children, outputs.jobs)
        self.bounds = bounds
        self.budget = Budget(None, bounds.node_steps) if budget is None else budget
        self.begun = 0  # nodes whose expressions were evaluated in this pass
        self.begin_limit: int | None = None  # of these: the next one would need more steps than are left
        self.is_cut = self.defers_missing = False  # whether, and that, nodes are left for another pass
        self.asked: list[str] = []  # pending nodes that were left by the pass before
        self.too_costly: dict[str, ExpressionTooCostly] = {}  # fan-outs with such a child in this pass
        self._inputs: Json = None
        self._slept: list[NodeState] | None = None  # nodes that waited for a moment before this pass
        self.status = state.status
        self.started_at = state.started_at
        self.seq = state.seq
        self.touched: list[str] = []  # nodes that became terminal: their successors are looked at next
        self.writes: dict[str, NodeWrite] = {}
        self.tasks: list[TaskWrite] = []
        self.events: list[EventWrite] = []
        self.more: list[str] = []
        self.is_closing = False  # nothing may begin any more
        self.items: dict[str, list[Json]] = {}  # the lists of fan-outs, rendered once a pass
        self.misfit: NotFit | None = None  # the job cannot be what its caller wanted
        self.is_resumed = False  # look at everything: what happened during a pause was only noted
        self.missing: set[str] = set()
        self.missing_children: set[str] = set()
        self.missing_jobs: tuple[WantedJob, ...] = ()
        self.children: tuple[ChildJob, ...] = ()
        self.stops_children: tuple[str, ...] = ()

    # -- reading -------------------------------------------------------------------------------------

    def find(self, node_id: str) -> NodeState | None:
        """The node's state, or None while it is pending and has no row."""
        write = self.writes.get(node_id)
        return write.state if write is not None else self.state.nodes.get(node_id)

    def sleepers(self) -> list[NodeState]:
        """Every node that waits for a moment, as it is now."""
        writes = self.writes
        if self._slept is None:
            self._slept = [state for state in self.state.nodes.values() if state.not_before is not None]
        asleep = [state for state in self._slept if state.node_id not in writes] if self._slept else []
        for write in writes.values():
            if write.state.not_before is not None:
                asleep.append(write.state)
        return asleep

    def status_of(self, node_id: str) -> str:
        """The node's status; pending when it has no row."""
        write = self.writes.get(node_id)
        found = write.state if write is not None else self.state.nodes.get(node_id)
        return "pending" if found is None else found.status

    def definition_of(self, state: NodeState) -> Node:
        """The node's definition; a child is defined by its fan-out."""
        return self.workflow.nodes[state.parent or state.node_id]

    def render(self, template: Template, node: Node | None, extra: dict[str, Json] | None = None) -> Json:
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
            self._inputs = jsontext.load(self.state.input_text)
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

    def _add_predecessor(self, scope: dict[str, Json], node: Node) -> None:
        """`output` is that of the predecessor that completed: of several branches, the one that ran."""
        completed = [name for name in node.predecessors if self.status_of(name) == "completed"]
        if completed:
            value = self._output_of(completed[0])
            scope["output"] = value
            scope["upstream"] = {"output": value}

    def has_outputs_for(self, node: Node) -> bool:
        """Whether all outputs the node may read are at hand; notes those that are missing."""
        is_complete = True
        for node_id in node.reads:
            if node_id not in self.outputs.raw and self.status_of(node_id) == "completed":
                self.missing.add(node_id)
                is_complete = False
        return is_complete

    def may_begin(self, node_id: str) -> bool:
        """Whether this pass has steps left to begin a node. If not, another pass is asked for."""
        if self.begun != self.begin_limit and self.budget.begin_next_node():
            self.begun += 1
            return True
        self.leave(node_id)
        return False

    def has_spent_all(self) -> bool:
        """Whether this pass has no steps left for a node that waits for its moment; counts it if it has."""
        if self.begun != self.begin_limit and self.budget.begin_next_node():
            self.begun += 1
            return False
        self.is_cut = True
        return True

    def leave_missing(self, node: Node) -> None:
        """Another pass loads what this node lacks."""
        self.missing.difference_update(node.reads)
        self.missing_children.difference_update(node.predecessors)
        self.more.append(node.node_id)

    def leave(self, node_id: str) -> None:
        """Go on with this node in another pass."""
        self.is_cut = True
        if node_id not in self.more:
            self.more.append(node_id)

    # -- writing -------------------------------------------------------------------------------------

    def edit(self, node_id: str, *, parent: str | None = None, index: int | None = None) -> NodeWrite:
        """The node's row to change, made when it has none."""
        write = self.writes.get(node_id)
        if write is None:
            found = self.state.nodes.get(node_id)
            state = (
                NodeState(node_id, "pending", parent=parent, index=index) if found is None else found.copy()
            )
            write = self.writes[node_id] = NodeWrite(state, found is None)
        return write

    def move(self, write: NodeWrite, verb: str) -> None:
        """Make a move of the list in states.py."""
        state = write.state
        state.status = moved(NODE_MOVES, verb, state.status)
        if state.status in NODE_TERMINAL:
            state.finished_at = self.now
            state.not_before = None
            if state.parent is None:
                self.touched.append(state.node_id)

    def move_job(self, verb: str) -> None:
        """Make a move of the job."""
        self.status = moved(JOB_MOVES, verb, self.status)

    def event(
        self, type_: str, node_id: str | None = None, task_id: int | None = None, /, **data: Json
    ) -> None:
        """Append a fact; the job's own counter numbers it."""
        self.seq += 1
        self.events.append(EventWrite(self.seq, type_, node_id, task_id, data))

    def complete(
        self, write: NodeWrite, output: bytes | None, task_id: int | None = None, worker: str | None = None
    ) -> None:
        """The node is done, with this output, by this worker if it took one."""
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
        """The node has failed for good."""
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
            retry_count=max(0, state.attempt - state.budget_from - 1),
            max_retries=node.retry.max_attempts - 1,
        )

    def changes(self, wake_at: datetime | None) -> Changes:
        """What is to be written."""
        return Changes(
            status=self.status,
            seq=self.seq,
            started_at=self.started_at,
            wake_at=wake_at,
            nodes=list(self.writes.values()),
            tasks=self.tasks,
            events=self.events,
            more=self.more,
            children=self.children,
            stops_children=self.stops_children,
            is_cut=self.is_cut,
        )


def _duration(state: NodeState) -> dict[str, Any]:
    if state.started_at is None or state.finished_at is None:
        return {}
    return {"duration_seconds": round((state.finished_at - state.started_at).total_seconds(), 6)}


def as_error(error: RenderError) -> dict[str, Json]:
    """The stored form of a template that could not be rendered."""
    return {"code": error.code, "message": str(error)}


def dump(value: Json) -> bytes:
    """JSON text of a rendered value. Raises RenderError: a sum of two numbers may not fit any more."""
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise RenderError("invalid_number", str(error)) from error
