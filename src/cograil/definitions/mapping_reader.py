"""One mapping of a workflow file, read key by key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cograil.definitions.diagnostics import Diagnostics, child
from cograil.model.workflow import Json
from cograil.strict_json import kind_of

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
CHILD_SUFFIX = re.compile(r".*__[0-9]+")  # what the children of a fan_out are called
WORD = re.compile(r"[^\s{}]{1,64}")  # handlers, queues, error codes: names, never templates

MAX_VERSION = 2**31 - 1

MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers a key may hold."""

    least: float
    most: float
    above_least: bool = False  # `least` itself is too small

    def __contains__(self, number: float) -> bool:
        return self.least <= number <= self.most and not (self.above_least and number == self.least)

    def __str__(self) -> str:
        lower = f"more than {self.least:g}" if self.above_least else f"at least {self.least:g}"
        return f"{lower} and at most {self.most:.15g}"


class MappingReader:
    """Reads the keys of one mapping; a key that does not fit is reported and read as its default.

    Every key that was asked for is known; `close` reports the others. `description` is allowed
    everywhere. A key without a value (null) counts as missing.
    """

    is_there = True

    def __init__(self, values: Mapping[str, Json], pointer: str, report: Diagnostics) -> None:
        self.values = values
        self.pointer = pointer
        self.report = report
        self._asked = {"description"}

    @classmethod
    def of(cls, value: Json, pointer: str, report: Diagnostics) -> MappingReader:
        """The section at `pointer`; an empty one, reported, when there is no mapping."""
        if isinstance(value, dict):
            return cls(value, pointer, report)
        report.add("invalid_type", f"{_last(pointer)} must be a mapping, not {kind_of(value)}", pointer)
        return _Nothing({}, pointer, report)

    def at(self, key: str | int) -> str:
        """The pointer of a key."""
        return child(self.pointer, key)

    def get(self, key: str) -> Json:
        """The value of a key as it stands, or MISSING; marks the key as known."""
        value = self.get_or_null(key)
        # What could not be read is null too, but was there.
        return MISSING if value is None and self.at(key) not in self.report.unreadable else value

    def get_or_null(self, key: str) -> Json:
        """The same for a key where null has a meaning."""
        self._asked.add(key)
        return self.values.get(key, MISSING)

    def section(self, key: str) -> MappingReader | None:
        """The mapping under a key; None without that key."""
        value = self.get(key)
        return None if value is MISSING else MappingReader.of(value, self.at(key), self.report)

    def require(self, key: str, why: str) -> bool:
        """Whether the key is there; its absence is a problem."""
        if self.get(key) is not MISSING:
            return True
        if key in self.values:
            self.report.add("missing_key", f"{key!r} is empty: {why}", self.at(key), at_key=True)
        else:
            self.report.add("missing_key", f"{key!r} is missing: {why}", self.pointer, at_key=True)
        return False

    def text(self, key: str, default: str = "", longest: int = 10_000) -> str:
        value = self.text_or_none(key)
        if value is not None and len(value) > longest:
            self._refuse(key, f"must have at most {longest} characters, not {len(value)}")
            return default
        return default if value is None else value

    def text_or_none(self, key: str) -> str | None:
        """A string; None when it is missing or, which is reported, something else."""
        value = self._typed(key, str, "a string", None)
        return None if value is None else str(value)

    def filled(self, key: str, longest: int = 10_000) -> str | None:
        """A string that is not blank; None when it is missing or, which is reported, something else."""
        value = self.text_or_none(key)
        if value is None or (value.strip() and len(value) <= longest):
            return value
        self._refuse(key, f"must have 1 to {longest} characters that are not all blank")
        return None

    def word(self, key: str, default: str = "") -> str:
        """A short name without blanks and braces."""
        value = self.text_or_none(key)
        if value is None:
            return default
        if not WORD.fullmatch(value):
            self._refuse(key, "must have 1 to 64 characters, no blanks and no braces")
            return default
        return value

    def choice(self, key: str, choices: Iterable[str], default: str, code: str = "invalid_value") -> str:
        value, choices = self._typed(key, str, "a string", default), tuple(choices)
        if value in choices:
            return str(value)
        message = f"{key} must be one of {', '.join(choices)}, not {value!r}"
        self.report.add(code, message, self.at(key), near=(value, choices))
        return default

    def flag(self, key: str, default: bool) -> bool:
        return bool(self._typed(key, bool, "true or false", default))

    def integer(self, key: str, default: int, allowed: Range) -> int:
        return int(self._number(key, default, allowed, int, "an integer"))

    def number(self, key: str, default: float, allowed: Range) -> float:
        return float(self._number(key, default, allowed, (int, float), "a number"))

    def words(self, key: str) -> tuple[str, ...] | None:
        """A list of words; None without that key."""
        value = self._typed(key, list, "a list of strings", None)
        if value is None:
            return None
        return tuple(
            word for index, word in enumerate(value) if self._is_word(word, child(self.at(key), index))
        )

    def close(self, elsewhere: Mapping[str, str] | None = None) -> None:
        """Report every key nobody asked for; `elsewhere` says where a known key belongs."""
        for key, value in self.values.items():
            if key in self._asked:
                continue
            if elsewhere and key in elsewhere:
                if value is not None:
                    self.report.add("unknown_key", elsewhere[key], self.at(key), at_key=True)
                continue
            message = f"{key!r} is not a key of {_last(self.pointer)}"
            near = (key, sorted(self._asked))
            self.report.add("unknown_key", message, self.at(key), at_key=True, near=near)

    def items(self) -> Iterator[tuple[str, Json, str]]:
        """Every key with its value and pointer: for mappings whose keys are the user's own."""
        for key, value in self.values.items():
            self._asked.add(key)
            yield key, value, self.at(key)

    def _number(self, key: str, default: float, allowed: Range, kind: Any, what: str) -> float:
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
        self.report.add("invalid_type", f"{key} must be {what}, not {kind_of(value)}", self.at(key))
        return default

    def _is_word(self, value: Json, pointer: str) -> bool:
        if isinstance(value, str) and WORD.fullmatch(value):
            return True
        message = f"must be a string of 1 to 64 characters without blanks and braces, not {kind_of(value)}"
        self.report.add("invalid_type", message, pointer)
        return False

    def _refuse(self, key: str, message: str) -> None:
        self.report.add("invalid_value", f"{key} {message}", self.at(key))


class _Nothing(MappingReader):
    """Stands in for a section that is not there: what it lacks has been reported already."""

    is_there = False

    def require(self, key: str, why: str) -> bool:
        return False


def check_id(value: str, pointer: str, report: Diagnostics, what: str, *, at_key: bool) -> bool:
    """Whether `value` may name a workflow or a node; reports why not."""
    if not ID.fullmatch(value):
        rule = "1 to 64 letters, digits, `_`, `.` and `-`, the first a letter or digit"
        report.add("invalid_id", f"{what} {value[:80]!r} must be {rule}", pointer, at_key=at_key)
        return False
    if CHILD_SUFFIX.fullmatch(value):
        message = f"{what} {value!r} may not end in `__` and digits: so are the children of a fan_out called"
        report.add("invalid_id", message, pointer, at_key=at_key)
        return False
    return True


def _last(pointer: str) -> str:
    name = pointer.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
    return f"{name!r}" if name else "the file"
