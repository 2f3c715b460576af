"""Which idempotency keys the nodes of a retry have: those they had, unless they had completed before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cograil.model.idempotency_keys import KeyRoots
from cograil.model.job import NodeState
from cograil.model.workflow import Node, NodeType, Workflow


@dataclass(frozen=True, slots=True)
class Rerun:
    """A job that ended, and what of it runs again: all that is not kept, and open children of `reopened`.

    `completed_children` are those of fan-outs that run again as a whole; `named` is the node from which it
    runs again, which may be a child.
    """

    nodes: Mapping[str, NodeState]
    kept: frozenset[str]
    reopened: frozenset[str]
    completed_children: Mapping[str, Sequence[str]]
    named: NodeState | None = None


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """What is kept with the new job (None: its keys are its own), and which nodes run with which keys."""

    roots: bytes | None
    same: tuple[str, ...]
    new: tuple[str, ...]


def has_key(node: Node) -> bool:
    """Whether something is done outside for this node, under its key."""
    return bool(node.handler) or node.type is NodeType.SUBWORKFLOW


def plan_keys(workflow: Workflow, roots: KeyRoots, again: Rerun, job_id: str, *, is_new: bool) -> KeyPlan:
    """The keys of a new job with this id, of one that has these roots; all are new if `is_new`."""
    stays = again.kept | again.reopened
    rerun = [name for name, node in workflow.nodes.items() if has_key(node) and name not in stays]
    children = _children_again(workflow, again)
    names = (*rerun, *children)
    if is_new:
        return KeyPlan(None, (), names)
    renewed = [name for name in names if _had_completed(again, name)]
    for name in renewed:
        state = again.nodes.get(name)
        if state is not None and state.total is not None:
            roots.renew_children(job_id, name, state.total, again.completed_children.get(name, ()))
        else:
            roots.renew(job_id, [name])
    same = tuple(name for name in names if name not in renewed)
    return KeyPlan(roots.write(), same, tuple(renewed))


def _children_again(workflow: Workflow, again: Rerun) -> list[str]:
    """Fan-outs of which open children run again, and the child that was named if it had completed."""
    found = [
        name
        for name in workflow.nodes
        if name in again.reopened and (again.nodes[name].failed or again.nodes[name].status != "completed")
    ]
    if again.named is not None and again.named.parent is not None and again.named.node_id not in found:
        found.append(again.named.node_id)
    return found


def _had_completed(again: Rerun, name: str) -> bool:
    if name in again.reopened:
        return False
    state = again.nodes.get(name)
    if state is None:
        return again.named is not None and again.named.node_id == name and again.named.status == "completed"
    if state.total is not None:
        return bool(again.completed_children.get(name))
    return state.status == "completed"
