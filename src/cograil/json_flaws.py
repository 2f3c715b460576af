"""Search a JSON value for parts that JSON or jsonb cannot represent, and report their location.

`strict_json` calls `raise_first_flaw` for suspect documents only, because the search is slow.
`to_json_type` converts the Python types that JSON does not have.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, NoReturn
from uuid import UUID

from cograil.errors import UsageError

Json = Any

MAX_DEPTH_WRITTEN = 100
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

_STATUS = {"out_of_range": 422, "too_large": 413}


class InvalidJson(UsageError):
    """The text is not strict JSON, or the value cannot be written as JSON."""

    def __init__(self, code: str, message: str, pointer: str = "", status: int | None = None) -> None:
        location = f" at {shorten(pointer)}" if pointer else ""
        super().__init__(f"{message}{location}")
        self.code = code
        self.message = message
        self.pointer = pointer
        self.status = status or _STATUS.get(code, 400)


def shorten(text: str) -> str:
    """Return at most 100 characters of the text, without control characters."""
    short = text if len(text) <= 100 else text[:97] + "..."
    return short if short.isprintable() else ascii(short)


@dataclasses.dataclass(frozen=True, slots=True)
class Flaw:
    """Replaces an invalid part of a parsed document, so that the search finds its location."""

    code: str
    message: str


def to_json_type(value: object) -> Json:
    """Convert a value of a Python type that JSON does not have. Raises `InvalidJson` for unsupported types."""
    match value:
        case datetime() if value.tzinfo is None:
            raise InvalidJson("invalid_type", "a datetime without time zone")
        case datetime() | date() | time():
            return value.isoformat()
        case Enum():
            return value.value
        case UUID():
            return str(value)
        case Decimal() if value.is_finite():
            return str(value)
        case float():  # a subclass, such as numpy's
            return float(value)
        case tuple():  # a named tuple
            return list(value)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        case _ if hasattr(value, "model_dump") and not isinstance(value, type):
            return value.model_dump()
    raise InvalidJson("invalid_type", f"a value of type {type(value).__name__}, which JSON does not have")


_JSON_TYPES = (str, int, float, dict, list, tuple, Flaw)
_ALWAYS_VALID = frozenset({bool, type(None)})


class _Location(NamedTuple):
    """A value inside a document, with its parent."""

    value: Json
    name: str
    parent: _Location | None
    depth: int


def raise_first_flaw(root: Json) -> None:
    """Raise InvalidJson for the first flaw in document order, with its JSON pointer; return if there is none."""
    pending = [_Location(root, "", None, 0)]
    while pending:
        location = pending.pop()
        if location.depth > MAX_DEPTH_WRITTEN:
            raise InvalidJson("too_deep", f"JSON nested more than {MAX_DEPTH_WRITTEN} levels deep")
        try:
            value = _convert(location.value)
        except InvalidJson as error:
            _raise_at(error.code, error.message, _path(location))
        if flaw := _find_flaw(value):
            _raise_at(flaw.code, flaw.message, _path(location))
        children = [
            _Location(child, name, location, location.depth + 1)
            for name, child in _named_children(value)
            if not _is_valid_leaf(child)
        ]
        children.reverse()
        pending += children


def _is_valid_leaf(value: Json) -> bool:
    kind = type(value)
    if kind is str:
        return bool(value.isascii()) and "\0" not in value
    if kind is int:
        return bool(INT64_MIN <= value <= INT64_MAX)
    return kind in _ALWAYS_VALID


def _path(location: _Location) -> tuple[str, ...]:
    names = []
    while location.parent is not None:
        names.append(location.name)
        location = location.parent
    return tuple(reversed(names))


def _convert(value: Json) -> Json:
    is_known = value is None or isinstance(value, _JSON_TYPES)
    return value if is_known and not isinstance(value, Enum) else to_json_type(value)


def _find_flaw(value: Json) -> Flaw | None:
    match value:
        case Flaw():
            return value
        case str():
            return _find_text_flaw(value)
        case float() if not math.isfinite(value):
            return Flaw("invalid_number", f"{value} is not a JSON number")
        case int() if not INT64_MIN <= value <= INT64_MAX:
            return Flaw("out_of_range", "an integer beyond 64 bits")
        case dict():
            return next((flaw for key in value if (flaw := _find_key_flaw(key))), None)
    return None


def _find_key_flaw(key: object) -> Flaw | None:
    if type(key) is not str:
        return Flaw("invalid_type", f"a key of type {type(key).__name__}, where JSON has only strings")
    return _find_text_flaw(key)


def _find_text_flaw(text: str) -> Flaw | None:
    if "\0" in text:
        return Flaw("invalid_unicode", "the character U+0000")
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        return Flaw("invalid_unicode", "a lone surrogate")
    return None


def _named_children(value: Json) -> Iterator[tuple[str, Json]]:
    match value:
        case dict():
            yield from value.items()
        case list() | tuple():
            yield from ((str(index), child) for index, child in enumerate(value))


def _raise_at(code: str, message: str, path: tuple[str, ...]) -> NoReturn:
    tokens = (name.replace("~", "~0").replace("/", "~1") for name in path)
    raise InvalidJson(code, message, "".join(f"/{token}" for token in tokens))
