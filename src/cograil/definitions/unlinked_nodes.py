"""Nodes of a file before their references to other nodes are resolved."""

from __future__ import annotations

from dataclasses import dataclass

from cograil.definitions.diagnostics import child
from cograil.definitions.mapping_reader import MISSING, MappingReader
from cograil.model.workflow import Json, WorkflowNode
from cograil.strict_json import kind_of


@dataclass(frozen=True, slots=True)
class NodeReference:
    """A reference to a node, with its pointer in the file."""

    node_id: str
    pointer: str


@dataclass(frozen=True, slots=True)
class Dependencies:
    """An explicit `depends_on`."""

    all_of: tuple[NodeReference, ...] = ()
    any_of: tuple[NodeReference, ...] = ()


@dataclass(frozen=True, slots=True)
class UnlinkedNode:
    """A node without edges, and the references that define them."""

    node: WorkflowNode
    pointer: str
    next: tuple[NodeReference, ...] = ()
    branch_targets: tuple[tuple[str, NodeReference], ...] = ()  # with the names of the branches
    depends_on: Dependencies | None = None


def read_next(keys: MappingReader) -> tuple[NodeReference, ...]:
    """Return the targets under `next`: one name, several, or none."""
    return read_targets(keys, "next", may_be_empty=True)


def read_dependencies(keys: MappingReader) -> Dependencies | None:
    """Return `depends_on`: a name, a list (all of them), or a mapping with all_of and any_of."""
    if not isinstance(keys.get("depends_on"), dict):
        targets = read_targets(keys, "depends_on", hint=" or a mapping with all_of and any_of")
        return Dependencies(all_of=targets) if targets else None
    inner = MappingReader.of(keys.get("depends_on"), keys.at("depends_on"), keys.diagnostics)
    dependencies = Dependencies(read_targets(inner, "all_of"), read_targets(inner, "any_of"))
    if inner.get("all_of") is MISSING and inner.get("any_of") is MISSING:
        keys.diagnostics.add("missing_key", "depends_on needs all_of or any_of", inner.pointer, at_key=True)
    inner.close()
    return dependencies


def read_targets(
    keys: MappingReader, key: str, hint: str = "", *, may_be_empty: bool = False
) -> tuple[NodeReference, ...]:
    """Return the node names under a key. A duplicate is reported."""
    value = keys.get(key)
    if value is MISSING:
        return ()
    if isinstance(value, str):
        return (NodeReference(value, keys.at(key)),)
    if not isinstance(value, list):
        message = f"{key} must be the name of a node or a list of names{hint}, not {kind_of(value)}"
        keys.diagnostics.add("invalid_type", message, keys.at(key))
        return ()
    if not value and not may_be_empty:
        keys.diagnostics.add("invalid_value", f"{key} is empty; name a node or remove the key", keys.at(key))
    return _listed(keys, key, value)


def _listed(keys: MappingReader, key: str, values: list[Json]) -> tuple[NodeReference, ...]:
    targets: dict[str, NodeReference] = {}
    for index, value in enumerate(values):
        pointer = child(keys.at(key), index)
        if not isinstance(value, str):
            message = f"{key} must list names of nodes, not {kind_of(value)}"
            keys.diagnostics.add("invalid_type", message, pointer)
        elif value in targets:
            keys.diagnostics.add("dag_duplicate_edge", f"{value!r} is listed twice; remove one", pointer)
        else:
            targets[value] = NodeReference(value, pointer)
    return tuple(targets.values())
