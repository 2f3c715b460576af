"""The forms of approvals: JSON Schemas for the data of an answer.

The meta-schema checks them. Further limits keep the later validation of answers safe: a form refers to
nothing outside itself (no fetching), has no circular references, and does not expand to a multiple of its
size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from cograil.definitions.diagnostics import MAX_PROBLEMS, Diagnostics, child
from cograil.definitions.linear_patterns import PatternError, compile_pattern
from cograil.definitions.mapping_reader import MappingReader
from cograil.definitions.operators import size_of
from cograil.definitions.unlinked_nodes import UnlinkedNode
from cograil.model.workflow import Json

MAX_FORM_BYTES = 16 * 1024
MAX_PARTS = 2_000  # mappings in all forms of a workflow; the meta-schema takes about 1 ms for each
MAX_UNFOLDED, MAX_UNFOLDED_DEPTH = 10_000, 64  # values and levels, every $ref replaced by its target
DIALECT = "https://json-schema.org/draft/2020-12/schema"

# These keywords rename a part or change its base URI, which would redirect references.
_UNSUPPORTED_REFERENCES = (
    "$id",
    "$anchor",
    "$dynamicRef",
    "$dynamicAnchor",
    "$recursiveRef",
    "$recursiveAnchor",
)
_UNSUPPORTED = ("unevaluatedItems", "unevaluatedProperties")

Form = Mapping[str, Json]


def read_form(keys: MappingReader, key: str) -> Form | None:
    """Return the form under a key, unchecked; None without one. `check_forms` checks it later."""
    section = keys.section(key)
    if section is None or not section.is_there:
        return None
    if size_of(section.values) > MAX_FORM_BYTES:
        message = f"{key} must have at most {MAX_FORM_BYTES} bytes as JSON"
        keys.diagnostics.add("invalid_value", message, section.pointer)
        return None
    return section.values


def check_forms(unlinked_nodes: Mapping[str, UnlinkedNode], diagnostics: Diagnostics) -> None:
    """Report every problem in the forms at its pointer."""
    forms = {
        f"{unlinked.pointer}/approval/form": unlinked.node.approval.form
        for unlinked in unlinked_nodes.values()
        if unlinked.node.approval is not None and unlinked.node.approval.form is not None
    }
    if not forms:
        return
    if sum(1 for form in forms.values() for _ in _mappings(form, "")) > MAX_PARTS:
        message = f"the forms of a workflow may have at most {MAX_PARTS} mappings in total"
        diagnostics.add("invalid_form", message, next(iter(forms)))
        return
    find_errors = _meta_schema()
    for pointer, form in forms.items():
        if any(unreadable.startswith(f"{pointer}/") for unreadable in diagnostics.unreadable):
            continue
        unsupported = _unsupported_parts(form) if diagnostics.is_new else ()
        for path, message in (
            *_schema_errors(find_errors, form),
            *_References(form).problems(),
            *unsupported,
        ):
            diagnostics.add("invalid_form", f"form is not a valid JSON Schema: {message}", pointer + path)


def _meta_schema() -> Callable[[Form], Iterator[Any]]:
    """Return a function that yields the errors of a JSON Schema."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415  0.1 s, and few files have one

    find_errors = Draft202012Validator(Draft202012Validator.META_SCHEMA)
    find: Callable[[Form], Iterator[Any]] = find_errors.iter_errors
    return find


def _unsupported_parts(form: Form) -> Iterator[tuple[str, str]]:
    """Yield patterns that RE2 does not support, and unsupported keywords."""
    for part, path in _mappings(form, ""):
        named = part.get("patternProperties")
        patterns = {"pattern": part.get("pattern")}
        patterns |= {f"patternProperties/{name}": name for name in (named if isinstance(named, dict) else ())}
        for key, text in patterns.items():
            if isinstance(text, str) and (why := _pattern_error(text)):
                where = child(path, "pattern") if key == "pattern" else f"{path}/patternProperties"
                yield where, f"the pattern {text[:80]!r} cannot be used: {why}"
        for key in _UNSUPPORTED:
            if isinstance(part.get(key), dict | bool):
                yield child(path, key), f"{key} is not supported; use additionalProperties or items"


def _pattern_error(text: str) -> str:
    try:
        compile_pattern(text)
    except PatternError as error:
        return str(error)
    return ""


def _schema_errors(find_errors: Callable[[Form], Iterator[Any]], form: Form) -> list[tuple[str, str]]:
    """Return the errors that the meta-schema finds, one for each pointer."""
    errors: dict[str, str] = {}
    for error in find_errors(form):
        path = ""
        for step in error.absolute_path:
            path = child(path, step)
        errors.setdefault(path, error.context[0].message if error.context else error.message)
        if len(errors) > MAX_PROBLEMS:
            break
    return list(errors.items())


class _References:
    """Checks every `$ref` of a form."""

    def __init__(self, form: Form) -> None:
        self._form = form

    def problems(self) -> Iterator[tuple[str, str]]:
        is_sound = True
        for part, path in _mappings(self._form, ""):
            for key, message in self._problems_of(part):
                is_sound = False
                yield child(path, key), message
        if is_sound and self._is_too_large():
            yield "", f"it has a circular $ref, or more than {MAX_UNFOLDED} parts when every $ref is expanded"

    def _problems_of(self, part: dict[str, Json]) -> Iterator[tuple[str, str]]:
        dialect, reference = part.get("$schema"), part.get("$ref")
        if isinstance(dialect, str) and dialect.rstrip("#") != DIALECT:
            yield "$schema", f"$schema may only be {DIALECT}"
        for key in _UNSUPPORTED_REFERENCES:
            if isinstance(part.get(key), str | bool):
                yield key, f"{key} is not supported; refer to parts by JSON pointer, as in #/$defs/name"
        if isinstance(reference, str) and not isinstance(self._target(reference), dict | bool):
            yield (
                "$ref",
                f"{reference!r} does not exist; a $ref must point into the form, as in #/$defs/name",
            )

    def _target(self, reference: str) -> Json:
        """Return the target of a reference within the form; None when it does not exist."""
        start, *steps = unquote(reference).split("/")
        if start != "#":
            return None
        target: Json = self._form
        for step in steps:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list):
                target = {str(index): member for index, member in enumerate(target)}
            target = target.get(name) if isinstance(target, dict) else None
        return target

    def _is_too_large(self) -> bool:
        """Whether the expanded form is too large or too deep; a circular reference makes it both."""
        unseen: list[tuple[Json, int]] = [(self._form, 1)]
        for _ in range(MAX_UNFOLDED):
            if not unseen:
                return False
            value, depth = unseen.pop()
            if depth > MAX_UNFOLDED_DEPTH:
                return True
            unseen.extend((member, depth + 1) for member in self._members(value))
        return bool(unseen)

    def _members(self, value: Json) -> Iterator[Json]:
        if isinstance(value, dict):
            yield from value.values()
            if isinstance(value.get("$ref"), str):
                yield self._target(value["$ref"])
        elif isinstance(value, list):
            yield from value


def _mappings(value: Json, path: str) -> Iterator[tuple[dict[str, Json], str]]:
    """Yield every mapping in a value with its path. The reader limits the depth."""
    if isinstance(value, dict):
        yield value, path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _mappings(inner, child(path, key))
