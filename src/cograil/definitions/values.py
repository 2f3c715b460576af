"""What operators and filters mean for plain JSON values, each bounded in what it may produce.

Types are kept apart as in JSON: true is not 1, "5" is not 5, 1 is 1.0. Nothing here reads an attribute
or calls a method that data could choose.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Literal

import orjson

from cograil.model.budget import PLAIN_TYPES, Budget
from cograil.model.workflow import Json, RenderError

MAX_RENDERED_BYTES = 1024 * 1024

# How many characters count as one step, as powers of two: what takes longer per character counts more.
_COMPARED_SHIFT = 8
_ENCODED_SHIFT = 4
_SEARCHED_SHIFT = 4
_STEPS_PER_PIECE = 2


class Missing(RenderError):
    """A value that is not there; the only error that `default` and `is_null` forgive."""

    def __init__(self, what: str) -> None:
        super().__init__("template_undefined", f"{what} is not there")


# Fields


def field(value: Json, key: Json) -> Json:
    """A member of an object or a list; raises LookupError when there is none, for any value and key."""
    if isinstance(value, dict):
        return value[_name(key)]
    if isinstance(value, list):
        return value[_position(key)]
    if isinstance(value, Mapping):  # a scope may load its nodes when they are asked for
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
    """Whether two values are the same JSON value, whatever their types."""
    try:
        return _equal(budget, left, right)
    except RecursionError as error:
        raise RenderError("condition_type", "values that are nested so deeply cannot be compared") from error


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
    """Lists of texts, numbers and null are compared at once; Python holds true for 1, so others are not."""
    if len(left) != len(right):
        return False
    budget.spend(1 + len(left))
    if PLAIN_TYPES.issuperset(map(type, left)) and PLAIN_TYPES.issuperset(map(type, right)):
        return left == right
    return all(_equal(budget, one, other) for one, other in zip(left, right, strict=True))


def compare(budget: Budget, left: Json, right: Json) -> Literal[-1, 0, 1]:
    """The order of two numbers or two texts; raises condition_type for anything else."""
    if not (_is_number(left) and _is_number(right)) and not (
        isinstance(left, str) and isinstance(right, str)
    ):
        raise RenderError("condition_type", f"{kind(left)} and {kind(right)} have no order")
    if isinstance(left, float | int) and not (_is_finite(left) and _is_finite(right)):
        raise RenderError("invalid_number", "NaN and infinity have no order")
    if isinstance(left, str):
        budget.spend(len(left) >> _COMPARED_SHIFT)
    if left == right:
        return 0
    return -1 if left < right else 1


def contains(budget: Budget, container: Json, member: Json) -> bool:
    """Whether a list has this member, a text this part or an object this key."""
    if isinstance(container, list):
        return budget.contains(container, member, equal)
    if isinstance(container, str):
        budget.spend(len(container) >> _SEARCHED_SHIFT)
    if isinstance(container, str | dict) and isinstance(member, str):
        return member in container
    raise RenderError("condition_type", f"{kind(container)} cannot contain {kind(member)}")


def starts_with(budget: Budget, text: Json, start: Json) -> bool:
    """Whether a text begins so; raises condition_type for what is no text."""
    budget.spend(len(_text_only(start, "starts_with")) >> _COMPARED_SHIFT)
    return _text_only(text, "starts_with").startswith(start)


def ends_with(budget: Budget, text: Json, end: Json) -> bool:
    """Whether a text ends so; raises condition_type for what is no text."""
    budget.spend(len(_text_only(end, "ends_with")) >> _COMPARED_SHIFT)
    return _text_only(text, "ends_with").endswith(end)


def _text_only(value: Json, operator: str) -> str:
    if not isinstance(value, str):
        raise RenderError("condition_type", f"{operator} compares texts, not {kind(value)}")
    return value


def as_boolean(value: Json) -> bool:
    """The value itself; raises condition_not_boolean for anything but true and false."""
    if not isinstance(value, bool):
        raise RenderError("condition_not_boolean", f"a condition is true or false, not {kind(value)}")
    return value


def as_choice(value: Json) -> bool:
    """The value itself, null as false; raises condition_not_boolean for anything else."""
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
        raise RenderError("template_type", f"+ and - need numbers, not {kind(value)} (~ joins texts)")
    number: int | float = value
    return number


def _is_finite(value: int | float) -> bool:
    return isinstance(value, int) or math.isfinite(value)  # isfinite fails on integers beyond a float


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# Texts


def lower(budget: Budget, value: Json) -> str:
    """The text in small letters."""
    budget.spend(len(_letters(value)) >> _ENCODED_SHIFT)
    return _letters(value).lower()


def upper(budget: Budget, value: Json) -> str:
    """The text in capital letters."""
    budget.spend(len(_letters(value)) >> _ENCODED_SHIFT)
    return _letters(value).upper()


def _letters(value: Json) -> str:
    if not isinstance(value, str):
        raise RenderError("template_type", f"lower and upper need a text, not {kind(value)}")
    return value


def length(value: Json) -> int:
    """How many members a list or an object has, or characters a text."""
    if not isinstance(value, str | list | dict):
        raise RenderError("template_type", f"{kind(value)} has no length")
    return len(value)


def join(budget: Budget, value: Json, separator: Json = "") -> str:
    """The members of a list (or the characters of a text) as one text."""
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
    """The pieces as one text; stops as soon as it would be too large."""
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
    """The value as it stands in the middle of a text: a text as it is, the rest as compact JSON."""
    if isinstance(value, str):
        return value
    return str(value) if type(value) is int else to_json(value)


def to_json_counted(budget: Budget, value: Json) -> str:
    """The value as compact JSON text, quotes included; counts the bytes."""
    text = to_json(value)
    budget.spend(len(text) >> _ENCODED_SHIFT)
    return text


def to_json(value: Json) -> str:
    """The value as compact JSON text, quotes included."""
    text = _encoded(value)
    if len(text) > MAX_RENDERED_BYTES:
        raise too_large()
    return text.decode("utf-8", "surrogatepass")


# Sizes


def size_of(value: Json) -> int:
    """About how many bytes the value takes as JSON; raises invalid_number when it cannot be JSON."""
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
    if value is None or isinstance(value, bool):
        return 4
    return len(_encoded(value))


class Meter:
    """Counts the bytes of what is rendered and raises template_too_large at the limit."""

    __slots__ = ("_left", "budget")

    def __init__(self, budget: Budget, left: int = MAX_RENDERED_BYTES) -> None:
        self.budget = budget
        self._left = left

    def charged(self, value: Json) -> Json:
        """The value itself, once there is room for it."""
        size = size_of(value)
        if steps := size >> _ENCODED_SHIFT:
            self.budget.spend(steps)
        self._left -= size
        if self._left < 0:
            raise too_large()
        return value


def too_large() -> RenderError:
    """The error of a value that outgrew what a template may render."""
    return RenderError("template_too_large", f"more than {MAX_RENDERED_BYTES} bytes would be rendered")


def _encoded(value: Json) -> bytes:
    try:
        text = orjson.dumps(value)
    except TypeError:  # integers beyond 64 bits, lone surrogates, more than 254 levels
        return _encoded_slowly(value)
    if b"null" in text:
        _encoded_slowly(value)  # orjson writes NaN and infinity as null; this one refuses them
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
    """The type of a value in the words of JSON, for messages."""
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
