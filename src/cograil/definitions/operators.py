"""Operators and filters of expressions on JSON values, each with a limit on its result.

Types are distinct as in JSON: true is not 1, "5" is not 5, but 1 equals 1.0. No code here reads an attribute
or calls a method that data could choose.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Literal

import orjson

from cograil.model.evaluation_budget import PLAIN_TYPES, Budget
from cograil.model.workflow import Json, RenderError

MAX_RENDERED_BYTES = 1024 * 1024

# Characters per step, as powers of two; slower operations have fewer characters per step.
_COMPARED_SHIFT = 8
_ENCODED_SHIFT = 4
_SEARCHED_SHIFT = 4
_STEPS_PER_PIECE = 2


class Missing(RenderError):
    """A value does not exist; the only error that `default` and `is_null` accept."""

    def __init__(self, what: str) -> None:
        super().__init__("template_undefined", f"{what} is not defined")


# Fields


def field(value: Json, key: Json) -> Json:
    """Return a member of an object or a list. Raises LookupError when it does not exist."""
    if isinstance(value, dict):
        return value[_name(key)]
    if isinstance(value, list):
        return value[_position(key)]
    if isinstance(value, Mapping):  # a scope may load its nodes lazily
        return value[_name(key)]
    raise LookupError(key)


def _name(key: Json) -> str:
    if isinstance(key, str):
        return key
    raise LookupError(key)


def _position(key: Json) -> int:
    if isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) < 10:
        return int(key)
    if isinstance(key, int) and not isinstance(key, bool) and abs(key) < 10**9:
        return key
    raise LookupError(key)


# Comparisons


def equal(budget: Budget, left: Json, right: Json) -> bool:
    """Whether two JSON values are equal."""
    try:
        return _equal(budget, left, right)
    except RecursionError as error:
        raise RenderError("condition_type", "the values are nested too deeply to compare") from error


def _equal(budget: Budget, left: Json, right: Json) -> bool:
    if isinstance(left, list):
        return isinstance(right, list) and _equal_lists(budget, left, right)
    if isinstance(left, dict):
        if not isinstance(right, dict) or len(left) != len(right):
            return False
        budget.spend(2 * len(left))
        return left.keys() == right.keys() and _equal_lists(
            budget, list(left.values()), [right[key] for key in left]
        )
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, str):
        budget.spend(len(left) >> _COMPARED_SHIFT)
    return bool(left == right)


def _equal_lists(budget: Budget, left: list[Json], right: list[Json]) -> bool:
    """Compare lists. Only lists of texts, numbers and null compare directly: in Python, True equals 1."""
    if len(left) != len(right):
        return False
    budget.spend(1 + len(left))
    if PLAIN_TYPES.issuperset(map(type, left)) and PLAIN_TYPES.issuperset(map(type, right)):
        return left == right
    return all(_equal(budget, *pair) for pair in zip(left, right, strict=True))


def compare(budget: Budget, left: Json, right: Json) -> Literal[-1, 0, 1]:
    """Compare two numbers or two texts. Raises condition_type for anything else."""
    if not (_is_number(left) and _is_number(right)) and not (
        isinstance(left, str) and isinstance(right, str)
    ):
        raise RenderError("condition_type", f"cannot order {kind(left)} and {kind(right)}")
    if isinstance(left, float | int) and not (_is_finite(left) and _is_finite(right)):
        raise RenderError("invalid_number", "cannot order NaN and infinity")
    if isinstance(left, str):
        budget.spend(len(left) >> _COMPARED_SHIFT)
    if left == right:
        return 0
    return -1 if left < right else 1


def contains(budget: Budget, container: Json, member: Json) -> bool:
    """Whether a list contains a member, a text a substring, or an object a key."""
    if isinstance(container, list):
        return budget.contains(container, member, equal)
    if isinstance(container, str):
        budget.spend(len(container) >> _SEARCHED_SHIFT)
    if isinstance(container, str | dict) and isinstance(member, str):
        return member in container
    raise RenderError("condition_type", f"{kind(container)} cannot contain {kind(member)}")


def starts_with(budget: Budget, text: Json, start: Json) -> bool:
    """Whether a text starts with another. Raises condition_type for other types."""
    budget.spend(len(_text_only(start, "starts_with")) >> _COMPARED_SHIFT)
    return _text_only(text, "starts_with").startswith(start)


def ends_with(budget: Budget, text: Json, end: Json) -> bool:
    """Whether a text ends with another. Raises condition_type for other types."""
    budget.spend(len(_text_only(end, "ends_with")) >> _COMPARED_SHIFT)
    return _text_only(text, "ends_with").endswith(end)


def _text_only(value: Json, operator: str) -> str:
    if not isinstance(value, str):
        raise RenderError("condition_type", f"{operator} needs texts, not {kind(value)}")
    return value


def as_boolean(value: Json) -> bool:
    """Return a boolean. Raises condition_not_boolean for anything else."""
    if not isinstance(value, bool):
        raise RenderError("condition_not_boolean", f"a condition must be true or false, not {kind(value)}")
    return value


def as_choice(value: Json) -> bool:
    """Return a boolean, or False for null. Raises condition_not_boolean for anything else."""
    return False if value is None else as_boolean(value)


# Numbers


def add(left: Json, right: Json) -> int | float:
    """The sum of two numbers."""
    return _finite(_number(left), _number(right))


def subtract(left: Json, right: Json) -> int | float:
    """The difference of two numbers."""
    return _finite(_number(left), -_number(right))


def negate(value: Json) -> int | float:
    """The number with the other sign."""
    return -_number(value)


def _finite(left: int | float, right: int | float) -> int | float:
    try:
        total = left + right
    except OverflowError:
        total = math.inf
    if not _is_finite(total):
        raise RenderError("invalid_number", "the result is not a finite number")
    return total


def _number(value: Json) -> int | float:
    if not _is_number(value):
        raise RenderError("template_type", f"+ and - need numbers, not {kind(value)} (use ~ to join texts)")
    number: int | float = value
    return number


def _is_finite(value: int | float) -> bool:
    return isinstance(value, int) or math.isfinite(value)  # isfinite fails on integers that exceed a float


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# Texts


def lower(budget: Budget, value: Json) -> str:
    """Convert a text to lower case."""
    budget.spend(len(_letters(value)) >> _ENCODED_SHIFT)
    return _letters(value).lower()


def upper(budget: Budget, value: Json) -> str:
    """Convert a text to upper case."""
    budget.spend(len(_letters(value)) >> _ENCODED_SHIFT)
    return _letters(value).upper()


def _letters(value: Json) -> str:
    if not isinstance(value, str):
        raise RenderError("template_type", f"lower and upper need a text, not {kind(value)}")
    return value


def length(value: Json) -> int:
    """Return the number of members of a list or object, or of characters of a text."""
    if not isinstance(value, str | list | dict):
        raise RenderError("template_type", f"{kind(value)} has no length")
    return len(value)


def join(budget: Budget, value: Json, separator: Json = "") -> str:
    """Join the members of a list (or the characters of a text) to one text."""
    if not isinstance(value, list | str) or not isinstance(separator, str):
        raise RenderError(
            "template_type", f"join needs a list and a text, not {kind(value)} and {kind(separator)}"
        )
    if isinstance(value, str):
        if size_of(value) + size_of(separator) * (len(value) - 1) > MAX_RENDERED_BYTES:
            raise too_large()
        budget.spend(len(value))
        return separator.join(value)
    return bounded(map(as_text, value), budget, separator)


def bounded(pieces: Iterable[str], budget: Budget, separator: str = "") -> str:
    """Join the pieces. Raises template_too_large as soon as the result exceeds the limit."""
    taken = []
    size, between = 0, size_of(separator)
    for piece in pieces:
        added = size_of(piece) + between
        budget.spend(_STEPS_PER_PIECE + (added >> _ENCODED_SHIFT))
        size += added
        if size - between > MAX_RENDERED_BYTES:
            raise too_large()
        taken.append(piece)
    return separator.join(taken)


def as_text(value: Json) -> str:
    """Convert a value for use inside a text: a text is unchanged, anything else becomes compact JSON."""
    if isinstance(value, str):
        return value
    return str(value) if type(value) is int else to_json(value)


def to_json_counted(budget: Budget, value: Json) -> str:
    """Convert a value to compact JSON text and spend steps for its bytes."""
    text = to_json(value)
    budget.spend(len(text) >> _ENCODED_SHIFT)
    return text


def to_json(value: Json) -> str:
    """Convert a value to compact JSON text."""
    text = _encoded(value)
    if len(text) > MAX_RENDERED_BYTES:
        raise too_large()
    return text.decode("utf-8", "surrogatepass")


# Sizes


def size_of(value: Json) -> int:
    """Return the approximate size of the value as JSON. Raises invalid_number when it cannot be JSON."""
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
    if value is None or isinstance(value, bool):
        return 4
    return len(_encoded(value))


class Meter:
    """Counts rendered bytes and raises template_too_large at the limit."""

    __slots__ = ("_left", "budget")

    def __init__(self, budget: Budget, left: int = MAX_RENDERED_BYTES) -> None:
        self.budget = budget
        self._left = left

    def charged(self, value: Json) -> Json:
        """Count the size of a value and return it."""
        size = size_of(value)
        if steps := size >> _ENCODED_SHIFT:
            self.budget.spend(steps)
        self._left -= size
        if self._left < 0:
            raise too_large()
        return value


def too_large() -> RenderError:
    """Return the error for a result that exceeds the limit of a template."""
    return RenderError("template_too_large", f"the result has more than {MAX_RENDERED_BYTES} bytes")


def _encoded(value: Json) -> bytes:
    try:
        text = orjson.dumps(value)
    except TypeError:  # integers beyond 64 bits, lone surrogates, more than 254 levels
        return _encoded_slowly(value)
    if b"null" in text:
        _encoded_slowly(value)  # orjson writes NaN and infinity as null; json refuses them
    return text


def _encoded_slowly(value: Json) -> bytes:
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except ValueError as error:
        raise RenderError("invalid_number", "NaN and infinity are not JSON") from error
    except RecursionError as error:
        raise RenderError("template_too_large", "the value is nested too deeply") from error
    return text.encode("utf-8", "surrogatepass")


def kind(value: Json) -> str:
    """Return the JSON type of a value, for messages."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
    return "an object"
