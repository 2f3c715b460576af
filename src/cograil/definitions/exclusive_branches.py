"""Which nodes cannot both do their work: they are behind different branches of the same conditional."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import combinations

from cograil.definitions.graph import Graph
from cograil.model.workflow import Edge

MAX_SOURCES = 50  # among more, nothing is looked for
MAX_CHOICES = 32  # of so many conditionals, the nearest, it is known which branches they must have taken

Choices = dict[str, frozenset[str]]  # conditional -> one of these branches was taken


class ExclusiveBranches:
    """What must have been chosen for each node to run."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def is_one_of(self, sources: tuple[str, ...]) -> bool:
        """Whether at most one of these nodes can complete."""
        if len(sources) > MAX_SOURCES:
            return False
        return all(self._are_exclusive(one, other) for one, other in combinations(sources, 2))

    def _are_exclusive(self, one: str, other: str) -> bool:
        first, second = self._choices.get(one, {}), self._choices.get(other, {})
        return any(first[name].isdisjoint(second[name]) for name in first.keys() & second.keys())

    @cached_property
    def _choices(self) -> dict[str, Choices]:
        found: dict[str, Choices] = {}
        for node_id in self._graph.order:
            all_of, any_of = self._graph.edges[node_id]
            gates = [edge for edge in all_of if edge.is_gate]
            others = any_of or tuple(edge for edge in all_of if not edge.is_gate)
            choices = _either(_choices_of(edge, found) for edge in others) if others else {}
            for edge in gates:
                choices = _both(choices, _choices_of(edge, found))
            found[node_id] = dict(list(choices.items())[-MAX_CHOICES:])
        return found


def _choices_of(edge: Edge, found: dict[str, Choices]) -> Choices:
    """What must have been chosen for a node to run because of this edge."""
    before = found.get(edge.source, {})
    return before if edge.branches is None else _both(before, {edge.source: edge.branches})


def _both(one: Choices, other: Choices) -> Choices:
    return one | {name: one.get(name, branches) & branches for name, branches in other.items()}


def _either(alternatives: Iterable[Choices]) -> Choices:
    """What holds whichever of these it was."""
    first, *others = alternatives
    found = first
    for one in others:
        found = {name: found[name] | one[name] for name in found if name in one}
        if not found:
            break
    return found
