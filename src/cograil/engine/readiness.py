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


class Standing(Protocol):
    """Where the nodes of a job stand: a board, or what somebody foresees."""

    workflow: Workflow

    def find(self, node_id: str) -> NodeState | None:
        """The node's state, or None while it is pending."""


class Ends(Enum):
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


def end_of(board: Standing, edge: Edge, target: Node) -> Ends:
    """How this edge stands."""
    source = board.find(edge.source)
    if source is None:
        return Ends.OPEN
    match source.status:
        case "completed":
            if edge.branches is not None and source.taken_branch not in edge.branches:
                return Ends.DEAD
            definition = board.workflow.nodes[edge.source]
            if source.failed and definition.required and target.type is not NodeType.FAN_IN:
                return Ends.BROKEN
            return Ends.ALIVE
        case "skipped":
            return Ends.BROKEN if source.skip_reason == Verdict.SKIP_FAILURE.value else Ends.DEAD
        case "failed":
            if board.workflow.nodes[edge.source].required:
                return Ends.BROKEN
            return Ends.ALIVE if edge.branches is None else Ends.DEAD  # a choice that failed chose nothing
        case "cancelled":
            return Ends.BROKEN
    return Ends.OPEN


def verdict(board: Standing, node: Node) -> Verdict:
    """Wait, run or be skipped. Skipped counts as done for all_of and not for any_of.

    Gates are asked first, then any_of, then all_of; an earlier answer that is still open is waited for.
    So the order in which the sources end cannot change what becomes of the node.
    """
    if not node.all_of and not node.any_of:
        return Verdict.RUN
    all_ends = [end_of(board, edge, node) for edge in node.all_of]
    if not node.any_of and Ends.DEAD not in all_ends and Ends.BROKEN not in all_ends:
        return Verdict.WAIT if Ends.OPEN in all_ends else Verdict.RUN  # most nodes
    any_ends = [end_of(board, edge, node) for edge in node.any_of]
    if node.type is NodeType.END:
        return _end_verdict(all_ends, any_ends)
    gates = [end for end, edge in zip(all_ends, node.all_of, strict=True) if edge.is_gate]
    return _gate_verdict(gates) or _any_verdict(any_ends) or _all_verdict(all_ends, is_alone=not any_ends)


def dependencies_met(board: Standing, node: Node) -> list[str]:
    """The nodes that let this one run: all of its all_of, and those of its any_of that did their work."""
    needed = {edge.source for edge in node.all_of}
    needed |= {edge.source for edge in node.any_of if end_of(board, edge, node) is Ends.ALIVE}
    return [name for name in node.predecessors if name in needed]


def _gate_verdict(ends: list[Ends]) -> Verdict | None:
    """A node whose branch was not taken is not wanted, whatever became of the rest."""
    if Ends.DEAD in ends:
        return Verdict.SKIP_BRANCH
    return Verdict.WAIT if Ends.OPEN in ends else None


def _any_verdict(ends: list[Ends]) -> Verdict | None:
    if not ends or Ends.ALIVE in ends:
        return None
    if Ends.OPEN in ends:
        return Verdict.WAIT
    return Verdict.SKIP_FAILURE if Ends.BROKEN in ends else Verdict.SKIP_BRANCH


def _all_verdict(ends: list[Ends], *, is_alone: bool) -> Verdict:
    if Ends.BROKEN in ends:
        return Verdict.SKIP_FAILURE
    if Ends.OPEN in ends:
        return Verdict.WAIT
    is_unwanted = is_alone and Ends.ALIVE not in ends
    return Verdict.SKIP_BRANCH if is_unwanted else Verdict.RUN


def _end_verdict(all_ends: list[Ends], any_ends: list[Ends]) -> Verdict:
    """An end node is never skipped: it waits until nothing before it is open."""
    if Ends.OPEN in all_ends or (Ends.OPEN in any_ends and Ends.ALIVE not in any_ends):
        return Verdict.WAIT
    return Verdict.RUN
