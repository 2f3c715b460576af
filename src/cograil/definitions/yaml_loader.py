"""Loads YAML text as plain JSON values, with the line and column of every key and value.

It uses the events of the parser instead of a YAML loader. It does not recurse, so nesting cannot exhaust the
stack. It constructs no objects, so tags cannot run code. It does not expand aliases. Only the subset of YAML
that is also JSON is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml import events as yaml_events
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from cograil.definitions.diagnostics import Diagnostics, Position, child
from cograil.definitions.yaml_scalars import BadNumber, is_clean, resolve
from cograil.model.workflow import Json

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32
MAX_VALUES = 50_000  # including keys; the parser takes about 50 µs for each

_BRANCHES = re.compile(r"/nodes/[^/]+/branches")  # only here a key may be true or false
_UNREADABLE_CHARACTER = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


class Unreadable(Exception):
    """The text cannot be parsed; the diagnostics say why."""


def read_yaml(text: str, diagnostics: Diagnostics) -> Json:
    """Parse the document in `text`; problems go to `diagnostics`.

    Raises Unreadable for invalid syntax, and for a document that is too large or nested too deeply.
    """
    text = text.removeprefix("\ufeff")
    diagnostics.keys[""] = (1, 1)  # the position for missing keys of the document
    _check_characters(text, diagnostics)
    builder = _Builder(diagnostics)
    for event in _events(text, diagnostics):
        builder.feed(event)
    return builder.root


def _check_characters(text: str, diagnostics: Diagnostics) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        diagnostics.add(
            "too_large", f"the file has {size} bytes; at most {MAX_BYTES} are allowed", position=(1, 1)
        )
        raise Unreadable
    match = _UNREADABLE_CHARACTER.search(text)
    if match:
        line = text.count("\n", 0, match.start()) + 1
        column = match.start() - (text.rfind("\n", 0, match.start()) + 1) + 1
        message = f"character U+{ord(match.group()):04X} is not allowed in a file; remove it"
        diagnostics.add("invalid_unicode", message, position=(line, column))
        raise Unreadable


def _events(text: str, diagnostics: Diagnostics) -> Iterator[Any]:
    try:
        yield from YAML(typ="safe", pure=True).parse(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        diagnostics.add(*_explain(error), position=position)
        raise Unreadable from error
    except (YAMLError, ValueError, OverflowError) as error:  # ruamel's scanner does not catch errors of chr()
        diagnostics.add("yaml_syntax", f"this is not YAML: {error}", position=(1, 1))
        raise Unreadable from error


def _explain(error: MarkedYAMLError) -> tuple[str, str]:
    if "'\\t'" in str(error.problem):
        return "yaml_unsupported", "tabs are not allowed for indentation or separation; use spaces"
    problem = ", ".join(part for part in (error.context, error.problem) if part)
    return "yaml_syntax", f"this is not YAML: {problem}"


@dataclass(slots=True)
class _Frame:
    """An open collection. `key` is set between a key of a mapping and its value."""

    into: dict[str, Json] | list[Json]
    pointer: str
    key: str | None = None
    is_repeated: bool = False  # a duplicate key: parse its value, but keep the first

    def next_pointer(self) -> str:
        return child(self.pointer, len(self.into) if isinstance(self.into, list) else self.key or "")

    def put(self, value: Json) -> None:
        if isinstance(self.into, list):
            self.into.append(value)
        elif self.key is not None:
            if not self.is_repeated:
                self.into[self.key] = value
            self.key = None


class _Builder:
    """Builds the values from the events."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self.root: Json = None
        self._diagnostics = diagnostics
        self._open: list[_Frame] = []
        self._documents = 0
        self._values = 0

    def feed(self, event: Any) -> None:
        match event:
            case yaml_events.DocumentStartEvent():
                self._start_document(event)
            case yaml_events.MappingEndEvent() | yaml_events.SequenceEndEvent():
                self._open.pop()
            case yaml_events.NodeEvent():
                self._count(event)
                if self._awaits_key():
                    self._take_key(event)
                else:
                    self._take_value(event)

    def _start_document(self, event: Any) -> None:
        self._documents += 1
        if self._documents > 1:
            self._stop(
                "yaml_unsupported", "a file must contain one document; remove everything after `---`", event
            )
        if event.tags or event.version not in (None, (1, 2)):
            self._stop("yaml_unsupported", "files must be YAML 1.2 without % directives", event)

    def _count(self, event: Any) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            self._stop("too_large", f"the file has more than {MAX_VALUES} keys and values", event)

    def _awaits_key(self) -> bool:
        top = self._open[-1] if self._open else None
        return top is not None and isinstance(top.into, dict) and top.key is None

    def _take_key(self, event: Any) -> None:
        if not isinstance(event, yaml_events.ScalarEvent):
            self._stop("yaml_unsupported", "a key must be a plain string", event)
        frame, position = self._open[-1], _position(event)
        key, problem = self._key_of(event, frame.pointer)
        pointer = child(frame.pointer, key)
        frame.key, frame.is_repeated = key, key in frame.into
        if frame.is_repeated:
            first = self._diagnostics.keys[pointer][0]
            self._diagnostics.add(
                "duplicate_key", f"{key!r} is already defined in line {first}", pointer, position=position
            )
        self._diagnostics.keys.setdefault(pointer, position)
        self._refuse_extras(event, pointer)
        if problem:
            self._diagnostics.mark_unreadable(*problem, pointer, position)

    @staticmethod
    def _key_of(event: Any, parent: str) -> tuple[str, tuple[str, str] | None]:
        """Return the key as a string and, for an invalid key, the code and message of the problem."""
        text = str(event.value)
        if not is_clean(text):
            return repr(text), ("invalid_unicode", "a key contains NUL or an unpaired surrogate")
        if not event.implicit[0]:
            return text, None
        if text == "<<":
            return text, ("yaml_unsupported", "merge keys are not supported; copy the values")
        try:
            value = resolve(text)
        except BadNumber:
            value = None
        if isinstance(value, bool) and _BRANCHES.fullmatch(parent):
            return text.lower(), None
        if not isinstance(value, str):
            return text, ("yaml_unsupported", f"the key {text or 'null'} is not a string; quote it")
        return text, None

    def _take_value(self, event: Any) -> None:
        pointer = self._open[-1].next_pointer() if self._open else ""
        self._diagnostics.values.setdefault(pointer, _position(event))
        if isinstance(event, yaml_events.AliasEvent):
            message = f"aliases are not supported; replace *{event.anchor} by its value"
            self._diagnostics.mark_unreadable("yaml_alias", message, pointer, _position(event))
            self._put(None)
            return
        self._refuse_extras(event, pointer)
        match event:
            case yaml_events.MappingStartEvent():
                self._enter({}, pointer, event)
            case yaml_events.SequenceStartEvent():
                self._enter([], pointer, event)
            case _:
                self._put(self._scalar(event, pointer))

    def _refuse_extras(self, event: Any, pointer: str) -> None:
        if event.anchor is not None:
            message = f"anchors are not supported; remove &{event.anchor}"
            self._diagnostics.add("yaml_alias", message, pointer, position=_position(event))
        if event.tag is not None:
            message = f"tags are not supported; remove {event.tag}"
            self._diagnostics.mark_unreadable("yaml_tag", message, pointer, _position(event))

    def _enter(self, into: dict[str, Json] | list[Json], pointer: str, event: Any) -> None:
        if len(self._open) >= MAX_DEPTH:
            self._stop("too_deep", f"values are nested more than {MAX_DEPTH} levels deep", event)
        self._put(into)
        self._open.append(_Frame(into, pointer))

    def _scalar(self, event: Any, pointer: str) -> Json:
        text = str(event.value)
        if not is_clean(text):
            message = "the text contains NUL or an unpaired surrogate, which cannot be stored"
            self._diagnostics.mark_unreadable("invalid_unicode", message, pointer, _position(event))
            return None
        if not event.implicit[0]:
            return text
        try:
            return resolve(text)
        except BadNumber as error:
            self._diagnostics.mark_unreadable("invalid_number", str(error), pointer, _position(event))
            return None

    def _put(self, value: Json) -> None:
        if self._open:
            self._open[-1].put(value)
        else:
            self.root = value

    def _stop(self, code: str, message: str, event: Any) -> None:
        self._diagnostics.add(code, message, position=_position(event))
        raise Unreadable


def _position(event: Any) -> Position:
    return event.start_mark.line + 1, event.start_mark.column + 1
