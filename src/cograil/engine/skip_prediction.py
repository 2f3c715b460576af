"""What will surely be skipped in a job that takes over nodes of another: before anything of it runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cograil.engine.readiness import EdgeState, Verdict, edge_state, verdict
from cograil.model.job import NodeState
from cograil.model.workflow import Edge, Workflow


@dataclass
class Foresight:
    """The nodes that are taken over, and those that will be skipped for want of a branch.

    All others may run, which is not known before: a choice that is made again, a `when`.
    """

    workflow: Workflow
    known: Mapping[str, NodeState]
    skipped: dict[str, NodeState] = field(default_factory=dict)

    def find(self, node_id: str) -> NodeState | None:
        """Its state, as far as it is known."""
        return self.known.get(node_id) or self.skipped.get(node_id)

    def choices_against(self, node_id: str) -> Iterator[Edge]:
        """The branches that were not taken, and for want of which this node will be skipped."""
        seen, queue = {node_id}, deque([node_id])
        while queue:
            node = self.workflow.nodes[queue.popleft()]
            for edge in (*node.all_of, *node.any_of):
                if edge.source in self.skipped and edge.source not in seen:
                    seen.add(edge.source)
                    queue.append(edge.source)
                elif edge.branches is not None and edge_state(self, edge, node) is EdgeState.DEAD:
                    yield edge


def foresee(workflow: Workflow, known: Mapping[str, NodeState]) -> Foresight:
    """What these nodes, which stay as they are, make of all the others."""
    foresight = Foresight(workflow, known)
    is_new = True
    while is_new:
        is_new = False
        for name, node in workflow.nodes.items():
            if foresight.find(name) is None and verdict(foresight, node) is Verdict.SKIP_BRANCH:
                foresight.skipped[name] = NodeState(name, "skipped", skip_reason=Verdict.SKIP_BRANCH.value)
                is_new = True
    return foresight
