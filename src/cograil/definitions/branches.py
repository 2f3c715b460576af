"""The branches of a conditional, in each form that a file may use.

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
from cograil.definitions.unlinked_nodes import NodeReference, read_next, read_targets
from cograil.model.evaluation_budget import Budget
from cograil.model.workflow import Branch, Json, Scope
from cograil.strict_json import kind_of

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class ParsedBranch:
    """A branch with its targets and their pointers in the file."""

    name: str
    test: CompiledTemplate | None
    targets: tuple[NodeReference, ...]
    is_default: bool

    def branch(self) -> Branch:
        return Branch(self.name, self.test, tuple(target.node_id for target in self.targets))


def read_branches(
    node_id: str, keys: MappingReader, templates: TemplateCollector
) -> tuple[ParsedBranch, ...]:
    """Return the branches of a conditional in the order of evaluation, the default last."""
    value = keys.get("branches")
    if not keys.require("branches", "list the branches, each with a condition"):
        return _without_branches(node_id, keys, templates)
    if _is_by_value(value):
        parsed_branches = _from_mapping(
            node_id, keys, MappingReader(value, keys.at("branches"), keys.diagnostics), templates
        )
    elif isinstance(value, list | dict):
        parsed_branches = _from_list(node_id, keys, value, templates)
    else:
        message = f"branches must be a list or a mapping, not {kind_of(value)}"
        keys.diagnostics.add("invalid_type", message, keys.at("branches"))
        return _without_branches(node_id, keys, templates)
    _check_default(keys, parsed_branches)
    return tuple(sorted(parsed_branches, key=lambda parsed_branch: parsed_branch.is_default))


def _without_branches(
    node_id: str, keys: MappingReader, templates: TemplateCollector
) -> tuple[ParsedBranch, ...]:
    """Return no branches. The condition is still compiled, so that its problems are reported too."""
    condition = keys.text_or_none("condition")
    _read_field(node_id, keys, templates)
    if condition is not None:
        templates.expression(node_id, condition, keys.at("condition"))
    return ()


def _is_by_value(value: Json) -> bool:
    """Whether the branches map values of one condition to targets."""
    return isinstance(value, dict) and not any(
        isinstance(parsed_branch, dict) for parsed_branch in value.values()
    )


def _from_mapping(
    node_id: str, keys: MappingReader, value: MappingReader, templates: TemplateCollector
) -> list[ParsedBranch]:
    """Read branches that are named by the value that selects them."""
    values = [key for key, _, _ in value.items() if key != DEFAULT]
    subject = _read_value(node_id, keys, templates, is_boolean=set(values) <= {"true", "false"})
    parsed_branches = []
    for key in value.values:
        is_default = key == DEFAULT
        test = None if is_default or subject is None else compile_match(subject, key)
        parsed_branches.append(
            ParsedBranch(key, test, read_targets(value, key, may_be_empty=True), is_default)
        )
    return parsed_branches


def _read_value(
    node_id: str, keys: MappingReader, templates: TemplateCollector, *, is_boolean: bool
) -> CompiledTemplate | None:
    """Return the value that selects a branch of a mapping, as text, because the keys are text."""
    field, condition = _read_field(node_id, keys, templates), keys.text_or_none("condition")
    if keys.get("condition_field") is MISSING and keys.get("condition") is MISSING:
        message = "branches by value need `condition` or `condition_field`"
        keys.diagnostics.add("missing_key", message, keys.pointer, at_key=True)
    elif keys.get("condition_field") is not MISSING and keys.get("condition") is not MISSING:
        message = "use either condition_field or condition, not both"
        keys.diagnostics.add("invalid_value", message, keys.at("condition"), at_key=True)
    if condition is not None and is_boolean:
        field = templates.choice(node_id, condition, keys.at("condition"))
    elif condition is not None:
        field = templates.expression(node_id, condition, keys.at("condition"))
    return None if field is None else _as_text(field, is_boolean=is_boolean)


def _as_text(value: CompiledTemplate, *, is_boolean: bool) -> CompiledTemplate:
    def evaluate(scope: Scope, budget: Budget) -> str:
        rendered = value.evaluate(scope, budget)
        return as_text(as_choice(rendered) if is_boolean else rendered)

    return CompiledTemplate.of(evaluate, value.usage)


def _read_field(node_id: str, keys: MappingReader, templates: TemplateCollector) -> CompiledTemplate | None:
    text = keys.text_or_none("condition_field")
    return None if text is None else templates.condition_field(node_id, text, keys.at("condition_field"))


def _from_list(
    node_id: str, keys: MappingReader, value: list[Json] | dict[str, Json], templates: TemplateCollector
) -> list[ParsedBranch]:
    """Read branches that each have their own condition."""
    if keys.get("condition") is not MISSING:
        message = (
            "each branch in a list has its own condition; a condition on the node needs branches by value"
        )
        keys.diagnostics.add("invalid_value", message, keys.at("condition"), at_key=True)
    subject = _read_field(node_id, keys, templates)
    if subject is None and keys.get("condition_field") is not MISSING:
        subject = compile_template(None)  # its problem is reported; conditions may still refer to it
    entries: dict[str | int, Json] = dict(value.items() if isinstance(value, dict) else enumerate(value))
    sections = [
        MappingReader.of(value, child(keys.at("branches"), key), keys.diagnostics)
        for key, value in entries.items()
    ]
    parsed_branches = [
        _read_branch(node_id, section, templates, subject, key)
        for section, key in zip(sections, entries, strict=True)
    ]
    times = Counter(parsed_branch.name for parsed_branch in parsed_branches if not parsed_branch.is_default)
    times.update(
        {parsed_branch.name for parsed_branch in parsed_branches if parsed_branch.is_default}
    )  # a second default is reported elsewhere
    for parsed_branch, section in zip(parsed_branches, sections, strict=True):
        if times[parsed_branch.name] > 1:
            message = f"two branches are named {parsed_branch.name!r}; branch names must be unique"
            keys.diagnostics.add("duplicate_branch", message, section.pointer)
    return parsed_branches


def _read_branch(
    node_id: str,
    keys: MappingReader,
    templates: TemplateCollector,
    subject: CompiledTemplate | None,
    key: str | int,
) -> ParsedBranch:
    is_default = keys.flag("default", False)
    targets = read_next(keys)
    name = keys.text("name", DEFAULT if is_default and isinstance(key, int) else str(key), max_length=64)
    test = None
    if is_default and keys.get("condition") is not MISSING:
        message = "the default branch must not have a condition; it is taken when no other branch matches"
        keys.diagnostics.add("invalid_value", message, keys.at("condition"), at_key=True)
    elif not is_default and keys.require(
        "condition", "give the condition of this branch, or set `default: true`"
    ):
        test = read_condition(node_id, keys, "condition", templates, subject)
    keys.close()
    return ParsedBranch(name, test, targets, is_default)


def read_condition(
    node_id: str,
    keys: MappingReader,
    key: str,
    templates: TemplateCollector,
    subject: CompiledTemplate | None = None,
) -> CompiledTemplate | None:
    """Return the condition under a key: an expression with or without braces, or true or false.

    With a subject, true and false are compared with it.
    """
    value = keys.get(key)
    text = str(value).lower() if isinstance(value, bool) else keys.text_or_none(key)
    return None if text is None else templates.condition(node_id, text, keys.at(key), subject)


def _check_default(keys: MappingReader, parsed_branches: list[ParsedBranch]) -> None:
    defaults = sum(parsed_branch.is_default for parsed_branch in parsed_branches)
    pointer = keys.at("branches")
    if defaults > 1:
        keys.diagnostics.add(
            "many_default_branches", "only one branch may have `default: true`", pointer, at_key=True
        )
    by_value = _is_by_value(keys.get("branches"))
    if not defaults and not (
        by_value and {"true", "false"} <= {parsed_branch.name for parsed_branch in parsed_branches}
    ):
        message = "add a default branch" + (", or branches for both true and false" if by_value else "")
        keys.diagnostics.add("no_default_branch", message, pointer, at_key=True)
