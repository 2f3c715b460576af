"""The graph of a workflow: its order, its cycles, what comes before what.

Nothing here recurses: a chain of 1,000 nodes is an ordinary workflow.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property

from cograil.model.workflow import Edge


class Graph:
    """The edges of every node: its all_of and its any_of. Nodes are in the order of the file."""

    def __init__(self, edges: Mapping[str, tuple[tuple[Edge, ...], tuple[Edge, ...]]]) -> None:
        self.edges = edges

    @cached_property
    def predecessors(self) -> dict[str, tuple[str, ...]]:
        """Whom each node waits for."""
        return {
            node_id: tuple(dict.fromkeys(edge.source for edge in (*all_of, *any_of)))
            for node_id, (all_of, any_of) in self.edges.items()
        }

    @cached_property
    def successors(self) -> dict[str, tuple[str, ...]]:
        """Who waits for each node."""
        found: dict[str, list[str]] = {node_id: [] for node_id in self.edges}
        for node_id, sources in self.predecessors.items():
            for source in sources:
                found[source].append(node_id)
        return {node_id: tuple(followers) for node_id, followers in found.items()}

    @cached_property
    def order(self) -> list[str]:
        """Predecessors first, else as in the file; without what is on a cycle or behind one."""
        return self._sorted(self.edges.keys())

    def comes_before(self, source: str, node_id: str) -> bool:
        """Whether `source` has ended, one way or another, before `node_id` may begin.

        Nodes on a cycle come before each other and before themselves.
        """
        return bool(self.ancestors[node_id] >> self.place[source] & 1)

    def cycles(self) -> Iterator[list[str]]:
        """Cycles that together explain why `order` is not complete; no node is in two of them."""
        left = set(self.edges).difference(self.order)
        while left:
            cycle = self._cycle_among(left)
            yield cycle
            left.difference_update(cycle)
            left.difference_update(self._sorted(left))

    @cached_property
    def place(self) -> dict[str, int]:
        """The bit of each node in `ancestors`."""
        return {node_id: index for index, node_id in enumerate(self.edges)}

    @cached_property
    def ancestors(self) -> dict[str, int]:
        """A bit for every ancestor: sets of names would take megabytes for a long chain."""
        found: dict[str, int] = {}
        in_order = set(self.order)
        on_or_behind_cycles = [node_id for node_id in self.edges if node_id not in in_order]
        for node_id in (*self.order, *on_or_behind_cycles):
            found[node_id] = 0
            for source in self.predecessors[node_id]:
                found[node_id] |= found.get(source, 0) | 1 << self.place[source]
        for between in on_or_behind_cycles:  # Warshall's algorithm: paths by way of one node more
            for node_id in on_or_behind_cycles:
                if found[node_id] >> self.place[between] & 1:
                    found[node_id] |= found[between]
        return found

    def _sorted(self, among: Collection[str]) -> list[str]:
        """Kahn's algorithm on a part of the graph."""
        names = [node_id for node_id in self.edges if node_id in among]
        place = {node_id: index for index, node_id in enumerate(names)}
        missing = {node_id: sum(s in place for s in self.predecessors[node_id]) for node_id in names}
        ready = [place[node_id] for node_id in names if not missing[node_id]]
        order: list[str] = []
        while ready:
            node_id = names[heapq.heappop(ready)]
            order.append(node_id)
            for follower in self.successors[node_id]:
                if follower in place:
                    missing[follower] -= 1
                    if not missing[follower]:
                        heapq.heappush(ready, place[follower])
        return order

    def _cycle_among(self, left: Collection[str]) -> list[str]:
        """Walk back from the first node that is left until a node comes up again."""
        node_id = next(node_id for node_id in self.edges if node_id in left)
        walk: dict[str, None] = {}
        while node_id not in walk:
            walk[node_id] = None
            node_id = next(source for source in self.predecessors[node_id] if source in left)
        backwards = list(walk)
        cycle = backwards[backwards.index(node_id) :][::-1]
        first = min(range(len(cycle)), key=lambda index: self.place[cycle[index]])
        return cycle[first:] + cycle[:first]
