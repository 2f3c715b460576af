"""Whether a node may run. Only the states of its incoming edges matter.

An edge is *open* while its source may still change. Then it is *alive* (the source completed, or failed
without being required), *dead* (a branch that was not taken, or a source skipped because of one) or
*broken* (a required source failed, or was skipped because of a failure).
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from cograil.model.job import NodeState
from cograil.model.workflow import Edge, NodeType, Workflow, WorkflowNode


class NodeStates(Protocol):
    """The states of the nodes of a job: a working copy, or a prediction."""

    workflow: Workflow

    def find(self, node_id: str) -> NodeState | None:
        """The node's state, or None while it is pending."""


class EdgeState(Enum):
    """The state of an edge."""

    OPEN = "open"
    ALIVE = "alive"
    DEAD = "dead"
    BROKEN = "broken"


class NextMove(Enum):
    """The next move of a pending node."""

    WAIT = "wait"
    RUN = "run"
    SKIP_BRANCH = "branch"
    SKIP_FAILURE = "upstream_failed"


def edge_state(states: NodeStates, edge: Edge, target: WorkflowNode) -> EdgeState:
    """Return the state of this edge."""
    source = states.find(edge.source)
    if source is None:
        return EdgeState.OPEN
    match source.status:
        case "completed":
            if edge.branches is not None and source.taken_branch not in edge.branches:
                return EdgeState.DEAD
            definition = states.workflow.nodes[edge.source]
            if source.failed and definition.required and target.type is not NodeType.FAN_IN:
                return EdgeState.BROKEN
            return EdgeState.ALIVE
        case "skipped":
            return EdgeState.BROKEN if source.skip_reason == NextMove.SKIP_FAILURE.value else EdgeState.DEAD
        case "failed":
            if states.workflow.nodes[edge.source].required:
                return EdgeState.BROKEN
            return (
                EdgeState.ALIVE if edge.branches is None else EdgeState.DEAD
            )  # a failed conditional took no branch
        case "cancelled":
            return EdgeState.BROKEN
    return EdgeState.OPEN


def verdict(states: NodeStates, node: WorkflowNode) -> NextMove:
    """Return whether the node waits, runs or is skipped. A skipped source satisfies all_of but not any_of.

    Gates are checked first, then any_of, then all_of. A check that is still open makes the node wait, so the
    order in which the sources end does not change the result.
    """
    if not node.all_of and not node.any_of:
        return NextMove.RUN
    all_ends = [edge_state(states, edge, node) for edge in node.all_of]
    if not node.any_of and EdgeState.DEAD not in all_ends and EdgeState.BROKEN not in all_ends:
        return NextMove.WAIT if EdgeState.OPEN in all_ends else NextMove.RUN  # most nodes
    any_ends = [edge_state(states, edge, node) for edge in node.any_of]
    if node.type is NodeType.END:
        return _end_verdict(all_ends, any_ends)
    gates = [end for end, edge in zip(all_ends, node.all_of, strict=True) if edge.is_gate]
    return _gate_verdict(gates) or _any_verdict(any_ends) or _all_verdict(all_ends, has_any_of=bool(any_ends))


def dependencies_met(states: NodeStates, node: WorkflowNode) -> list[str]:
    """Return the predecessors that let this node run: every all_of source and the alive any_of sources."""
    needed = {edge.source for edge in node.all_of}
    needed |= {edge.source for edge in node.any_of if edge_state(states, edge, node) is EdgeState.ALIVE}
    return [name for name in node.predecessors if name in needed]


def _gate_verdict(ends: list[EdgeState]) -> NextMove | None:
    """Skip a node whose branch was not taken, whatever its other edges are."""
    if EdgeState.DEAD in ends:
        return NextMove.SKIP_BRANCH
    return NextMove.WAIT if EdgeState.OPEN in ends else None


def _any_verdict(ends: list[EdgeState]) -> NextMove | None:
    if not ends or EdgeState.ALIVE in ends:
        return None
    if EdgeState.OPEN in ends:
        return NextMove.WAIT
    return NextMove.SKIP_FAILURE if EdgeState.BROKEN in ends else NextMove.SKIP_BRANCH


def _all_verdict(ends: list[EdgeState], *, has_any_of: bool) -> NextMove:
    if EdgeState.BROKEN in ends:
        return NextMove.SKIP_FAILURE
    if EdgeState.OPEN in ends:
        return NextMove.WAIT
    is_unwanted = not has_any_of and EdgeState.ALIVE not in ends
    return NextMove.SKIP_BRANCH if is_unwanted else NextMove.RUN


def _end_verdict(all_ends: list[EdgeState], any_ends: list[EdgeState]) -> NextMove:
    """Run an end node once no edge before it is open. It is never skipped."""
    if EdgeState.OPEN in all_ends or (EdgeState.OPEN in any_ends and EdgeState.ALIVE not in any_ends):
        return NextMove.WAIT
    return NextMove.RUN
