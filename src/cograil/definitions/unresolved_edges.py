"""Edges that a file contains but that cannot be resolved, for example because of a misspelt name.

A node behind a misspelt reference may look unreachable, and one mistake should not be reported twice. Only
what depends on that reference is uncertain; the rest of the graph is known.

A missing reference, or one that has to be removed, is not uncertain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from cograil.definitions.diagnostics import Diagnostics
from cograil.definitions.edges import IMPLIED_END, UnlinkedNodes
from cograil.definitions.graph import Graph
from cograil.definitions.template_collector import strings_in
from cograil.definitions.unlinked_nodes import Dependencies, UnlinkedNode
from cograil.errors import Problem
from cograil.model.workflow import Json, NodeType

_OUT = re.compile(r"next(/[0-9]+)?|branches(/[^/]+(/next)?(/[0-9]+)?)?")
_INTO = re.compile(r"depends_on(/.*)?")
_LOST = {"invalid_type", "duplicate_key"}  # problems in which the value in the file was not read
_NOT_NAMED = {"invalid_value", "missing_key"}  # a depends_on with an unknown name
_MERGE = "<<"
_MEANT = "; did you mean "  # the end of a message with a suggestion, see diagnostics.py


@dataclass(slots=True)
class Doubts:
    """The possible edges beyond those of the graph."""

    edges: set[tuple[str, str]] = field(default_factory=set)  # from, to: possible edges
    leads: dict[str, bool] = field(default_factory=dict)  # may lead to any node; True: by a branch
    waits: set[str] = field(default_factory=set)  # may depend on any node
    unsure: set[str] = field(default_factory=set)  # may ignore the nodes that lead to it by `next`
    kinds: set[str] = field(default_factory=set)  # the type could not be read


def find_doubts(
    unlinked_nodes: UnlinkedNodes, graph: Graph, document: Json, diagnostics: Diagnostics
) -> Doubts:
    """Return the uncertainties about edges that the problems so far imply."""
    written = document.get("nodes") if isinstance(document, dict) else None
    search = _Search(unlinked_nodes, graph, written if isinstance(written, dict) else {})
    for problem in diagnostics.problems:
        search.look_at(problem)
    for pointer in diagnostics.unreadable:
        search.look_at_spoiled(pointer)
    search.find_bare_dependencies()
    return search.doubts


class _Search:
    def __init__(self, unlinked_nodes: UnlinkedNodes, graph: Graph, written: dict[str, Json]) -> None:
        self.doubts = Doubts()
        self._unlinked_nodes = unlinked_nodes
        self._graph = graph
        self._written = written
        self._as_shown = {f"{name!r}?": name for name in (*unlinked_nodes, IMPLIED_END)}

    def look_at(self, problem: Problem) -> None:
        """Record what one problem leaves uncertain."""
        if problem.pointer in ("", "/nodes") and problem.code == "duplicate_key":
            self._lose_all()
        node_id, place = _split(problem.pointer)
        if node_id not in self._unlinked_nodes:
            return
        if problem.code == "unknown_key":
            self._look_at_key(node_id, place)
        elif problem.code == "dag_unknown_node":
            self._look_at_name(node_id, place, problem)
        elif problem.code in ("unknown_kind", "not_supported_yet") and place == "type":
            self._lose_kind(node_id)
        elif problem.code in _LOST or (problem.code in _NOT_NAMED and _INTO.fullmatch(place)):
            self._lose(node_id, place)

    def look_at_spoiled(self, pointer: str) -> None:
        """Record what is uncertain because a value could not be read; a value that is present was read."""
        if pointer in ("", "/nodes"):
            self._lose_all()
        node_id, place = _split(pointer)
        if node_id not in self._unlinked_nodes:
            return
        value = self._value(node_id, place)
        if place == _MERGE:
            self._lose(node_id, "")
        elif value is None:
            self._lose(node_id, place)

    def find_bare_dependencies(self) -> None:
        """Record nodes that depend only on themselves: once corrected, they follow the nodes that lead to
        them.
        """
        bare = {node_id for node_id, unlinked in self._unlinked_nodes.items() if _names_itself_only(unlinked)}
        for source, unlinked in self._unlinked_nodes.items():
            targets = {target.node_id for target in unlinked.next} & bare - {source}
            self.doubts.edges.update((source, target) for target in targets)

    def _lose_all(self) -> None:
        for node_id in self._unlinked_nodes:
            self._lose(node_id, "")

    def _lose(self, node_id: str, place: str) -> None:
        """Record that the value at this path of a node is unknown; "" is the whole node."""
        if place in ("", "type"):
            self._lose_kind(node_id)
        if not place or _OUT.fullmatch(place):
            self._lead(node_id, not place or place.startswith("branches"))
        if not place or _INTO.fullmatch(place):
            self._wait(node_id)

    def _lose_kind(self, node_id: str) -> None:
        self.doubts.kinds.add(node_id)
        written = self._written.get(node_id)
        if isinstance(written, dict):  # the branches of a possible conditional were not read
            for name in self._names(written.get("branches")):
                self._add_edge(node_id, name, by_branch=True)

    def _lead(self, node_id: str, by_branch: bool) -> None:
        self.doubts.leads[node_id] = by_branch or self.doubts.leads.get(node_id, False)

    def _wait(self, node_id: str) -> None:
        self.doubts.waits.add(node_id)
        if self._unlinked_nodes[node_id].depends_on is None:
            self.doubts.unsure.add(node_id)

    def _look_at_name(self, node_id: str, place: str, problem: Problem) -> None:
        """Record an unknown name: it means the suggested node, or without a suggestion any node."""
        by_branch = place.startswith("branches")
        name = self._name_at(node_id, problem.pointer)
        meant = self._as_shown.get(
            problem.message.rpartition(_MEANT)[2], ""
        )  # another search would be expensive
        if _INTO.fullmatch(place):
            if self._may_join(meant, node_id):
                self.doubts.edges.add((meant, node_id))
            else:
                self._wait(node_id)
        elif self._may_join(node_id, meant):
            self._add_edge(node_id, meant, by_branch=by_branch)
        elif IMPLIED_END not in (meant, name.upper()):
            self._lead(node_id, by_branch)

    def _name_at(self, node_id: str, pointer: str) -> str:
        unlinked = self._unlinked_nodes[node_id]
        wanted = unlinked.depends_on or Dependencies()
        targets = (
            *unlinked.next,
            *(target for _, target in unlinked.branch_targets),
            *wanted.all_of,
            *wanted.any_of,
        )
        return next(target.node_id for target in targets if target.pointer == pointer)

    def _may_join(self, source: str, target: str) -> bool:
        """Return whether the edge would be new and close no cycle."""
        if source == target or not {source, target} <= self._unlinked_nodes.keys():
            return False
        return not self._graph.comes_before(target, source) and source not in self._graph.predecessors[target]

    def _look_at_key(self, node_id: str, place: str) -> None:
        """Record an unknown key: it is an edge if it names nodes where an edge is possible."""
        value = self._value(node_id, place)
        top, _, below = place.partition("/")
        close = get_close_matches(top, ("next", "branches", "depends_on"), n=1)
        if not close and not isinstance(value, str | list):
            return
        if below and top not in ("branches", "depends_on"):
            return
        for name in self._names(value):
            if close != ["depends_on"]:
                self._add_edge(node_id, name, by_branch=close == ["branches"])
            if close in ([], ["depends_on"]) and name != node_id:
                self.doubts.edges.add((name, node_id))
                self.doubts.unsure.add(node_id)

    def _add_edge(self, source: str, target: str, *, by_branch: bool) -> None:
        """Add a possible edge. An explicit depends_on ignores `next`, but not branches."""
        unlinked = self._unlinked_nodes[target]
        if source == target or unlinked.node.type is NodeType.START:
            return
        if by_branch or unlinked.depends_on is None:
            self.doubts.edges.add((source, target))

    def _names(self, value: Json) -> Iterator[str]:
        return (text for text, _ in strings_in(value, "") if text in self._unlinked_nodes)

    def _value(self, node_id: str, place: str) -> Json:
        value: Any = self._written.get(node_id)
        for step in filter(None, place.split("/")):
            if isinstance(value, dict):
                value = value.get(_plain(step))
            elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
                value = value[int(step)]
            else:
                return None
        return value


def _names_itself_only(unlinked: UnlinkedNode) -> bool:
    wanted = unlinked.depends_on or Dependencies()
    return {target.node_id for target in (*wanted.all_of, *wanted.any_of)} == {unlinked.node.node_id}


def _split(pointer: str) -> tuple[str, str]:
    """Return the node at the start of a pointer, "" for none, and the rest of the pointer."""
    if not pointer.startswith("/nodes/"):
        return "", ""
    node, _, place = pointer.removeprefix("/nodes/").partition("/")
    return _plain(node), place


def _plain(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")
