"""Predict which nodes of a retry are certain to be skipped, before any of them runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cograil.engine.readiness import EdgeState, NextMove, edge_state, verdict
from cograil.model.job import NodeState
from cograil.model.workflow import Edge, Workflow


@dataclass
class SkipPrediction:
    """The nodes that the retry keeps, and those that are skipped because their branch was not taken.

    Every other node may run: a conditional that runs again or a `when` decides later.
    """

    workflow: Workflow
    known: Mapping[str, NodeState]
    skipped: dict[str, NodeState] = field(default_factory=dict)

    def find(self, node_id: str) -> NodeState | None:
        """Return the kept or predicted state of the node; None when it is open."""
        return self.known.get(node_id) or self.skipped.get(node_id)

    def untaken_branches(self, node_id: str) -> Iterator[Edge]:
        """Yield the untaken branches because of which this node is skipped."""
        seen, queue = {node_id}, deque([node_id])
        while queue:
            node = self.workflow.nodes[queue.popleft()]
            for edge in (*node.all_of, *node.any_of):
                if edge.source in self.skipped and edge.source not in seen:
                    seen.add(edge.source)
                    queue.append(edge.source)
                elif edge.branches is not None and edge_state(self, edge, node) is EdgeState.DEAD:
                    yield edge


def predict_skips(workflow: Workflow, known: Mapping[str, NodeState]) -> SkipPrediction:
    """Predict the skipped nodes from the states of the kept ones."""
    prediction = SkipPrediction(workflow, known)
    is_new = True
    while is_new:
        is_new = False
        for name, node in workflow.nodes.items():
            if prediction.find(name) is None and verdict(prediction, node) is NextMove.SKIP_BRANCH:
                prediction.skipped[name] = NodeState(name, "skipped", skip_reason=NextMove.SKIP_BRANCH.value)
                is_new = True
    return prediction
