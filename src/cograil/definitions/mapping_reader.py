"""A reader for one mapping of a workflow file, key by key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cograil.definitions.diagnostics import Diagnostics, child
from cograil.model.workflow import Json
from cograil.strict_json import kind_of

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
CHILD_SUFFIX = re.compile(r".*__[0-9]+")  # names of the children of a fan_out
WORD = re.compile(r"[^\s{}]{1,64}")  # handlers, queues, error codes: names, never templates

MAX_VERSION = 2**31 - 1

MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class NumberRange:
    """The numbers that a key accepts."""

    minimum: float
    maximum: float
    excludes_minimum: bool = False  # `minimum` itself is too small

    def __contains__(self, number: float) -> bool:
        return self.minimum <= number <= self.maximum and not (
            self.excludes_minimum and number == self.minimum
        )

    def __str__(self) -> str:
        lower = f"more than {self.minimum:g}" if self.excludes_minimum else f"at least {self.minimum:g}"
        return f"{lower} and at most {self.maximum:.15g}"


class MappingReader:
    """Reads the keys of one mapping. An invalid value is reported and replaced by its default.

    Every key that was read is known; `close` reports the others. `description` is allowed everywhere. A key
    with the value null counts as missing.
    """

    is_there = True

    def __init__(self, values: Mapping[str, Json], pointer: str, diagnostics: Diagnostics) -> None:
        self.values = values
        self.pointer = pointer
        self.diagnostics = diagnostics
        self._asked = {"description"}

    @classmethod
    def of(cls, value: Json, pointer: str, diagnostics: Diagnostics) -> MappingReader:
        """Return a reader for the mapping at `pointer`. Any other value is reported and read as an empty mapping."""
        if isinstance(value, dict):
            return cls(value, pointer, diagnostics)
        diagnostics.add("invalid_type", f"{_last(pointer)} must be a mapping, not {kind_of(value)}", pointer)
        return _Nothing({}, pointer, diagnostics)

    def at(self, key: str | int) -> str:
        """Return the pointer of a key."""
        return child(self.pointer, key)

    def get(self, key: str) -> Json:
        """Return the value of a key, or MISSING, and mark the key as known."""
        value = self.get_or_null(key)
        # An unreadable value is null too, but is not missing.
        return MISSING if value is None and self.at(key) not in self.diagnostics.unreadable else value

    def get_or_null(self, key: str) -> Json:
        """Return the value of a key where null has a meaning, or MISSING."""
        self._asked.add(key)
        return self.values.get(key, MISSING)

    def section(self, key: str) -> MappingReader | None:
        """Return a reader for the mapping under a key; None without that key."""
        value = self.get(key)
        return None if value is MISSING else MappingReader.of(value, self.at(key), self.diagnostics)

    def require(self, key: str, why: str) -> bool:
        """Return whether the key is present, and report a missing key."""
        if self.get(key) is not MISSING:
            return True
        if key in self.values:
            self.diagnostics.add("missing_key", f"{key!r} is empty: {why}", self.at(key), at_key=True)
        else:
            self.diagnostics.add("missing_key", f"{key!r} is missing: {why}", self.pointer, at_key=True)
        return False

    def text(self, key: str, default: str = "", max_length: int = 10_000) -> str:
        value = self.text_or_none(key)
        if value is not None and len(value) > max_length:
            self._refuse(key, f"must have at most {max_length} characters, not {len(value)}")
            return default
        return default if value is None else value

    def text_or_none(self, key: str) -> str | None:
        """Return a string; None when the key is missing or its value, which is reported, is not a string."""
        value = self._typed(key, str, "a string", None)
        return None if value is None else str(value)

    def filled(self, key: str, max_length: int = 10_000) -> str | None:
        """Return a string that is not blank; None when it is missing or invalid, which is reported."""
        value = self.text_or_none(key)
        if value is None or (value.strip() and len(value) <= max_length):
            return value
        self._refuse(key, f"must have 1 to {max_length} characters and not be blank")
        return None

    def word(self, key: str, default: str = "") -> str:
        """Return a short name without spaces and braces."""
        value = self.text_or_none(key)
        if value is None:
            return default
        if not WORD.fullmatch(value):
            self._refuse(key, "must have 1 to 64 characters, without spaces and braces")
            return default
        return value

    def choice(self, key: str, choices: Iterable[str], default: str, code: str = "invalid_value") -> str:
        value, choices = self._typed(key, str, "a string", default), tuple(choices)
        if value in choices:
            return str(value)
        message = f"{key} must be one of {', '.join(choices)}, not {value!r}"
        self.diagnostics.add(code, message, self.at(key), did_you_mean=(value, choices))
        return default

    def flag(self, key: str, default: bool) -> bool:
        return bool(self._typed(key, bool, "true or false", default))

    def integer(self, key: str, default: int, allowed: NumberRange) -> int:
        return int(self._number(key, default, allowed, int, "an integer"))

    def number(self, key: str, default: float, allowed: NumberRange) -> float:
        return float(self._number(key, default, allowed, (int, float), "a number"))

    def words(self, key: str) -> tuple[str, ...] | None:
        """Return a list of short names; None without that key."""
        value = self._typed(key, list, "a list of strings", None)
        if value is None:
            return None
        return tuple(
            word for index, word in enumerate(value) if self._is_word(word, child(self.at(key), index))
        )

    def close(self, elsewhere: Mapping[str, str] | None = None) -> None:
        """Report every unknown key. `elsewhere` has messages for keys that belong to another mapping."""
        for key, value in self.values.items():
            if key in self._asked:
                continue
            if elsewhere and key in elsewhere:
                if value is not None:
                    self.diagnostics.add("unknown_key", elsewhere[key], self.at(key), at_key=True)
                continue
            message = f"{key!r} is not a key of {_last(self.pointer)}"
            did_you_mean = (key, sorted(self._asked))
            self.diagnostics.add("unknown_key", message, self.at(key), at_key=True, did_you_mean=did_you_mean)

    def items(self) -> Iterator[tuple[str, Json, str]]:
        """Yield every key with its value and pointer, for mappings whose keys the user chooses."""
        for key, value in self.values.items():
            self._asked.add(key)
            yield key, value, self.at(key)

    def _number(self, key: str, default: float, allowed: NumberRange, kind: Any, what: str) -> float:
        value = self._typed(key, kind, what, default)
        if value not in allowed:
            self._refuse(key, f"must be {allowed}, not {value!r}")
            return default
        return float(value) if isinstance(value, float) else int(value)

    def _typed(self, key: str, kind: Any, what: str, default: Json) -> Any:
        value = self.get(key)
        if value is MISSING:
            return default
        if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return value
        self.diagnostics.add("invalid_type", f"{key} must be {what}, not {kind_of(value)}", self.at(key))
        return default

    def _is_word(self, value: Json, pointer: str) -> bool:
        if isinstance(value, str) and WORD.fullmatch(value):
            return True
        message = f"must be a string of 1 to 64 characters without spaces and braces, not {kind_of(value)}"
        self.diagnostics.add("invalid_type", message, pointer)
        return False

    def _refuse(self, key: str, message: str) -> None:
        self.diagnostics.add("invalid_value", f"{key} {message}", self.at(key))


class _Nothing(MappingReader):
    """Replaces a mapping that is missing or invalid, which is already reported."""

    is_there = False

    def require(self, key: str, why: str) -> bool:
        return False


def check_id(value: str, pointer: str, diagnostics: Diagnostics, what: str, *, at_key: bool) -> bool:
    """Return whether `value` is a valid id of a workflow or a node, and report an invalid one."""
    if not ID.fullmatch(value):
        rule = "1 to 64 letters, digits, `_`, `.` and `-`, the first a letter or digit"
        diagnostics.add("invalid_id", f"{what} {value[:80]!r} must be {rule}", pointer, at_key=at_key)
        return False
    if CHILD_SUFFIX.fullmatch(value):
        message = f"{what} {value!r} must not end in `__` and digits, as names of fan_out children do"
        diagnostics.add("invalid_id", message, pointer, at_key=at_key)
        return False
    return True


def _last(pointer: str) -> str:
    name = pointer.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
    return f"{name!r}" if name else "the file"
