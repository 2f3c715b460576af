"""May a node run? Looks at the ends of its incoming edges and nothing else.

An edge is *open* while its source may still change, then *alive* (the source did its work, or failed
without being required), *dead* (an untaken branch, or a source that only such a branch reaches) or
*broken* (a required source failed, or was skipped because of one).
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from cograil.model.job import NodeState
from cograil.model.workflow import Edge, Node, NodeType, Workflow


class NodeStates(Protocol):
    """Where the nodes of a job stand: a job, or what somebody foresees."""

    workflow: Workflow

    def find(self, node_id: str) -> NodeState | None:
        """The node's state, or None while it is pending."""


class EdgeState(Enum):
    """What became of an edge."""

    OPEN = "open"
    ALIVE = "alive"
    DEAD = "dead"
    BROKEN = "broken"


class Verdict(Enum):
    """What a pending node should do now."""

    WAIT = "wait"
    RUN = "run"
    SKIP_BRANCH = "branch"
    SKIP_FAILURE = "upstream_failed"


def edge_state(job: NodeStates, edge: Edge, target: Node) -> EdgeState:
    """How this edge stands."""
    source = job.find(edge.source)
    if source is None:
        return EdgeState.OPEN
    match source.status:
        case "completed":
            if edge.branches is not None and source.taken_branch not in edge.branches:
                return EdgeState.DEAD
            definition = job.workflow.nodes[edge.source]
            if source.failed and definition.required and target.type is not NodeType.FAN_IN:
                return EdgeState.BROKEN
            return EdgeState.ALIVE
        case "skipped":
            return EdgeState.BROKEN if source.skip_reason == Verdict.SKIP_FAILURE.value else EdgeState.DEAD
        case "failed":
            if job.workflow.nodes[edge.source].required:
                return EdgeState.BROKEN
            return (
                EdgeState.ALIVE if edge.branches is None else EdgeState.DEAD
            )  # a choice that failed chose nothing
        case "cancelled":
            return EdgeState.BROKEN
    return EdgeState.OPEN


def verdict(job: NodeStates, node: Node) -> Verdict:
    """Wait, run or be skipped. Skipped counts as done for all_of and not for any_of.

    Gates are asked first, then any_of, then all_of; an earlier answer that is still open is waited for.
    So the order in which the sources end cannot change what becomes of the node.
    """
    if not node.all_of and not node.any_of:
        return Verdict.RUN
    all_ends = [edge_state(job, edge, node) for edge in node.all_of]
    if not node.any_of and EdgeState.DEAD not in all_ends and EdgeState.BROKEN not in all_ends:
        return Verdict.WAIT if EdgeState.OPEN in all_ends else Verdict.RUN  # most nodes
    any_ends = [edge_state(job, edge, node) for edge in node.any_of]
    if node.type is NodeType.END:
        return _end_verdict(all_ends, any_ends)
    gates = [end for end, edge in zip(all_ends, node.all_of, strict=True) if edge.is_gate]
    return _gate_verdict(gates) or _any_verdict(any_ends) or _all_verdict(all_ends, is_alone=not any_ends)


def dependencies_met(job: NodeStates, node: Node) -> list[str]:
    """The nodes that let this one run: all of its all_of, and those of its any_of that did their work."""
    needed = {edge.source for edge in node.all_of}
    needed |= {edge.source for edge in node.any_of if edge_state(job, edge, node) is EdgeState.ALIVE}
    return [name for name in node.predecessors if name in needed]


def _gate_verdict(ends: list[EdgeState]) -> Verdict | None:
    """A node whose branch was not taken is not wanted, whatever became of the rest."""
    if EdgeState.DEAD in ends:
        return Verdict.SKIP_BRANCH
    return Verdict.WAIT if EdgeState.OPEN in ends else None


def _any_verdict(ends: list[EdgeState]) -> Verdict | None:
    if not ends or EdgeState.ALIVE in ends:
        return None
    if EdgeState.OPEN in ends:
        return Verdict.WAIT
    return Verdict.SKIP_FAILURE if EdgeState.BROKEN in ends else Verdict.SKIP_BRANCH


def _all_verdict(ends: list[EdgeState], *, is_alone: bool) -> Verdict:
    if EdgeState.BROKEN in ends:
        return Verdict.SKIP_FAILURE
    if EdgeState.OPEN in ends:
        return Verdict.WAIT
    is_unwanted = is_alone and EdgeState.ALIVE not in ends
    return Verdict.SKIP_BRANCH if is_unwanted else Verdict.RUN


def _end_verdict(all_ends: list[EdgeState], any_ends: list[EdgeState]) -> Verdict:
    """An end node is never skipped: it waits until nothing before it is open."""
    if EdgeState.OPEN in all_ends or (EdgeState.OPEN in any_ends and EdgeState.ALIVE not in any_ends):
        return Verdict.WAIT
    return Verdict.RUN
