"""The graph of a workflow: topological order, cycles and ancestors.

Nothing here recurses: a chain of 1,000 nodes is an ordinary workflow.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property

from cograil.model.workflow import Edge


class Graph:
    """The all_of and any_of edges of every node. Nodes are in the order of the file."""

    def __init__(self, edges: Mapping[str, tuple[tuple[Edge, ...], tuple[Edge, ...]]]) -> None:
        self.edges = edges

    @cached_property
    def predecessors(self) -> dict[str, tuple[str, ...]]:
        """The direct predecessors of each node."""
        return {
            node_id: tuple(dict.fromkeys(edge.source for edge in (*all_of, *any_of)))
            for node_id, (all_of, any_of) in self.edges.items()
        }

    @cached_property
    def successors(self) -> dict[str, tuple[str, ...]]:
        """The direct successors of each node."""
        followers_of: dict[str, list[str]] = {node_id: [] for node_id in self.edges}
        for node_id, sources in self.predecessors.items():
            for source in sources:
                followers_of[source].append(node_id)
        return {node_id: tuple(followers) for node_id, followers in followers_of.items()}

    @cached_property
    def order(self) -> list[str]:
        """Topological order, else as in the file; without nodes on a cycle or after one."""
        return self._sorted(self.edges.keys())

    def comes_before(self, source: str, node_id: str) -> bool:
        """Whether `source` is an ancestor of `node_id`.

        Nodes on a cycle are ancestors of each other and of themselves.
        """
        return bool(self.ancestors[node_id] >> self.index_of[source] & 1)

    def cycles(self) -> Iterator[list[str]]:
        """Yield disjoint cycles that together explain why `order` is not complete."""
        left = set(self.edges).difference(self.order)
        while left:
            cycle = self._cycle_among(left)
            yield cycle
            left.difference_update(cycle)
            left.difference_update(self._sorted(left))

    @cached_property
    def index_of(self) -> dict[str, int]:
        """The bit of each node in `ancestors`."""
        return {node_id: index for index, node_id in enumerate(self.edges)}

    @cached_property
    def ancestors(self) -> dict[str, int]:
        """The ancestors of each node as a bit set: sets of names take megabytes for a long chain."""
        ancestors: dict[str, int] = {}
        in_order = set(self.order)
        on_or_behind_cycles = [node_id for node_id in self.edges if node_id not in in_order]
        for node_id in (*self.order, *on_or_behind_cycles):
            ancestors[node_id] = 0
            for source in self.predecessors[node_id]:
                ancestors[node_id] |= ancestors.get(source, 0) | 1 << self.index_of[source]
        for between in on_or_behind_cycles:  # Warshall's algorithm: paths through one more node
            for node_id in on_or_behind_cycles:
                if ancestors[node_id] >> self.index_of[between] & 1:
                    ancestors[node_id] |= ancestors[between]
        return ancestors

    def _sorted(self, among: Collection[str]) -> list[str]:
        """Sort a part of the graph by Kahn's algorithm."""
        names = [node_id for node_id in self.edges if node_id in among]
        index_of = {node_id: index for index, node_id in enumerate(names)}
        missing = {node_id: sum(s in index_of for s in self.predecessors[node_id]) for node_id in names}
        ready = [index_of[node_id] for node_id in names if not missing[node_id]]
        order: list[str] = []
        while ready:
            node_id = names[heapq.heappop(ready)]
            order.append(node_id)
            for follower in self.successors[node_id]:
                if follower in index_of:
                    missing[follower] -= 1
                    if not missing[follower]:
                        heapq.heappush(ready, index_of[follower])
        return order

    def _cycle_among(self, left: Collection[str]) -> list[str]:
        """Walk back from the first remaining node until a node repeats."""
        node_id = next(node_id for node_id in self.edges if node_id in left)
        walk: dict[str, None] = {}
        while node_id not in walk:
            walk[node_id] = None
            node_id = next(source for source in self.predecessors[node_id] if source in left)
        backwards = list(walk)
        cycle = backwards[backwards.index(node_id) :][::-1]
        first = min(range(len(cycle)), key=lambda index: self.index_of[cycle[index]])
        return cycle[first:] + cycle[:first]
