"""Edges of the graph, from `next`, `branches` and `depends_on`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cograil.definitions.diagnostics import Diagnostics
from cograil.definitions.graph import Graph
from cograil.definitions.unlinked_nodes import Dependencies, NodeReference, UnlinkedNode
from cograil.model.workflow import Edge

IMPLIED_END = "END"
MAX_EDGES = 10_000

UnlinkedNodes = Mapping[str, UnlinkedNode]
Arrivals = dict[
    str, frozenset[str] | None
]  # predecessors of a node, each with the branches that lead to the node


def connect(unlinked_nodes: UnlinkedNodes, diagnostics: Diagnostics) -> Graph:
    """Build the graph. An edge to an unknown node is reported and left out."""
    arrivals = _arrivals(unlinked_nodes, diagnostics)
    graph = Graph(
        {
            node_id: _edges_into(unlinked, arrivals[node_id], unlinked_nodes, diagnostics)
            for node_id, unlinked in unlinked_nodes.items()
        }
    )
    count = sum(len(all_of) + len(any_of) for all_of, any_of in graph.edges.values())
    if count > MAX_EDGES:
        message = f"the workflow has {count} edges; at most {MAX_EDGES} are allowed"
        diagnostics.add("dag_too_large", message, "/nodes", at_key=True)
    return graph


def _arrivals(unlinked_nodes: UnlinkedNodes, diagnostics: Diagnostics) -> dict[str, Arrivals]:
    """Return the predecessors of each node by `next` or a branch, in the order of the file."""
    arrivals: dict[str, Arrivals] = {node_id: {} for node_id in unlinked_nodes}
    for source, unlinked in unlinked_nodes.items():
        for target in _known(unlinked.next, source, unlinked_nodes, diagnostics):
            arrivals[target.node_id][source] = None
        for name, target in unlinked.branch_targets:
            for known in _known((target,), source, unlinked_nodes, diagnostics):
                before = arrivals[known.node_id].get(source) or frozenset()
                arrivals[known.node_id][source] = before | {name}
    return arrivals


def _edges_into(
    unlinked: UnlinkedNode, arrivals: Arrivals, unlinked_nodes: UnlinkedNodes, diagnostics: Diagnostics
) -> tuple[tuple[Edge, ...], tuple[Edge, ...]]:
    """Return the all_of and any_of edges of one node, one per source.

    An explicit `depends_on` replaces edges by `next`, but never a branch. If `depends_on` omits the
    conditional, its branch still decides whether the node runs at all (a gate).
    """
    if unlinked.depends_on is None:
        return tuple(Edge(source, branches) for source, branches in arrivals.items()), ()
    wanted = _once(unlinked.depends_on, diagnostics)
    all_of, any_of = (
        [
            Edge(target.node_id, arrivals.get(target.node_id))
            for target in _known_sources(unlinked, part, unlinked_nodes, diagnostics)
        ]
        for part in (wanted.all_of, wanted.any_of)
    )
    named = {edge.source for edge in (*all_of, *any_of)}
    gates = [
        Edge(source, branches, is_gate=True)
        for source, branches in arrivals.items()
        if branches is not None and source not in named
    ]
    return (*all_of, *gates), tuple(any_of)


def _known(
    targets: Iterable[NodeReference], source: str, unlinked_nodes: UnlinkedNodes, diagnostics: Diagnostics
) -> Iterator[NodeReference]:
    """Yield the targets of `source` that exist. `END` without such a node is the end of the workflow."""
    for target in targets:
        if target.node_id == source:
            message = f"{source!r} points to itself; use `retry` to repeat a node"
            diagnostics.add("dag_self_dependency", message, target.pointer)
        elif target.node_id in unlinked_nodes:
            yield target
        elif target.node_id != IMPLIED_END:
            did_you_mean = (target.node_id, [*unlinked_nodes, IMPLIED_END])
            diagnostics.add(
                "dag_unknown_node",
                f"node {target.node_id!r} does not exist",
                target.pointer,
                did_you_mean=did_you_mean,
            )


def _known_sources(
    unlinked: UnlinkedNode,
    targets: Iterable[NodeReference],
    unlinked_nodes: UnlinkedNodes,
    diagnostics: Diagnostics,
) -> Iterator[NodeReference]:
    for target in targets:
        if target.node_id == unlinked.node.node_id:
            message = f"{target.node_id!r} depends on itself; use `retry` to repeat a node"
            diagnostics.add("dag_self_dependency", message, target.pointer)
        elif target.node_id in unlinked_nodes:
            yield target
        else:
            message = f"node {target.node_id!r} in depends_on does not exist"
            diagnostics.add(
                "dag_unknown_node",
                message,
                target.pointer,
                did_you_mean=(target.node_id, list(unlinked_nodes)),
            )


def _once(wanted: Dependencies, diagnostics: Diagnostics) -> Dependencies:
    """Return the dependencies without duplicates between both lists, which are reported."""
    needed = {target.node_id for target in wanted.all_of}
    for target in wanted.any_of:
        if target.node_id in needed:
            message = f"{target.node_id!r} is also in all_of; remove one of the two"
            diagnostics.add("dag_duplicate_edge", message, target.pointer)
    return Dependencies(
        wanted.all_of, tuple(target for target in wanted.any_of if target.node_id not in needed)
    )
