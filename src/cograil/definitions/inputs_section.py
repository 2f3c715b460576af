"""The inputs of a workflow: their declarations, and the validation of submitted values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from cograil.definitions.diagnostics import child
from cograil.definitions.mapping_reader import ID, MISSING, MappingReader
from cograil.definitions.suggestions import Suggestions
from cograil.errors import InvalidInput, Problem
from cograil.model.workflow import InputSpec, Json, Workflow
from cograil.strict_json import kind_of

INPUTS = "/input_params"  # pointer of the inputs in a request for a job
MAX_UNKNOWN_INPUTS = 20
MAX_LISTED_INPUTS = 20
MAX_SHOWN_CHARACTERS = 100
TYPES: Mapping[str, Callable[[Json], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def read_inputs(section: MappingReader) -> dict[str, InputSpec]:
    """Return the declared inputs; problems are reported."""
    return {
        name: _read_input(name, MappingReader.of(value, pointer, section.diagnostics))
        for name, value, pointer in section.items()
    }


def _read_input(name: str, keys: MappingReader) -> InputSpec:
    if not ID.fullmatch(name):
        rule = "1 to 64 letters, digits, `_`, `.` and `-`, the first a letter or digit"
        keys.diagnostics.add("invalid_id", f"input {name[:80]!r} must be {rule}", keys.pointer, at_key=True)
    has_type = keys.require("type", f"use one of {', '.join(TYPES)}")
    kind = keys.choice("type", TYPES, "string")
    default = keys.get_or_null("default")
    spec = InputSpec(
        name,
        kind,
        required=keys.flag("required", True),
        default=None if default is MISSING else default,
        has_default=default is not MISSING,
        description=keys.text("description"),
    )
    keys.close()
    if has_type and spec.default is not None and not TYPES[kind](spec.default):
        message = f"the default of {name!r} must be of type {kind}, not {kind_of(spec.default)}"
        keys.diagnostics.add("invalid_type", message, keys.at("default"))
    return spec


def apply_inputs(
    workflow: Workflow, values: Mapping[str, Json], suggestions: Suggestions | None = None
) -> dict[str, Json]:
    """Return the inputs of a job: the submitted values, completed by the defaults.

    Raises InvalidInput. A workflow without declared inputs accepts any. A caller that checks many jobs
    passes one `suggestions` for all of them.
    """
    if workflow.inputs is None:
        return dict(values)
    problems = unknown_inputs(values, workflow.inputs, suggestions)
    complete: dict[str, Json] = {}
    for name, spec in workflow.inputs.items():
        problem = _check_value(spec, values)
        if problem:
            problems.append(problem)
        complete[name] = values.get(name, spec.default)
    if problems:
        raise InvalidInput(problems)
    return complete


def _check_value(spec: InputSpec, values: Mapping[str, Json]) -> Problem | None:
    may_be_null = not spec.required or (spec.has_default and spec.default is None)
    if spec.name not in values:
        if spec.has_default or may_be_null:
            return None
        message = f"input {spec.name!r} ({spec.type}) is required"
        return Problem("missing_input", message, child(INPUTS, spec.name))
    value = values[spec.name]
    if TYPES[spec.type](value) or (value is None and may_be_null):
        return None
    message = f"input {spec.name!r} must be of type {spec.type}, not {kind_of(value)}"
    return Problem("invalid_type", message, child(INPUTS, spec.name))


def unknown_inputs(
    values: Iterable[str], declared: Mapping[str, InputSpec], suggestions: Suggestions | None = None
) -> list[Problem]:
    """Return a problem for each undeclared input; beyond `MAX_UNKNOWN_INPUTS` they are only counted."""
    suggestions = suggestions or Suggestions()
    unknown = [name for name in values if name not in declared]
    problems = [_undeclared(name, declared, suggestions) for name in unknown[:MAX_UNKNOWN_INPUTS]]
    if left := len(unknown) - len(problems):
        problems.append(Problem("unknown_input", f"and {left:,} more unknown inputs", INPUTS))
    return problems


def _undeclared(name: str, declared: Mapping[str, InputSpec], suggestions: Suggestions) -> Problem:
    close = suggestions.suggest(name, declared)
    hint = f"did you mean {close!r}?" if close else f"known inputs: {_listed(declared)}"
    message = f"the workflow has no input {name[:MAX_SHOWN_CHARACTERS]!r}; {hint}"
    return Problem("unknown_input", message, child(INPUTS, name))


def _listed(declared: Mapping[str, InputSpec]) -> str:
    names = ", ".join(islice(declared, MAX_LISTED_INPUTS)) or "none"
    left = len(declared) - MAX_LISTED_INPUTS
    return f"{names} and {left} more" if left > 0 else names
