"""From pointers between nodes to edges: who waits for whom, and under which branches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cograil.definitions.diagnostics import Diagnostics
from cograil.definitions.graph import Graph
from cograil.definitions.unlinked_nodes import Dependencies, Target, UnlinkedNode
from cograil.model.workflow import Edge

IMPLIED_END = "END"
MAX_EDGES = 10_000

UnlinkedNodes = Mapping[str, UnlinkedNode]
Arrivals = dict[str, frozenset[str] | None]  # who leads to a node, and by which of its branches


def connect(drafts: UnlinkedNodes, report: Diagnostics) -> Graph:
    """Follow every pointer; one that leads nowhere is reported and left out."""
    arrivals = _arrivals(drafts, report)
    graph = Graph(
        {node_id: _edges_into(draft, arrivals[node_id], drafts, report) for node_id, draft in drafts.items()}
    )
    count = sum(len(all_of) + len(any_of) for all_of, any_of in graph.edges.values())
    if count > MAX_EDGES:
        message = f"the workflow has {count} edges; at most {MAX_EDGES} are allowed"
        report.add("dag_too_large", message, "/nodes", at_key=True)
    return graph


def _arrivals(drafts: UnlinkedNodes, report: Diagnostics) -> dict[str, Arrivals]:
    """What leads to each node by `next` or by a branch, in the order of the file."""
    arrivals: dict[str, Arrivals] = {node_id: {} for node_id in drafts}
    for source, draft in drafts.items():
        for target in _known(draft.next, source, drafts, report):
            arrivals[target.node_id][source] = None
        for name, target in draft.branch_targets:
            for known in _known((target,), source, drafts, report):
                before = arrivals[known.node_id].get(source) or frozenset()
                arrivals[known.node_id][source] = before | {name}
    return arrivals


def _edges_into(
    draft: UnlinkedNode, arrivals: Arrivals, drafts: UnlinkedNodes, report: Diagnostics
) -> tuple[tuple[Edge, ...], tuple[Edge, ...]]:
    """The all_of and any_of edges of one node, one per source.

    An explicit `depends_on` replaces what leads here by `next`, but never a branch: where it leaves
    the conditional out, the branch still decides whether the node runs at all (a gate).
    """
    if draft.depends_on is None:
        return tuple(Edge(source, branches) for source, branches in arrivals.items()), ()
    wanted = _once(draft.depends_on, report)
    all_of, any_of = (
        [
            Edge(target.node_id, arrivals.get(target.node_id))
            for target in _known_sources(draft, part, drafts, report)
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
    targets: Iterable[Target], source: str, drafts: UnlinkedNodes, report: Diagnostics
) -> Iterator[Target]:
    """The pointers of `source` that lead to another node; `END` may also mean just the end."""
    for target in targets:
        if target.node_id == source:
            message = f"{source!r} leads to itself; to try a step again give it `retry`"
            report.add("dag_self_dependency", message, target.pointer)
        elif target.node_id in drafts:
            yield target
        elif target.node_id != IMPLIED_END:
            near = (target.node_id, [*drafts, IMPLIED_END])
            report.add("dag_unknown_node", f"there is no node {target.node_id!r}", target.pointer, near=near)


def _known_sources(
    draft: UnlinkedNode, targets: Iterable[Target], drafts: UnlinkedNodes, report: Diagnostics
) -> Iterator[Target]:
    for target in targets:
        if target.node_id == draft.node.node_id:
            message = f"{target.node_id!r} depends on itself; to try a step again give it `retry`"
            report.add("dag_self_dependency", message, target.pointer)
        elif target.node_id in drafts:
            yield target
        else:
            message = f"there is no node {target.node_id!r} to depend on"
            report.add("dag_unknown_node", message, target.pointer, near=(target.node_id, list(drafts)))


def _once(wanted: Dependencies, report: Diagnostics) -> Dependencies:
    """The dependencies without what stands in both lists."""
    needed = {target.node_id for target in wanted.all_of}
    for target in wanted.any_of:
        if target.node_id in needed:
            message = f"{target.node_id!r} is in all_of already; name it once"
            report.add("dag_duplicate_edge", message, target.pointer)
    return Dependencies(
        wanted.all_of, tuple(target for target in wanted.any_of if target.node_id not in needed)
    )
