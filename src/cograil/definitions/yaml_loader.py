"""YAML text to plain JSON values, with the line and column of every key and value.

Built from the parser's events, not by a loader: nothing recurses, so nesting cannot exhaust the
stack; nothing is constructed, so tags cannot run code; aliases are never followed, so they cannot
multiply. Only the part of YAML that is also JSON gets through.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml import events as yaml_events
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from cograil.definitions.diagnostics import Diagnostics, Place, child
from cograil.definitions.yaml_scalars import BadNumber, is_clean, resolve
from cograil.model.workflow import Json

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32
MAX_VALUES = 50_000  # keys included; the parser takes some 50 µs for each

_BRANCHES = re.compile(r"/nodes/[^/]+/branches")  # the one place where a key may be true or false
_UNREADABLE_CHARACTER = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


class Unreadable(Exception):
    """The text cannot be read further; the report says why."""


def read_yaml(text: str, report: Diagnostics) -> Json:
    """The document in `text`; what is wrong with it goes to `report`.

    Raises Unreadable when there is no document to check: its syntax is broken, it is too large or too deep.
    """
    text = text.removeprefix("\ufeff")
    report.keys[""] = (1, 1)  # where to point for what is missing altogether
    _check_characters(text, report)
    builder = _Builder(report)
    for event in _events(text, report):
        builder.feed(event)
    return builder.root


def _check_characters(text: str, report: Diagnostics) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        report.add("too_large", f"the file has {size} bytes; at most {MAX_BYTES} are allowed", place=(1, 1))
        raise Unreadable
    found = _UNREADABLE_CHARACTER.search(text)
    if found:
        line = text.count("\n", 0, found.start()) + 1
        column = found.start() - (text.rfind("\n", 0, found.start()) + 1) + 1
        message = f"character U+{ord(found.group()):04X} cannot stand in a file; remove it"
        report.add("invalid_unicode", message, place=(line, column))
        raise Unreadable


def _events(text: str, report: Diagnostics) -> Iterator[Any]:
    try:
        yield from YAML(typ="safe", pure=True).parse(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        report.add(*_explained(error), place=place)
        raise Unreadable from error
    except (YAMLError, ValueError, OverflowError) as error:  # ruamel's scanner lets chr() errors through
        report.add("yaml_syntax", f"this is not YAML: {error}", place=(1, 1))
        raise Unreadable from error


def _explained(error: MarkedYAMLError) -> tuple[str, str]:
    if "'\\t'" in str(error.problem):
        return "yaml_unsupported", "a tab cannot separate or indent; use spaces"
    said = ", ".join(part for part in (error.context, error.problem) if part)
    return "yaml_syntax", f"this is not YAML: {said}"


@dataclass(slots=True)
class _Frame:
    """A collection that is still open. `key` is set between a key of a mapping and its value."""

    into: dict[str, Json] | list[Json]
    pointer: str
    key: str | None = None
    is_repeated: bool = False  # the key was there before: read its value, keep the first

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
    """Puts the values together as the events come in."""

    def __init__(self, report: Diagnostics) -> None:
        self.root: Json = None
        self._report = report
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
            self._stop("yaml_unsupported", "a file holds one document; remove what follows `---`", event)
        if event.tags or event.version not in (None, (1, 2)):
            self._stop("yaml_unsupported", "files are YAML 1.2 without % directives", event)

    def _count(self, event: Any) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            self._stop("too_large", f"the file holds more than {MAX_VALUES} keys and values", event)

    def _awaits_key(self) -> bool:
        top = self._open[-1] if self._open else None
        return top is not None and isinstance(top.into, dict) and top.key is None

    def _take_key(self, event: Any) -> None:
        if not isinstance(event, yaml_events.ScalarEvent):
            self._stop("yaml_unsupported", "a key must be a plain string", event)
        frame, place = self._open[-1], _place(event)
        key, trouble = self._key_of(event, frame.pointer)
        pointer = child(frame.pointer, key)
        frame.key, frame.is_repeated = key, key in frame.into
        if frame.is_repeated:
            first = self._report.keys[pointer][0]
            self._report.add(
                "duplicate_key", f"{key!r} is already there in line {first}", pointer, place=place
            )
        self._report.keys.setdefault(pointer, place)
        self._refuse_extras(event, pointer)
        if trouble:
            self._report.mark_unreadable(*trouble, pointer, place)

    @staticmethod
    def _key_of(event: Any, above: str) -> tuple[str, tuple[str, str] | None]:
        """The key as a string and, when it is none, the code and message of the problem."""
        text = str(event.value)
        if not is_clean(text):
            return repr(text), ("invalid_unicode", "a key holds NUL or half a surrogate pair")
        if not event.implicit[0]:
            return text, None
        if text == "<<":
            return text, ("yaml_unsupported", "merge keys are not supported; write the values out")
        try:
            value = resolve(text)
        except BadNumber:
            value = None
        if isinstance(value, bool) and _BRANCHES.fullmatch(above):
            return text.lower(), None
        if not isinstance(value, str):
            return text, ("yaml_unsupported", f"the key {text or 'null'} is not a string; quote it")
        return text, None

    def _take_value(self, event: Any) -> None:
        pointer = self._open[-1].next_pointer() if self._open else ""
        self._report.values.setdefault(pointer, _place(event))
        if isinstance(event, yaml_events.AliasEvent):
            message = f"aliases are not supported; write out what *{event.anchor} stands for"
            self._report.mark_unreadable("yaml_alias", message, pointer, _place(event))
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
            self._report.add("yaml_alias", message, pointer, place=_place(event))
        if event.tag is not None:
            message = f"tags are not supported; remove {event.tag}"
            self._report.mark_unreadable("yaml_tag", message, pointer, _place(event))

    def _enter(self, into: dict[str, Json] | list[Json], pointer: str, event: Any) -> None:
        if len(self._open) >= MAX_DEPTH:
            self._stop("too_deep", f"values are nested more than {MAX_DEPTH} deep", event)
        self._put(into)
        self._open.append(_Frame(into, pointer))

    def _scalar(self, event: Any, pointer: str) -> Json:
        text = str(event.value)
        if not is_clean(text):
            message = "the text holds NUL or half a surrogate pair, which cannot be stored"
            self._report.mark_unreadable("invalid_unicode", message, pointer, _place(event))
            return None
        if not event.implicit[0]:
            return text
        try:
            return resolve(text)
        except BadNumber as error:
            self._report.mark_unreadable("invalid_number", str(error), pointer, _place(event))
            return None

    def _put(self, value: Json) -> None:
        if self._open:
            self._open[-1].put(value)
        else:
            self.root = value

    def _stop(self, code: str, message: str, event: Any) -> None:
        self._report.add(code, message, place=_place(event))
        raise Unreadable


def _place(event: Any) -> Place:
    return event.start_mark.line + 1, event.start_mark.column + 1
