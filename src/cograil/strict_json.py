"""Strict JSON: unambiguous when read, storable in jsonb when written.

`read` is for text from outside: it rejects every ambiguity (duplicate keys, NaN, a byte order mark).
`write` is for values of handlers: it rejects what JSON or jsonb cannot hold instead of writing null.
Both raise `InvalidJson` with the location of the flaw in the document.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import math
import re
from collections.abc import Iterator

import orjson

from cograil.json_flaws import (
    INT64_MAX,
    INT64_MIN,
    MAX_DEPTH_WRITTEN,
    Flaw,
    InvalidJson,
    Json,
    raise_first_flaw,
    shorten,
    to_json_type,
)

__all__ = ["InvalidJson", "Json", "kind_of", "load", "read", "read_each", "write"]

MAX_BYTES = 1024 * 1024
MAX_DEPTH_READ = 32
MAX_KEYS = 10_000
MAX_BATCH_KEYS = 500_000
MAX_INT_DIGITS = 20
MAX_READABLE_DIGITS = 4300  # digits of an integer; a longer one is not a typing mistake

_LARGE_BYTES = 32 * 1024

# ---------------------------------------------------------------------------------------- reading


def read(text: str | bytes, *, max_bytes: int = MAX_BYTES, max_keys: int = MAX_KEYS) -> Json:
    """Return the value of this JSON text. Raises `InvalidJson` for anything but unambiguous JSON."""
    raw = _encode(text, max_bytes)
    if len(raw) > max_bytes:
        raise InvalidJson("too_large", f"JSON of more than {max_bytes:,} bytes")
    decoded = _decode(raw)
    _check_depth(raw)
    document = _Document(raw, max_keys)
    value = document.parse(decoded)
    if document.has_flaws or _may_have_bad_text(raw, value):
        raise_first_flaw(value)
    return value


def read_each(raw: bytes, name: str, *, max_items: int, max_bytes: int = MAX_BYTES) -> list[Json] | None:
    """Return the items of `{"name": [...]}`, each read as its own document: a value or an InvalidJson.

    Reading stops after `max_items` + 1 items. Returns None for text of another form or malformed JSON. Raises
    `InvalidJson` for bytes that are not UTF-8, and for too many keys.
    """
    text = _decode(raw)
    start = re.compile(rf'[ \t\r\n]*+{{[ \t\r\n]*+"{name}"[ \t\r\n]*+:[ \t\r\n]*+\[[ \t\r\n]*+').match(text)
    items: list[Json] = []
    keys, position = 0, None if start is None else start.end()
    hooks = _number_hooks(raw)
    while position is not None and len(items) <= max_items:
        document = _Document(raw, MAX_BATCH_KEYS, keys, hooks)
        try:
            value, end = document.decoder.raw_decode(text, position)
        except (json.JSONDecodeError, RecursionError):
            return None
        items.append(
            _check_item(text[position:end], value, document.keys - keys, document.has_flaws, max_bytes)
        )
        keys = document.keys
        if _LIST_END.match(text, end):
            return items
        separator = _ITEM_SEPARATOR.match(text, end)
        position = None if separator is None else separator.end()
    return items if len(items) > max_items else None


_ITEM_SEPARATOR = re.compile(r"[ \t\r\n]*+,[ \t\r\n]*+")
_LIST_END = re.compile(r"[ \t\r\n]*+\][ \t\r\n]*+\}[ \t\r\n]*+\Z")


def _check_item(text: str, value: Json, keys: int, has_flaws: bool, max_bytes: int) -> Json:
    """Return the value of one item, or the InvalidJson that `read` would raise for it alone."""
    raw = text.encode()
    try:
        if len(raw) > max_bytes:
            raise InvalidJson("too_large", f"JSON of more than {max_bytes:,} bytes")
        _check_depth(raw)
        _check_keys(keys, MAX_KEYS)
        if has_flaws or _may_have_bad_text(raw, value):
            raise_first_flaw(value)
    except InvalidJson as error:
        return error
    return value


def _encode(text: str | bytes, max_bytes: int) -> bytes:
    if isinstance(text, bytes):
        return text
    try:
        return text[: max_bytes + 1].encode()
    except UnicodeEncodeError:
        raise InvalidJson("invalid_unicode", "a lone surrogate in the text") from None


def _decode(raw: bytes) -> str:
    if raw.startswith((b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe")) or b"\0" in raw[:4]:
        raise InvalidJson("invalid_encoding", "JSON must be UTF-8 without a byte order mark")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidJson("invalid_encoding", f"not UTF-8 from byte {error.start} on") from None


# An unterminated string also matches: restarting at each of its quotes would take quadratic time.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_BRACES_TO_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _check_depth(raw: bytes) -> None:
    """Reject deep nesting before a recursive parser reads it."""
    if _is_deep(raw, MAX_DEPTH_READ):
        raise InvalidJson("too_deep", f"JSON nested more than {MAX_DEPTH_READ} levels deep")


def _is_deep(raw: bytes, max_depth: int) -> bool:
    """Return whether brackets are nested deeper than this; makes one pass over the brackets per level."""
    if raw.count(b"[") + raw.count(b"{") <= max_depth:
        return False
    brackets = _STRING.sub(b"", raw).translate(_BRACES_TO_BRACKETS, _NO_BRACKETS)
    for _ in range(max_depth):
        shorter = brackets.replace(b"[]", b"")
        if len(shorter) == len(brackets):
            break
        brackets = shorter
    # The remaining brackets are nested deeper or not closed; many unclosed ones are too deep for a parser too.
    return b"[]" in brackets or brackets.count(b"[") > max_depth


def _check_keys(keys: int, max_keys: int) -> None:
    if keys > max_keys:
        raise InvalidJson("too_large", f"JSON with more than {max_keys:,} keys", status=422)


_DIGITS_AND_EXPONENT = bytes.maketrans(b"123456789E", b"000000000e")
_SIGNED_ZERO = re.compile(rb"-0(?![0-9.eE])")


@dataclasses.dataclass(frozen=True, slots=True)
class _NumberHooks:
    """The numbers of a text that need hooks; the parser's own conversion is ten times as fast."""

    integers: bool
    floats: bool


