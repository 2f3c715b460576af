"""Nodes that exclude each other, because they follow different branches of the same conditional."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import combinations

from cograil.definitions.graph import Graph
from cograil.model.workflow import Edge

MAX_SOURCES = 50  # more sources than this are not compared
MAX_CHOICES = 32  # conditionals remembered for each node, the nearest ones

Choices = dict[str, frozenset[str]]  # conditional -> one of these branches was taken


class ExclusiveBranches:
    """Knows which branches must be taken for each node to run."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def is_one_of(self, sources: tuple[str, ...]) -> bool:
        """Whether at most one of these nodes can complete."""
        if len(sources) > MAX_SOURCES:
            return False
        return all(self._are_exclusive(first, second) for first, second in combinations(sources, 2))

    def _are_exclusive(self, first_id: str, second_id: str) -> bool:
        first, second = self._choices.get(first_id, {}), self._choices.get(second_id, {})
        return any(first[name].isdisjoint(second[name]) for name in first.keys() & second.keys())

    @cached_property
    def _choices(self) -> dict[str, Choices]:
        choices_by_node: dict[str, Choices] = {}
        for node_id in self._graph.order:
            all_of, any_of = self._graph.edges[node_id]
            gates = [edge for edge in all_of if edge.is_gate]
            others = any_of or tuple(edge for edge in all_of if not edge.is_gate)
            choices = _either(_choices_of(edge, choices_by_node) for edge in others) if others else {}
            for edge in gates:
                choices = _both(choices, _choices_of(edge, choices_by_node))
            choices_by_node[node_id] = dict(list(choices.items())[-MAX_CHOICES:])
        return choices_by_node


def _choices_of(edge: Edge, choices_by_node: dict[str, Choices]) -> Choices:
    """Return the branches that must be taken for a node to run because of this edge."""
    before = choices_by_node.get(edge.source, {})
    return before if edge.branches is None else _both(before, {edge.source: edge.branches})


def _both(first: Choices, second: Choices) -> Choices:
    return first | {name: first.get(name, branches) & branches for name, branches in second.items()}


def _either(alternatives: Iterable[Choices]) -> Choices:
    """Return the choices that hold for every alternative."""
    common, *others = alternatives
    for choices in others:
        common = {name: common[name] | choices[name] for name in common if name in choices}
        if not common:
            break
    return common
