"""Idempotency keys of a retry: a node keeps its key unless it had completed before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cograil.model.idempotency_keys import KeyRoots
from cograil.model.job import NodeState
from cograil.model.workflow import NodeType, Workflow, WorkflowNode


@dataclass(frozen=True, slots=True)
class Rerun:
    """An ended job, and the part of it that runs again: every node but `kept`, and open children of `reopened`.

    `completed_children` are those of fan-outs that run again as a whole. `named` is the node from which the
    retry starts; it may be a child.
    """

    nodes: Mapping[str, NodeState]
    kept: frozenset[str]
    reopened: frozenset[str]
    completed_children: Mapping[str, Sequence[str]]
    named: NodeState | None = None


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """The key roots of the new job (None: all keys are its own), and the nodes with the same and with new keys."""

    roots: bytes | None
    same: tuple[str, ...]
    new: tuple[str, ...]


def has_key(node: WorkflowNode) -> bool:
    """Whether the node has external effects under its idempotency key."""
    return bool(node.handler) or node.type is NodeType.SUBWORKFLOW


def plan_keys(workflow: Workflow, roots: KeyRoots, rerun: Rerun, job_id: str, *, is_new: bool) -> KeyPlan:
    """Return the keys of the new job `job_id` from the roots of the old one; all are new if `is_new`."""
    stays = rerun.kept | rerun.reopened
    rerun_nodes = [name for name, node in workflow.nodes.items() if has_key(node) and name not in stays]
    children = _children_to_rerun(workflow, rerun)
    names = (*rerun_nodes, *children)
    if is_new:
        return KeyPlan(None, (), names)
    renewed = [name for name in names if _had_completed(rerun, name)]
    for name in renewed:
        state = rerun.nodes.get(name)
        if state is not None and state.total is not None:
            roots.renew_children(job_id, name, state.total, rerun.completed_children.get(name, ()))
        else:
            roots.renew(job_id, [name])
    same = tuple(name for name in names if name not in renewed)
    return KeyPlan(roots.write(), same, tuple(renewed))


def _children_to_rerun(workflow: Workflow, rerun: Rerun) -> list[str]:
    """Return the fan-outs whose open children run again, and the named child."""
    names = [
        name
        for name in workflow.nodes
        if name in rerun.reopened and (rerun.nodes[name].failed or rerun.nodes[name].status != "completed")
    ]
    if rerun.named is not None and rerun.named.parent is not None and rerun.named.node_id not in names:
        names.append(rerun.named.node_id)
    return names


def _had_completed(rerun: Rerun, name: str) -> bool:
    if name in rerun.reopened:
        return False
    state = rerun.nodes.get(name)
    if state is None:
        return rerun.named is not None and rerun.named.node_id == name and rerun.named.status == "completed"
    if state.total is not None:
        return bool(rerun.completed_children.get(name))
    return state.status == "completed"
