"""What a workflow must keep beyond the shape of its parts: one start, no cycles, sound references."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cograil.definitions.drafts import Draft
from cograil.definitions.graph import Graph
from cograil.definitions.holes import Hole
from cograil.definitions.report import Report, child
from cograil.definitions.templates import CompiledTemplate
from cograil.model.workflow import InputSpec, NodeType

_EDGE = re.compile(r"/nodes/[^/]+/(next|branches|depends_on|type)(/.*)?")
_KEY_OF_NODE = re.compile(r"/nodes/[^/]+/[^/]+")

Drafts = Mapping[str, Draft]


def check_graph(drafts: Drafts, graph: Graph, report: Report) -> bool:
    """Report what is wrong with the graph; whether it can be trusted to hold every edge meant.

    Where a pointer was misspelt, a node that looks unreachable may not be: one mistake should not
    be reported as two.
    """
    is_sound = _edges_are_sound(report)
    for cycle in graph.cycles():
        is_sound = False
        listed = " -> ".join([*cycle, cycle[0]])
        message = f"these nodes wait for each other: {listed}; remove one of the edges"
        report.add("dag_cycle", message, child("/nodes", cycle[0]), at_key=True)
    starts = [node_id for node_id, draft in drafts.items() if draft.node.type is NodeType.START]
    _check_starts(starts, graph, report)
    if is_sound and len(starts) == 1:
        _check_reachable(starts[0], graph, report)
    if is_sound:
        _check_fan_ins(drafts, graph, report)
    return is_sound


def _edges_are_sound(report: Report) -> bool:
    return not report.spoiled and not any(
        _EDGE.fullmatch(problem.pointer)
        or (problem.code == "unknown_key" and _KEY_OF_NODE.fullmatch(problem.pointer))
        for problem in report.problems
    )


def _check_starts(starts: list[str], graph: Graph, report: Report) -> None:
    for second in starts[1:]:
        message = f"{starts[0]!r} is a start already; a workflow has one"
        report.add("dag_many_starts", message, child("/nodes", second), at_key=True)
    for start in starts:
        if graph.predecessors[start]:
            sources = ", ".join(graph.predecessors[start])
            message = f"nothing may lead to the start {start!r}, but {sources} does"
            report.add("dag_start_has_predecessors", message, child("/nodes", start), at_key=True)


def _check_reachable(start: str, graph: Graph, report: Report) -> None:
    reached = graph.reachable_from(start)
    for node_id in graph.edges:
        if node_id not in reached:
            message = f"{node_id!r} cannot be reached from the start {start!r}; let a node lead to it"
            report.add("dag_unreachable", message, child("/nodes", node_id), at_key=True)


def _check_fan_ins(drafts: Drafts, graph: Graph, report: Report) -> None:
    for node_id, draft in drafts.items():
        kinds = {drafts[source].node.type for source in graph.predecessors[node_id]}
        if draft.node.type is NodeType.FAN_IN and NodeType.FAN_OUT not in kinds:
            message = f"the fan_in {node_id!r} must directly follow a fan_out, whose results it collects"
            report.add("fan_in_without_fan_out", message, child("/nodes", node_id), at_key=True)


class _Trouble(NamedTuple):
    code: str
    message: str
    near: tuple[str, list[str]] | None = None


class References:
    """Checks what templates refer to."""

    def __init__(
        self, drafts: Drafts, graph: Graph | None, inputs: Mapping[str, InputSpec] | None, report: Report
    ) -> None:
        """Without a graph, only names are checked, not who comes before whom."""
        self._drafts = drafts
        self._graph = graph
        self._inputs = inputs
        self._report = report

    def check(self, hole: Hole) -> None:
        """Report every reference that cannot work, at the string that makes it."""
        if next(self._troubles(hole, hole.template), None) is None:
            return
        for template, pointer in hole.parts():
            for trouble in self._troubles(hole, template):
                self._report.add(trouble.code, trouble.message, pointer, near=trouble.near)

    def _troubles(self, hole: Hole, template: CompiledTemplate) -> Iterator[_Trouble]:
        yield from self._unknown_names(hole, template)
        for reference in sorted(template.references):
            if reference not in self._drafts:
                near = (reference, list(self._drafts))
                yield _Trouble("dag_unknown_node", f"there is no node {reference!r} to read from", near)
            elif self._graph and not self._graph.comes_before(reference, hole.node_id):
                message = f"{hole.node_id!r} cannot read from {reference!r}, which does not come before it"
                yield _Trouble("dag_not_an_ancestor", f"{message}; make it depend on that node")
        if template.uses_output and self._graph:
            yield from self._ambiguous_output(hole.node_id, self._graph)

    def _unknown_names(self, hole: Hole, template: CompiledTemplate) -> Iterator[_Trouble]:
        for name in sorted(template.names & {"item", "index"}):
            if not hole.in_children:
                message = f"{name} is known in the params of a fan_out's task only"
                yield _Trouble("template_undefined", message)
        for name in sorted(template.input_names):
            if self._inputs is not None and name not in self._inputs:
                message = f"the input {name!r} is not declared under `inputs`"
                yield _Trouble("unknown_input", message, (name, list(self._inputs)))

    @staticmethod
    def _ambiguous_output(node_id: str, graph: Graph) -> Iterator[_Trouble]:
        sources = graph.predecessors[node_id]
        if len(sources) == 1:
            return
        found = f"has {len(sources)}: {', '.join(sources[:5])}" if sources else "has none"
        message = f"`output` is that of the one node before, but {node_id!r} {found}; write nodes.<id>.output"
        yield _Trouble("output_ambiguous", message)
