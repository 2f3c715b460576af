"""Canonical JSON by RFC 8785: equal values have one text, whoever wrote them and in whatever order.

The one departure: an integer within 64 bits is written as its digits. The RFC knows doubles only, in
which two large integers can be the same number; here they stay two.
"""

from __future__ import annotations

import hashlib
from typing import Any

import rfc8785

from cograil.errors import UsageError

MAX_DEPTH = 100
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class NotCanonical(UsageError):
    """The value has no canonical JSON: not JSON at all, too deep, or a number out of range."""

    code = "invalid_json"


def canonical(value: Any) -> bytes:
    """The one text of this JSON value, in UTF-8. Raises NotCanonical."""
    return _text(value, 0)


def fingerprint(value: Any) -> str:
    """SHA-256 of the canonical text, in hexadecimal. Raises NotCanonical."""
    return hashlib.sha256(canonical(value)).hexdigest()


def _text(value: Any, depth: int) -> bytes:
    if depth > MAX_DEPTH:
        raise NotCanonical(f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict):
        return b"{" + b",".join(_members(value, depth + 1)) + b"}"
    if isinstance(value, list | tuple):
        return b"[" + b",".join(_text(item, depth + 1) for item in value) + b"]"
    return _scalar(value)


def _members(value: dict[Any, Any], depth: int) -> list[bytes]:
    """The members in the order of their names as UTF-16."""
    if not all(isinstance(name, str) for name in value):
        raise NotCanonical("names of members must be strings")
    names = sorted(value, key=lambda name: name.encode("utf-16be", "surrogatepass"))
    return [_scalar(name) + b":" + _text(value[name], depth) for name in names]


def _scalar(value: Any) -> bytes:
    if isinstance(value, int) and not isinstance(value, bool):
        if not INT64_MIN <= value <= INT64_MAX:
            raise NotCanonical("an integer does not fit into 64 bits")
        return str(int(value)).encode()
    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError as error:
        raise NotCanonical(str(error)) from error
