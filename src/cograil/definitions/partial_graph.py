"""A graph in which some edges are unresolved, and the statements about it that are certain.

Every result holds for every way to correct the unresolved edges that creates no cycle.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from cograil.definitions.edges import UnlinkedNodes
from cograil.definitions.graph import Graph
from cograil.definitions.unresolved_edges import Doubts
from cograil.model.workflow import Edge, NodeType


class PartialGraph:
    """The graph with all possible edges, and the graph with the certain edges only."""

    def __init__(self, unlinked_nodes: UnlinkedNodes, graph: Graph, doubts: Doubts) -> None:
        self.graph = graph
        self._unlinked_nodes = unlinked_nodes
        self._doubts = doubts
        self._may_precede: dict[str, int] = {}
        self._may_be_before: dict[str, int] = {}

    def may_come_before(self, source: str, node_id: str) -> bool:
        """Return whether `source` comes before `node_id`, or may once the edges are corrected."""
        if self._is_at_or_behind(source, node_id):
            return False
        if node_id not in self._may_precede:
            self._may_precede[node_id] = self._possible_ancestors(node_id)
        return bool(self._may_precede[node_id] >> self.graph.index_of[source] & 1)

    def possible_sources(self, node_id: str) -> list[str]:
        """Return the possible direct predecessors of the node."""
        sources = set(self._possible.predecessors[node_id])
        sources.update(
            source for source in self._doubts.leads if self._may_lead(source, 1 << self._at(node_id))
        )
        if node_id in self._doubts.waits:
            sources.update(other for other in self.graph.edges if not self._is_at_or_behind(other, node_id))
        return [other for other in self.graph.edges if other in sources]

    def sure_sources(self, node_id: str) -> tuple[str, ...]:
        """Return the certain direct predecessors of the node."""
        return self._sure.predecessors[node_id]

    def may_be(self, node_id: str, kind: NodeType) -> bool:
        """Return whether the node has this type, or a type that could not be read."""
        return self._unlinked_nodes[node_id].node.type is kind or node_id in self._doubts.kinds

    @cached_property
    def _possible(self) -> Graph:
        if not self._doubts.edges:
            return self.graph
        more: dict[str, list[Edge]] = {node_id: [] for node_id in self.graph.edges}
        for source, target in self._doubts.edges:
            more[target].append(Edge(source))
        return Graph(
            {
                node_id: ((*all_of, *more[node_id]), any_of)
                for node_id, (all_of, any_of) in self.graph.edges.items()
            }
        )

    @cached_property
    def _sure(self) -> Graph:
        """Return the graph without the edges of cycles, one of which has to go, and without unresolved
        edges.
        """

        def stays(edge: Edge, node_id: str) -> bool:
            return node_id not in self._doubts.unsure and not self.graph.comes_before(node_id, edge.source)

        return Graph(
            {
                node_id: (
                    tuple(edge for edge in all_of if stays(edge, node_id)),
                    tuple(edge for edge in any_of if stays(edge, node_id)),
                )
                for node_id, (all_of, any_of) in self.graph.edges.items()
            }
        )

    @cached_property
    def _open(self) -> int:
        """Return the nodes that a `next` may precede: not the start, and none with its own `depends_on`."""
        return self._bits(
            node_id
            for node_id, unlinked in self._unlinked_nodes.items()
            if unlinked.depends_on is None and unlinked.node.type is not NodeType.START
        )

    @cached_property
    def _any_but_starts(self) -> int:
        return self._bits(
            node_id
            for node_id, unlinked in self._unlinked_nodes.items()
            if unlinked.node.type is not NodeType.START
        )

    def _possible_ancestors(self, node_id: str) -> int:
        """Return the possible ancestors of the node: on each path, at most one edge is an unresolved
        `next`.
        """
        ancestors = self._before(node_id)
        way = self._possible.ancestors[node_id] | 1 << self._at(node_id)
        for source in self._doubts.leads:
            if self._may_lead(source, way):
                ancestors |= self._before(source)
        return ancestors

    def _before(self, node_id: str) -> int:
        """Return the node, its ancestors, and the nodes that may precede these through an unresolved
        dependency.
        """
        if node_id not in self._may_be_before:
            way = before = self._possible.ancestors[node_id] | 1 << self._at(node_id)
            for waiting in self._doubts.waits:
                if way >> self._at(waiting) & 1:
                    before |= self._not_behind[waiting]
            self._may_be_before[node_id] = before
        return self._may_be_before[node_id]

    @cached_property
    def _not_behind(self) -> dict[str, int]:
        """Return, for each node with unresolved dependencies, the nodes it can depend on without a cycle."""
        return {
            waiting: self._bits(
                other for other in self.graph.edges if not self._is_at_or_behind(other, waiting)
            )
            for waiting in self._doubts.waits
        }

    def _may_lead(self, source: str, targets: int) -> bool:
        """Return whether an unresolved `next` may lead to one of these without leading back to an ancestor."""
        reachable = self._any_but_starts if self._doubts.leads[source] else self._open
        return bool(targets & reachable & ~self._sure.ancestors[source] & ~(1 << self._at(source)))

    def _is_at_or_behind(self, node_id: str, other: str) -> bool:
        return node_id == other or self._sure.comes_before(other, node_id)

    def _at(self, node_id: str) -> int:
        return self.graph.index_of[node_id]

    def _bits(self, node_ids: Iterable[str]) -> int:
        return sum(1 << self._at(node_id) for node_id in node_ids)
