"""Checks of the whole workflow: one start, no cycles, valid references, no reserved names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cograil.definitions.diagnostics import Diagnostics, child
from cograil.definitions.exclusive_branches import ExclusiveBranches
from cograil.definitions.graph import Graph
from cograil.definitions.partial_graph import PartialGraph
from cograil.definitions.template_collector import CollectedTemplate
from cograil.definitions.templates import CompiledTemplate
from cograil.definitions.unlinked_nodes import UnlinkedNode
from cograil.model.handler_ownership import is_reserved_workflow, owner_of_handler
from cograil.model.workflow import InputSpec, NodeType

UnlinkedNodes = Mapping[str, UnlinkedNode]


def check_graph(unlinked_nodes: UnlinkedNodes, outlook: PartialGraph, diagnostics: Diagnostics) -> None:
    """Report problems of the graph, except those that fixing an unresolved edge may solve."""
    graph = outlook.graph
    for cycle in graph.cycles():
        listed = " -> ".join([*cycle, cycle[0]])
        message = f"the nodes form a cycle: {listed}; remove one of the edges"
        diagnostics.add("dag_cycle", message, child("/nodes", cycle[0]), at_key=True)
    starts = [node_id for node_id, unlinked in unlinked_nodes.items() if unlinked.node.type is NodeType.START]
    _check_starts(starts, graph, diagnostics)
    if starts:
        _check_reachable(starts, outlook, diagnostics)
    _check_fan_ins(unlinked_nodes, outlook, diagnostics)


def _check_starts(starts: list[str], graph: Graph, diagnostics: Diagnostics) -> None:
    for second in starts[1:]:
        message = f"{starts[0]!r} is already the start node; a workflow has one start node"
        diagnostics.add("dag_many_starts", message, child("/nodes", second), at_key=True)
    for start in starts:
        if graph.predecessors[start]:
            sources = ", ".join(graph.predecessors[start])
            message = f"the start node {start!r} must not have predecessors, but has {sources}"
            diagnostics.add("dag_start_has_predecessors", message, child("/nodes", start), at_key=True)


def _check_reachable(starts: list[str], outlook: PartialGraph, diagnostics: Diagnostics) -> None:
    for node_id in outlook.graph.edges:
        if node_id not in starts and not any(outlook.may_come_before(start, node_id) for start in starts):
            message = f"{node_id!r} cannot be reached from the start node {starts[0]!r}; add an edge to it"
            diagnostics.add("dag_unreachable", message, child("/nodes", node_id), at_key=True)


def _check_fan_ins(unlinked_nodes: UnlinkedNodes, outlook: PartialGraph, diagnostics: Diagnostics) -> None:
    for node_id, unlinked in unlinked_nodes.items():
        if unlinked.node.type is NodeType.FAN_IN and not any(
            outlook.may_be(source, NodeType.FAN_OUT) for source in outlook.possible_sources(node_id)
        ):
            message = f"the fan_in {node_id!r} must directly follow the fan_out whose results it collects"
            diagnostics.add("fan_in_without_fan_out", message, child("/nodes", node_id), at_key=True)


def check_recursion(workflow_id: str, unlinked_nodes: UnlinkedNodes, diagnostics: Diagnostics) -> None:
    """Report a workflow that starts itself. Longer cycles of subworkflows are detected at run time."""
    for unlinked in unlinked_nodes.values():
        inner = unlinked.node.subworkflow
        if inner is not None and inner.workflow_id == workflow_id:
            message = f"{workflow_id!r} starts itself, which would never end; name another workflow"
            diagnostics.add("dag_recursion", message, child(unlinked.pointer, "subworkflow") + "/workflow_id")


def check_owner(
    workflow_id: str, unlinked_nodes: Mapping[str, UnlinkedNode], app: str | None, diagnostics: Diagnostics
) -> None:
    """Report handlers and workflow ids that belong to another app; `app` publishes this file, if any."""
    if app is None and is_reserved_workflow(workflow_id):
        message = f"workflow ids that begin with 'cograil.' are reserved for apps; rename {workflow_id!r}"
        diagnostics.add("workflow_reserved", message, "/workflow_id")
    for node_id, unlinked in unlinked_nodes.items():
        owner = owner_of_handler(unlinked.node.handler)
        if owner is not None and owner != app:
            message = (
                f"handler {unlinked.node.handler!r} belongs to {owner!r} and runs only in jobs that {owner!r} "
                "starts; use another handler"
            )
            keys = "task/handler" if unlinked.node.type is NodeType.FAN_OUT else "handler"
            diagnostics.add("handler_reserved", message, f"/nodes/{node_id}/{keys}")


class _InvalidReference(NamedTuple):
    code: str
    message: str
    did_you_mean: tuple[str, list[str]] | None = None


class ReferenceChecker:
    """Checks the inputs and nodes that templates refer to."""

    def __init__(
        self,
        unlinked_nodes: UnlinkedNodes,
        outlook: PartialGraph,
        inputs: Mapping[str, InputSpec] | None,
        diagnostics: Diagnostics,
    ) -> None:
        self._unlinked_nodes = unlinked_nodes
        self._outlook = outlook
        self._inputs = inputs
        self._diagnostics = diagnostics
        self._exclusion = ExclusiveBranches(outlook.graph)

    def check(self, collected: CollectedTemplate) -> None:
        """Report every invalid reference at the string that contains it."""
        if next(self._invalid_references(collected, collected.template), None) is None:
            return
        for template, pointer in collected.parts():
            for invalid in self._invalid_references(collected, template):
                self._diagnostics.add(
                    invalid.code, invalid.message, pointer, did_you_mean=invalid.did_you_mean
                )

    def _invalid_references(
        self, collected: CollectedTemplate, template: CompiledTemplate
    ) -> Iterator[_InvalidReference]:
        yield from self._unknown_inputs(template)
        if collected.at_end:
            yield from self._unknown_at_end(template)
        elif collected.node_id is None:
            yield from self._more_than_inputs(template)
        else:
            yield from self._unknown_nodes(collected.node_id, template, in_children=collected.in_children)

    @staticmethod
    def _more_than_inputs(template: CompiledTemplate) -> Iterator[_InvalidReference]:
        for name in sorted(template.names - {"inputs"}):
            yield _InvalidReference("template_undefined", f"{name} is not available here; only inputs are")

    def _unknown_at_end(self, template: CompiledTemplate) -> Iterator[_InvalidReference]:
        for name in sorted(template.names - {"inputs", "nodes"}):
            yield _InvalidReference(
                "template_undefined", f"{name} is not available here; use nodes.<id>.output or inputs.<name>"
            )
        for reference in sorted(template.references):
            if reference not in self._unlinked_nodes:
                did_you_mean = (reference, list(self._unlinked_nodes))
                yield _InvalidReference(
                    "dag_unknown_node", f"node {reference!r} does not exist", did_you_mean
                )

    def _unknown_nodes(
        self, node_id: str, template: CompiledTemplate, *, in_children: bool
    ) -> Iterator[_InvalidReference]:
        for name in sorted(template.names & {"item", "index"}):
            if not in_children:
                message = f"{name} is available only in the params and limits of a fan_out's children"
                yield _InvalidReference("template_undefined", message)
        for reference in sorted(template.references):
            if reference not in self._unlinked_nodes:
                did_you_mean = (reference, list(self._unlinked_nodes))
                yield _InvalidReference(
                    "dag_unknown_node", f"node {reference!r} does not exist", did_you_mean
                )
            elif not self._outlook.may_come_before(reference, node_id):
                message = f"{node_id!r} cannot read from {reference!r}, which is not a predecessor"
                yield _InvalidReference("dag_not_an_ancestor", f"{message}; add it to depends_on")
        if template.uses_output:
            yield from self._ambiguous_output(node_id)

    def _unknown_inputs(self, template: CompiledTemplate) -> Iterator[_InvalidReference]:
        for name in sorted(template.input_names):
            if self._inputs is not None and name not in self._inputs:
                message = f"input {name!r} is not declared in `inputs`"
                yield _InvalidReference("unknown_input", message, (name, list(self._inputs)))

    def _ambiguous_output(self, node_id: str) -> Iterator[_InvalidReference]:
        sources = self._outlook.sure_sources(node_id)
        if len(sources) == 1 or (not sources and self._outlook.possible_sources(node_id)):
            return
        if sources and self._exclusion.is_one_of(sources):
            return
        predecessors = f"has {len(sources)} ({', '.join(sources[:5])})" if sources else "has none"
        if sources:
            predecessors += ", and more than one of them may complete"
        message = (
            f"`output` needs exactly one predecessor, but {node_id!r} {predecessors}; use nodes.<id>.output"
        )
        yield _InvalidReference("output_ambiguous", message)
