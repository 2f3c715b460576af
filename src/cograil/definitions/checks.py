"""What a workflow must keep beyond the shape of its parts: one start, no cycles, sound references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cograil.definitions.diagnostics import Diagnostics, child
from cograil.definitions.exclusive_branches import ExclusiveBranches
from cograil.definitions.graph import Graph
from cograil.definitions.partial_graph import Outlook
from cograil.definitions.template_collector import CollectedTemplate
from cograil.definitions.templates import CompiledTemplate
from cograil.definitions.unlinked_nodes import UnlinkedNode
from cograil.model.workflow import InputSpec, NodeType

UnlinkedNodes = Mapping[str, UnlinkedNode]


def check_graph(drafts: UnlinkedNodes, outlook: Outlook, report: Diagnostics) -> None:
    """Report what is wrong with the graph, but not what may be right once a broken edge is mended."""
    graph = outlook.graph
    for cycle in graph.cycles():
        listed = " -> ".join([*cycle, cycle[0]])
        message = f"these nodes wait for each other: {listed}; remove one of the edges"
        report.add("dag_cycle", message, child("/nodes", cycle[0]), at_key=True)
    starts = [node_id for node_id, draft in drafts.items() if draft.node.type is NodeType.START]
    _check_starts(starts, graph, report)
    if starts:
        _check_reachable(starts, outlook, report)
    _check_fan_ins(drafts, outlook, report)


def _check_starts(starts: list[str], graph: Graph, report: Diagnostics) -> None:
    for second in starts[1:]:
        message = f"{starts[0]!r} is a start already; a workflow has one"
        report.add("dag_many_starts", message, child("/nodes", second), at_key=True)
    for start in starts:
        if graph.predecessors[start]:
            sources = ", ".join(graph.predecessors[start])
            message = f"nothing may lead to the start {start!r}, but {sources} does"
            report.add("dag_start_has_predecessors", message, child("/nodes", start), at_key=True)


def _check_reachable(starts: list[str], outlook: Outlook, report: Diagnostics) -> None:
    for node_id in outlook.graph.edges:
        if node_id not in starts and not any(outlook.may_come_before(start, node_id) for start in starts):
            message = f"{node_id!r} cannot be reached from the start {starts[0]!r}; let a node lead to it"
            report.add("dag_unreachable", message, child("/nodes", node_id), at_key=True)


def _check_fan_ins(drafts: UnlinkedNodes, outlook: Outlook, report: Diagnostics) -> None:
    for node_id, draft in drafts.items():
        if draft.node.type is NodeType.FAN_IN and not any(
            outlook.may_be(source, NodeType.FAN_OUT) for source in outlook.possible_sources(node_id)
        ):
            message = f"the fan_in {node_id!r} must directly follow a fan_out, whose results it collects"
            report.add("fan_in_without_fan_out", message, child("/nodes", node_id), at_key=True)


def check_recursion(workflow_id: str, drafts: UnlinkedNodes, report: Diagnostics) -> None:
    """A workflow that starts itself never ends; longer circles are found when they run."""
    for draft in drafts.values():
        inner = draft.node.subworkflow
        if inner is not None and inner.workflow_id == workflow_id:
            message = f"{workflow_id!r} would start itself without end; name another workflow"
            report.add("dag_recursion", message, child(draft.pointer, "subworkflow") + "/workflow_id")


class _Trouble(NamedTuple):
    code: str
    message: str
    near: tuple[str, list[str]] | None = None


class ReferenceChecker:
    """Checks what templates refer to."""

    def __init__(
        self,
        drafts: UnlinkedNodes,
        outlook: Outlook,
        inputs: Mapping[str, InputSpec] | None,
        report: Diagnostics,
    ) -> None:
        self._drafts = drafts
        self._outlook = outlook
        self._inputs = inputs
        self._report = report
        self._exclusion = ExclusiveBranches(outlook.graph)

    def check(self, hole: CollectedTemplate) -> None:
        """Report every reference that cannot work, at the string that makes it."""
        if next(self._troubles(hole, hole.template), None) is None:
            return
        for template, pointer in hole.parts():
            for trouble in self._troubles(hole, template):
                self._report.add(trouble.code, trouble.message, pointer, near=trouble.near)

    def _troubles(self, hole: CollectedTemplate, template: CompiledTemplate) -> Iterator[_Trouble]:
        yield from self._unknown_inputs(template)
        if hole.at_end:
            yield from self._unknown_at_end(template)
        elif hole.node_id is None:
            yield from self._more_than_inputs(template)
        else:
            yield from self._unknown_nodes(hole.node_id, template, in_children=hole.in_children)

    @staticmethod
    def _more_than_inputs(template: CompiledTemplate) -> Iterator[_Trouble]:
        for name in sorted(template.names - {"inputs"}):
            yield _Trouble(
                "template_undefined", f"{name} is not known here: a job begins with its inputs only"
            )

    def _unknown_at_end(self, template: CompiledTemplate) -> Iterator[_Trouble]:
        for name in sorted(template.names - {"inputs", "nodes"}):
            yield _Trouble(
                "template_undefined", f"{name} is not known here; write nodes.<id>.output or inputs.<name>"
            )
        for reference in sorted(template.references):
            if reference not in self._drafts:
                near = (reference, list(self._drafts))
                yield _Trouble("dag_unknown_node", f"there is no node {reference!r} to read from", near)

    def _unknown_nodes(
        self, node_id: str, template: CompiledTemplate, *, in_children: bool
    ) -> Iterator[_Trouble]:
        for name in sorted(template.names & {"item", "index"}):
            if not in_children:
                message = f"{name} is known for the children of a fan_out only: in their params and limits"
                yield _Trouble("template_undefined", message)
        for reference in sorted(template.references):
            if reference not in self._drafts:
                near = (reference, list(self._drafts))
                yield _Trouble("dag_unknown_node", f"there is no node {reference!r} to read from", near)
            elif not self._outlook.may_come_before(reference, node_id):
                message = f"{node_id!r} cannot read from {reference!r}, which does not come before it"
                yield _Trouble("dag_not_an_ancestor", f"{message}; make it depend on that node")
        if template.uses_output:
            yield from self._ambiguous_output(node_id)

    def _unknown_inputs(self, template: CompiledTemplate) -> Iterator[_Trouble]:
        for name in sorted(template.input_names):
            if self._inputs is not None and name not in self._inputs:
                message = f"the input {name!r} is not declared under `inputs`"
                yield _Trouble("unknown_input", message, (name, list(self._inputs)))

    def _ambiguous_output(self, node_id: str) -> Iterator[_Trouble]:
        sources = self._outlook.sure_sources(node_id)
        if len(sources) == 1 or (not sources and self._outlook.possible_sources(node_id)):
            return
        if sources and self._exclusion.is_one_of(sources):
            return
        found = f"has {len(sources)}: {', '.join(sources[:5])}" if sources else "has none"
        if sources:
            found += ", of which several may complete"
        message = f"`output` is that of the one node before, but {node_id!r} {found}; write nodes.<id>.output"
        yield _Trouble("output_ambiguous", message)
