"""The ways out of a conditional, in each of the forms they may be written in.

A list, where each branch has its condition:        A mapping, by the value of one condition:

    condition_field: output.size                        condition: "{{ output.size > 100 }}"
    branches:                                           branches:
      - {name: small, condition: "< 100", next: a}        true: b
      - {name: large, default: true, next: b}             false: a

The list may also be a mapping from the names: `branches: {small: {condition: "< 100", next: a}, ...}`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from cograil.definitions.conditions import compile_match
from cograil.definitions.diagnostics import child
from cograil.definitions.mapping_reader import MISSING, MappingReader
from cograil.definitions.operators import as_choice, as_text
from cograil.definitions.template_collector import TemplateCollector
from cograil.definitions.templates import CompiledTemplate, compile_template
from cograil.definitions.unlinked_nodes import Target, read_next, read_targets
from cograil.model.evaluation_budget import Budget
from cograil.model.workflow import Branch, Json, Scope
from cograil.strict_json import kind_of

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class ParsedBranch:
    """A branch, with its targets where they stand in the file."""

    name: str
    test: CompiledTemplate | None
    targets: tuple[Target, ...]
    is_default: bool

    def branch(self) -> Branch:
        return Branch(self.name, self.test, tuple(target.node_id for target in self.targets))


def read_branches(node_id: str, keys: MappingReader, holes: TemplateCollector) -> tuple[ParsedBranch, ...]:
    """The branches of a conditional in the order they are tried, the default last."""
    written = keys.get("branches")
    if not keys.require("branches", "list where the node leads to, each with a condition"):
        return _without_branches(node_id, keys, holes)
    if _is_by_value(written):
        ways = _from_mapping(node_id, keys, MappingReader(written, keys.at("branches"), keys.report), holes)
    elif isinstance(written, list | dict):
        ways = _from_list(node_id, keys, written, holes)
    else:
        message = f"branches must be a list or a mapping, not {kind_of(written)}"
        keys.report.add("invalid_type", message, keys.at("branches"))
        return _without_branches(node_id, keys, holes)
    _check_default(keys, ways)
    return tuple(sorted(ways, key=lambda way: way.is_default))


def _without_branches(
    node_id: str, keys: MappingReader, holes: TemplateCollector
) -> tuple[ParsedBranch, ...]:
    """None; what decides between them is read all the same, for what is wrong with it is told as well."""
    condition = keys.text_or_none("condition")
    _read_field(node_id, keys, holes)
    if condition is not None:
        holes.expression(node_id, condition, keys.at("condition"))
    return ()


def _is_by_value(written: Json) -> bool:
    """Whether the branches are targets by the value of one condition."""
    return isinstance(written, dict) and not any(isinstance(way, dict) for way in written.values())


def _from_mapping(
    node_id: str, keys: MappingReader, written: MappingReader, holes: TemplateCollector
) -> list[ParsedBranch]:
    """Branches that are named by the value they are for."""
    values = [key for key, _, _ in written.items() if key != DEFAULT]
    subject = _read_value(node_id, keys, holes, is_boolean=set(values) <= {"true", "false"})
    ways = []
    for key in written.values:
        is_default = key == DEFAULT
        test = None if is_default or subject is None else compile_match(subject, key)
        ways.append(ParsedBranch(key, test, read_targets(written, key, may_be_empty=True), is_default))
    return ways


def _read_value(
    node_id: str, keys: MappingReader, holes: TemplateCollector, *, is_boolean: bool
) -> CompiledTemplate | None:
    """What decides between the branches of a mapping, as text: their keys are text too."""
    field, condition = _read_field(node_id, keys, holes), keys.text_or_none("condition")
    if keys.get("condition_field") is MISSING and keys.get("condition") is MISSING:
        message = "branches by value need a condition that gives the value"
        keys.report.add("missing_key", message, keys.pointer, at_key=True)
    elif keys.get("condition_field") is not MISSING and keys.get("condition") is not MISSING:
        message = "give condition_field or condition, not both"
        keys.report.add("invalid_value", message, keys.at("condition"), at_key=True)
    if condition is not None and is_boolean:
        field = holes.choice(node_id, condition, keys.at("condition"))
    elif condition is not None:
        field = holes.expression(node_id, condition, keys.at("condition"))
    return None if field is None else _as_text(field, is_boolean=is_boolean)


def _as_text(value: CompiledTemplate, *, is_boolean: bool) -> CompiledTemplate:
    def evaluate(scope: Scope, budget: Budget) -> str:
        rendered = value.evaluate(scope, budget)
        return as_text(as_choice(rendered) if is_boolean else rendered)

    return CompiledTemplate.of(evaluate, value.facts)


def _read_field(node_id: str, keys: MappingReader, holes: TemplateCollector) -> CompiledTemplate | None:
    text = keys.text_or_none("condition_field")
    return None if text is None else holes.condition_field(node_id, text, keys.at("condition_field"))


def _from_list(
    node_id: str, keys: MappingReader, written: list[Json] | dict[str, Json], holes: TemplateCollector
) -> list[ParsedBranch]:
    """Branches that each have a condition, and perhaps a name before them."""
    if keys.get("condition") is not MISSING:
        message = "here each branch has its own condition; a condition above needs a mapping of its values"
        keys.report.add("invalid_value", message, keys.at("condition"), at_key=True)
    subject = _read_field(node_id, keys, holes)
    if subject is None and keys.get("condition_field") is not MISSING:
        subject = compile_template(None)  # it was reported; that conditions look at it is right
    entries: dict[str | int, Json] = dict(
        written.items() if isinstance(written, dict) else enumerate(written)
    )
    sections = [
        MappingReader.of(value, child(keys.at("branches"), key), keys.report)
        for key, value in entries.items()
    ]
    ways = [
        _read_branch(node_id, section, holes, subject, key)
        for section, key in zip(sections, entries, strict=True)
    ]
    times = Counter(way.name for way in ways if not way.is_default)
    times.update({way.name for way in ways if way.is_default})  # that there are two is told elsewhere
    for way, section in zip(ways, sections, strict=True):
        if times[way.name] > 1:
            message = f"two branches are called {way.name!r}; names must differ"
            keys.report.add("duplicate_branch", message, section.pointer)
    return ways


def _read_branch(
    node_id: str,
    keys: MappingReader,
    holes: TemplateCollector,
    subject: CompiledTemplate | None,
    key: str | int,
) -> ParsedBranch:
    is_default = keys.flag("default", False)
    targets = read_next(keys)
    name = keys.text("name", DEFAULT if is_default and isinstance(key, int) else str(key), longest=64)
    test = None
    if is_default and keys.get("condition") is not MISSING:
        message = "the default branch has no condition: it is taken when no other is"
        keys.report.add("invalid_value", message, keys.at("condition"), at_key=True)
    elif not is_default and keys.require("condition", "say when this branch is taken, or `default: true`"):
        test = read_condition(node_id, keys, "condition", holes, subject)
    keys.close()
    return ParsedBranch(name, test, targets, is_default)


def read_condition(
    node_id: str,
    keys: MappingReader,
    key: str,
    holes: TemplateCollector,
    subject: CompiledTemplate | None = None,
) -> CompiledTemplate | None:
    """What stands under a key as a condition: an expression, with or without braces, or true or false.

    With a subject, true and false are what it must be equal to.
    """
    value = keys.get(key)
    text = str(value).lower() if isinstance(value, bool) else keys.text_or_none(key)
    return None if text is None else holes.condition(node_id, text, keys.at(key), subject)


def _check_default(keys: MappingReader, ways: list[ParsedBranch]) -> None:
    defaults = sum(way.is_default for way in ways)
    pointer = keys.at("branches")
    if defaults > 1:
        keys.report.add("many_default_branches", "only one branch may be the default", pointer, at_key=True)
    by_value = _is_by_value(keys.get("branches"))
    if not defaults and not (by_value and {"true", "false"} <= {way.name for way in ways}):
        message = "there must be a default branch" + (", or both true and false" if by_value else "")
        keys.report.add("no_default_branch", message, pointer, at_key=True)
