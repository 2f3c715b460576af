"""The forms of approvals: JSON Schemas of what people may be asked to fill in.

They are checked by the meta-schema, and kept harmless for whoever checks answers by them later: a form
refers to nothing outside itself (no fetching), never to itself, and does not unfold into a thousand
times its size.
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
MAX_PARTS = 2_000  # mappings in all forms of a workflow: each takes the meta-schema about a millisecond
MAX_UNFOLDED, MAX_UNFOLDED_DEPTH = 10_000, 64  # values and levels, every $ref replaced by its target
DIALECT = "https://json-schema.org/draft/2020-12/schema"

# They give a part another name or another base, by which references would lead elsewhere.
_OTHER_WAYS = ("$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor")
_UNSUPPORTED = ("unevaluatedItems", "unevaluatedProperties")

Form = Mapping[str, Json]


def read_form(keys: MappingReader, key: str) -> Form | None:
    """The mapping under a key, which `check_forms` looks into; None without one."""
    section = keys.section(key)
    if section is None or not section.is_there:
        return None
    if size_of(section.values) > MAX_FORM_BYTES:
        message = f"{key} must have at most {MAX_FORM_BYTES} bytes as JSON"
        keys.report.add("invalid_value", message, section.pointer)
        return None
    return section.values


def check_forms(drafts: Mapping[str, UnlinkedNode], report: Diagnostics) -> None:
    """Report what is wrong with the forms, each flaw at its place."""
    forms = {
        f"{draft.pointer}/approval/form": draft.node.approval.form
        for draft in drafts.values()
        if draft.node.approval is not None and draft.node.approval.form is not None
    }
    if not forms:
        return
    if sum(1 for form in forms.values() for _ in _mappings(form, "")) > MAX_PARTS:
        message = f"the forms of a workflow may have {MAX_PARTS} mappings together, not more"
        report.add("invalid_form", message, next(iter(forms)))
        return
    judge = _meta_schema()
    for pointer, form in forms.items():
        if any(place.startswith(f"{pointer}/") for place in report.unreadable):
            continue
        unusable = _unusable(form) if report.is_new else ()
        for path, message in (*_flaws(judge, form), *_References(form).flaws(), *unusable):
            report.add("invalid_form", f"form is not a JSON Schema to use here: {message}", pointer + path)


def _meta_schema() -> Callable[[Form], Iterator[Any]]:
    """Finds the errors of a JSON Schema."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415  0.1 s, and few files have one

    judge = Draft202012Validator(Draft202012Validator.META_SCHEMA)
    find: Callable[[Form], Iterator[Any]] = judge.iter_errors
    return find


def _unusable(form: Form) -> Iterator[tuple[str, str]]:
    """Patterns that RE2 does not know, and keywords that would need them."""
    for part, path in _mappings(form, ""):
        named = part.get("patternProperties")
        patterns = {"pattern": part.get("pattern")}
        patterns |= {f"patternProperties/{name}": name for name in (named if isinstance(named, dict) else ())}
        for key, text in patterns.items():
            if isinstance(text, str) and (why := _why_not_a_pattern(text)):
                where = child(path, "pattern") if key == "pattern" else f"{path}/patternProperties"
                yield where, f"the pattern {text[:80]!r} cannot be used: {why}"
        for key in _UNSUPPORTED:
            if isinstance(part.get(key), dict | bool):
                yield child(path, key), f"{key} is not supported; use additionalProperties, or items"


def _why_not_a_pattern(text: str) -> str:
    try:
        compile_pattern(text)
    except PatternError as error:
        return str(error)
    return ""


def _flaws(judge: Callable[[Form], Iterator[Any]], form: Form) -> list[tuple[str, str]]:
    """What the meta-schema finds, one for each place."""
    found: dict[str, str] = {}
    for error in judge(form):
        path = ""
        for step in error.absolute_path:
            path = child(path, step)
        found.setdefault(path, error.context[0].message if error.context else error.message)
        if len(found) > MAX_PROBLEMS:
            break
    return list(found.items())


class _References:
    """Follows every `$ref` of a form."""

    def __init__(self, form: Form) -> None:
        self._form = form

    def flaws(self) -> Iterator[tuple[str, str]]:
        is_sound = True
        for part, path in _mappings(self._form, ""):
            for key, message in self._flaws_of(part):
                is_sound = False
                yield child(path, key), message
        if is_sound and self._is_endless():
            yield "", f"it refers to itself, or has over {MAX_UNFOLDED} parts when every $ref is unfolded"

    def _flaws_of(self, part: dict[str, Json]) -> Iterator[tuple[str, str]]:
        dialect, reference = part.get("$schema"), part.get("$ref")
        if isinstance(dialect, str) and dialect.rstrip("#") != DIALECT:
            yield "$schema", f"$schema may only be {DIALECT}"
        for key in _OTHER_WAYS:
            if isinstance(part.get(key), str | bool):
                yield key, f"{key} is not supported; refer to parts by their place, as in #/$defs/name"
        if isinstance(reference, str) and not isinstance(self._target(reference), dict | bool):
            yield (
                "$ref",
                f"there is no part {reference!r}; a form refers to its own parts, as in #/$defs/name",
            )

    def _target(self, reference: str) -> Json:
        """What it refers to within the form; None when that is not there."""
        start, *steps = unquote(reference).split("/")
        if start != "#":
            return None
        found: Json = self._form
        for step in steps:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list):
                found = {str(index): member for index, member in enumerate(found)}
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def _is_endless(self) -> bool:
        """Whether the unfolded form is too large or too deep; a circle is both."""
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
    """Every mapping in a value with its path; the reader has limited the depth."""
    if isinstance(value, dict):
        yield value, path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _mappings(inner, child(path, key))