def _number_hooks(raw: bytes) -> _NumberHooks:
    """Select the hooks for long digit sequences, negative zero and exponents."""
    digits = raw.translate(_DIGITS_AND_EXPONENT)
    has_long = _LONG_NUMBER in digits
    return _NumberHooks(has_long or _SIGNED_ZERO.search(raw) is not None, has_long or b"0e" in digits)


@contextlib.contextmanager
def _collector_paused(size: int) -> Iterator[None]:
    """Pause garbage collection for a large document: repeated scans of its live lists are slow."""
    if size < _LARGE_BYTES or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def load(text: bytes) -> Json:
    """Return the value of JSON text that was checked when it was stored."""
    if len(text) < _LARGE_BYTES:  # a context manager takes longer than most texts
        return orjson.loads(text)
    with _collector_paused(len(text)):
        return orjson.loads(text)


class _Document:
    """One parse: counts keys, on top of those of earlier items, and marks invalid parts with a Flaw."""

    def __init__(
        self, raw: bytes, max_keys: int = MAX_KEYS, keys: int = 0, hooks: _NumberHooks | None = None
    ) -> None:
        self.has_flaws = False
        self.keys = keys
        self._max_keys = max_keys
        hooks = hooks or _number_hooks(raw)
        self.decoder = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_int=self._integer if hooks.integers else None,
            parse_float=self._float if hooks.floats else None,
            parse_constant=self._constant,
        )

    def parse(self, text: str) -> Json:
        try:
            with _collector_paused(len(text)):
                return self.decoder.decode(text)
        except json.JSONDecodeError as error:
            position = f"line {error.lineno} column {error.colno}"
            raise InvalidJson("malformed_json", f"{error.msg}: {position}") from None

    def _object(self, pairs: list[tuple[str, Json]]) -> dict[str, Json] | Flaw:
        self.keys += len(pairs)
        _check_keys(self.keys, self._max_keys)
        result = dict(pairs)
        if len(result) == len(pairs):
            return result
        seen: set[str] = set()
        duplicate = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        return self._flaw("duplicate_key", f'the key "{shorten(duplicate)}" appears twice')

    def _integer(self, digits: str) -> float | Flaw:
        if digits == "-0":
            return -0.0  # integers have no negative zero
        if len(digits) > MAX_READABLE_DIGITS:
            return self._flaw("invalid_number", "a number of thousands of digits")
        if len(digits) <= MAX_INT_DIGITS and INT64_MIN <= (value := int(digits)) <= INT64_MAX:
            return value
        return self._flaw("out_of_range", "an integer beyond 64 bits")

    def _float(self, digits: str) -> float | Flaw:
        value = float(digits)
        return value if math.isfinite(value) else self._flaw("invalid_number", "a number beyond a double")

    def _constant(self, name: str) -> Flaw:
        return self._flaw("invalid_number", f"{name} is not a JSON number")

    def _flaw(self, code: str, message: str) -> Flaw:
        self.has_flaws = True
        return Flaw(code, message)


# ---------------------------------------------------------------------------------------- writing

_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * len(str(INT64_MAX))


def write(value: Json, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Return this value as compact JSON that jsonb can hold. Raises `InvalidJson` if that is impossible.

    Besides JSON's own types it accepts tuples, aware datetimes, dates, times, UUIDs, enums, dataclasses and
    pydantic models, and writes Decimals as strings. Sets and bytes have no obvious JSON form and are rejected.
    """
    try:
        text = orjson.dumps(value, to_json_type, _OPTIONS)
    except TypeError as error:
        raise_first_flaw(value)
        raise InvalidJson("invalid_type", shorten(str(error))) from error
    if len(text) > max_bytes:
        raise InvalidJson("too_large", f"JSON of {len(text):,} bytes where {max_bytes:,} are allowed")
    if _may_have_flaw(text) or (b"null" in text and _holds_nan(value)):
        raise_first_flaw(value)
    return text


def kind_of(value: Json) -> str:
    """Return the JSON type of a value with its article, such as "a string"."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "a mapping"


def _may_have_flaw(text: bytes) -> bool:
    """Return whether the value must be searched: orjson accepts NUL, uint64 and any depth."""
    return (
        b"\\u0000" in text
        or _LONG_NUMBER in text.translate(_DIGITS_TO_ZERO)
        or _is_deep(text, MAX_DEPTH_WRITTEN)
    )


def _holds_nan(value: Json) -> bool:
    """Return whether a null was a NaN or an infinity: orjson writes both as null."""
    try:
        _encode_finite(value)
    except ValueError:
        return True
    return False


_encode_finite = json.JSONEncoder(allow_nan=False, check_circular=False, default=to_json_type).encode


def _may_have_bad_text(raw: bytes, value: Json) -> bool:
    """Return whether a text may hold U+0000 or a lone surrogate; only escapes can produce them."""
    if not _SUSPECT_ESCAPE.search(raw):
        return False
    try:
        return b"\\u0000" in orjson.dumps(value)
    except TypeError:
        return True


_SUSPECT_ESCAPE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
