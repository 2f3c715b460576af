"""Canonical JSON (RFC 8785): equal values have equal text, regardless of member order and writer.

One deviation: an integer within 64 bits is written as its digits. The RFC has only doubles, in which two
different large integers can become the same number.
"""

from __future__ import annotations

import hashlib
from typing import Any

import rfc8785

from cograil.errors import UsageError

MAX_DEPTH = 100
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class NotCanonical(UsageError):
    """The value has no canonical JSON form: it is not JSON, too deep, or has a number out of range."""

    code = "invalid_json"


def canonical(value: Any) -> bytes:
    """Return the canonical text of a JSON value, in UTF-8. Raises NotCanonical."""
    return _encode(value, 0)


def fingerprint(value: Any) -> str:
    """Return the SHA-256 of the canonical text, in hexadecimal. Raises NotCanonical."""
    return hashlib.sha256(canonical(value)).hexdigest()


def _encode(value: Any, depth: int) -> bytes:
    if depth > MAX_DEPTH:
        raise NotCanonical(f"nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        return b"{" + b",".join(_encode_members(value, depth + 1)) + b"}"
    if isinstance(value, list | tuple):
        return b"[" + b",".join(_encode(item, depth + 1) for item in value) + b"]"
    return _encode_scalar(value)


def _encode_members(value: dict[Any, Any], depth: int) -> list[bytes]:
    """Encode the members, sorted by name in UTF-16."""
    if not all(isinstance(name, str) for name in value):
        raise NotCanonical("member names must be strings")
    names = sorted(value, key=lambda name: name.encode("utf-16be", "surrogatepass"))
    return [_encode_scalar(name) + b":" + _encode(value[name], depth) for name in names]


def _encode_scalar(value: Any) -> bytes:
    if isinstance(value, int) and not isinstance(value, bool):
        if not INT64_MIN <= value <= INT64_MAX:
            raise NotCanonical("an integer does not fit into 64 bits")
        return str(int(value)).encode()
    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError as error:
        raise NotCanonical(str(error)) from error
