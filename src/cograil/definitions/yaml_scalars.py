"""Plain scalars by the core schema of YAML 1.2: `no`, `12:30:00` and dates are strings."""

from __future__ import annotations

import math
import re

from cograil.model.workflow import Json

NULL = frozenset({"", "~", "null", "Null", "NULL"})
BOOLEANS = {word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OCTAL_OR_HEX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_SURROGATE_OR_NUL = re.compile("[\x00\ud800-\udfff]")

MAX_INTEGER, MIN_INTEGER = 2**63 - 1, -(2**63)


class BadNumber(ValueError):
    """A number that JSON or the database cannot represent."""


def resolve(text: str) -> Json:
    """Return the value of a plain (unquoted) scalar. Raises BadNumber."""
    if text in NULL:
        return None
    if text in BOOLEANS:
        return BOOLEANS[text]
    if _DECIMAL.fullmatch(text):
        return _integer(text, 10)
    if _OCTAL_OR_HEX.fullmatch(text):
        return _integer(text, 0)
    if _FLOAT.fullmatch(text):
        return _finite(text)
    if _NOT_FINITE.fullmatch(text):
        raise BadNumber(f"{text} is not a JSON number; quote it if it is text")
    return text


def is_clean(text: str) -> bool:
    """Whether PostgreSQL can store the text: it contains neither NUL nor an unpaired surrogate."""
    return _SURROGATE_OR_NUL.search(text) is None


def _integer(text: str, base: int) -> int:
    # Python refuses to convert thousands of digits; leading zeros aside, 64 bits have at most 22.
    digits = text.lstrip("+-0")
    number = int(text, base) if len(digits) <= 24 else MAX_INTEGER + 1
    if not MIN_INTEGER <= number <= MAX_INTEGER:
        preview = text if len(text) <= 24 else f"{text[:20]}..."
        raise BadNumber(f"{preview} does not fit into 64 bits; quote it to keep its digits")
    return number


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise BadNumber(f"{text[:40]} is too large for a number")
    return number
