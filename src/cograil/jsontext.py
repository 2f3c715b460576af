"""JSON in and out, strictly: what is read means one thing, what is written PostgreSQL can hold.

`read` is for text from outside: every ambiguity (duplicate keys, NaN, a byte order mark) is refused.
`write` is for values of handlers: what JSON or jsonb cannot hold is refused, never bent into null.
Both raise `InvalidJson`, which says where in the document the flaw is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import math
import re
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, NoReturn
from uuid import UUID

import orjson

from cograil.errors import UsageError

Json = Any

MAX_BYTES = 1024 * 1024
MAX_DEPTH_READ = 32
MAX_DEPTH_WRITTEN = 100
MAX_KEYS = 10_000
MAX_KEYS_OF_MANY = 500_000
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
MAX_INT_DIGITS = 20
MAX_READABLE_DIGITS = 4300  # of an integer; what is longer is no mistake

_MUCH_BYTES = 32 * 1024

_STATUS = {"out_of_range": 422, "too_large": 413}


class InvalidJson(UsageError):
    """The text is not JSON that we accept, or the value cannot be written as such."""

    def __init__(self, code: str, message: str, pointer: str = "", status: int | None = None) -> None:
        where = f" at {_shown(pointer)}" if pointer else ""
        super().__init__(f"{message}{where}")
        self.code = code
        self.message = message
        self.pointer = pointer
        self.status = status or _STATUS.get(code, 400)


def _shown(text: str) -> str:
    """At most 100 characters of what was given, without control characters."""
    cut = text if len(text) <= 100 else text[:97] + "..."
    return cut if cut.isprintable() else ascii(cut)


# ---------------------------------------------------------------------------------------- reading


@dataclasses.dataclass(frozen=True, slots=True)
class _Flaw:
    """Stands in the parsed document where something refused was, so that we can say where."""

    code: str
    message: str


def read(text: str | bytes, *, max_bytes: int = MAX_BYTES, max_keys: int = MAX_KEYS) -> Json:
    """The value of this JSON text; raises `InvalidJson` for anything but plain, unambiguous JSON."""
    raw = _encoded(text, max_bytes)
    if len(raw) > max_bytes:
        raise InvalidJson("too_large", f"JSON of more than {max_bytes:,} bytes")
    decoded = _decoded(raw)
    _refuse_depth(raw)
    document = _Document(raw, max_keys)
    value = document.parse(decoded)
    if document.has_flaws or _may_hold_bad_text(raw, value):
        _refuse_first_flaw(value)
    return value


def read_each(raw: bytes, name: str, *, most: int, max_bytes: int = MAX_BYTES) -> list[Json] | None:
    """The items of `{"name": [...]}`, each read as a document of its own: its value, or what is wrong.

    One more than `most` is enough of them. None for text that is something else, or nothing that can be read.
    Raises `InvalidJson` for bytes that are no text, and for more than one can hold.
    """
    text = _decoded(raw)
    begun = re.compile(rf'[ \t\r\n]*+{{[ \t\r\n]*+"{name}"[ \t\r\n]*+:[ \t\r\n]*+\[[ \t\r\n]*+').match(text)
    items: list[Json] = []
    keys, place = 0, None if begun is None else begun.end()
    hooks = _number_hooks(raw)
    while place is not None and len(items) <= most:
        document = _Document(raw, MAX_KEYS_OF_MANY, keys, hooks)
        try:
            value, end = document.decoder.raw_decode(text, place)
        except (json.JSONDecodeError, RecursionError):
            return None
        items.append(_own(text[place:end], value, document.keys - keys, document.has_flaws, max_bytes))
        keys = document.keys
        if _END_OF_MANY.match(text, end):
            return items
        following = _NEXT_OF_MANY.match(text, end)
        place = None if following is None else following.end()
    return items if len(items) > most else None


_NEXT_OF_MANY = re.compile(r"[ \t\r\n]*+,[ \t\r\n]*+")
_END_OF_MANY = re.compile(r"[ \t\r\n]*+\][ \t\r\n]*+\}[ \t\r\n]*+\Z")


def _own(text: str, value: Json, keys: int, has_flaws: bool, max_bytes: int) -> Json:
    """One of many: its value, or the InvalidJson that it would be by itself."""
    raw = text.encode()
    try:
        if len(raw) > max_bytes:
            raise InvalidJson("too_large", f"JSON of more than {max_bytes:,} bytes")
        _refuse_depth(raw)
        _refuse_keys(keys, MAX_KEYS)
        if has_flaws or _may_hold_bad_text(raw, value):
            _refuse_first_flaw(value)
    except InvalidJson as error:
        return error
    return value


def _encoded(text: str | bytes, max_bytes: int) -> bytes:
    if isinstance(text, bytes):
        return text
    try:
        return text[: max_bytes + 1].encode()
    except UnicodeEncodeError:
        raise InvalidJson("invalid_unicode", "a lone surrogate in the text") from None


def _decoded(raw: bytes) -> str:
    if raw.startswith((b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe")) or b"\0" in raw[:4]:
        raise InvalidJson("invalid_encoding", "JSON must be UTF-8 without a byte order mark")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidJson("invalid_encoding", f"not UTF-8 from byte {error.start} on") from None


# A string without its end also matches: starting over at each of its quotes would take quadratic time.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_BRACES_TO_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _refuse_depth(raw: bytes) -> None:
    """Refuse deep nesting before a recursive parser sees it."""
    if _is_deep(raw, MAX_DEPTH_READ):
        raise InvalidJson("too_deep", f"JSON nested more than {MAX_DEPTH_READ} levels deep")


def _is_deep(raw: bytes, most: int) -> bool:
    """Whether brackets are nested deeper than this; takes one round over what is left for each level."""
    if raw.count(b"[") + raw.count(b"{") <= most:
        return False
    left = _STRING.sub(b"", raw).translate(_BRACES_TO_BRACKETS, _NO_BRACKETS)
    for _ in range(most):
        shorter = left.replace(b"[]", b"")
        if len(shorter) == len(left):
            break
        left = shorter
    # What is left was nested deeper, or is not closed: too much of that is too deep for a parser, too.
    return b"[]" in left or left.count(b"[") > most


def _refuse_keys(keys: int, most: int) -> None:
    if keys > most:
        raise InvalidJson("too_large", f"JSON with more than {most:,} keys", status=422)


_NUMBERS_ALIKE = bytes.maketrans(b"123456789E", b"000000000e")
_SIGNED_ZERO = re.compile(rb"-0(?![0-9.eE])")


@dataclasses.dataclass(frozen=True, slots=True)
class _NumberHooks:
    """Which numbers of a text are read by our own functions; the parser's own are ten times as fast."""

    integers: bool
    floats: bool


def _number_hooks(raw: bytes) -> _NumberHooks:
    """A closer look is for many digits in a row, for a zero with a sign and for exponents."""
    alike = raw.translate(_NUMBERS_ALIKE)
    has_long = _LONG_NUMBER in alike
    return _NumberHooks(has_long or _SIGNED_ZERO.search(raw) is not None, has_long or b"0e" in alike)


@contextlib.contextmanager
def _collector_paused(size: int) -> Iterator[None]:
    """While much is parsed: the collector would look again and again at lists that are all in use."""
    if size < _MUCH_BYTES or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def load(text: bytes) -> Json:
    """The value of JSON text that was checked when it was stored."""
    if len(text) < _MUCH_BYTES:  # a context manager takes longer than most texts
        return orjson.loads(text)
    with _collector_paused(len(text)):
        return orjson.loads(text)


class _Document:
    """One parse: counts keys, beside those of others, and puts flaws where refused things were."""

    def __init__(
        self, raw: bytes, most_keys: int = MAX_KEYS, keys: int = 0, hooks: _NumberHooks | None = None
    ) -> None:
        self.has_flaws = False
        self.keys = keys
        self._most_keys = most_keys
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
            where = f"line {error.lineno} column {error.colno}"
            raise InvalidJson("malformed_json", f"{error.msg}: {where}") from None

    def _object(self, pairs: list[tuple[str, Json]]) -> dict[str, Json] | _Flaw:
        self.keys += len(pairs)
        _refuse_keys(self.keys, self._most_keys)
        result = dict(pairs)
        if len(result) == len(pairs):
            return result
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        return self._flaw("duplicate_key", f'the key "{_shown(twice)}" appears twice')

    def _integer(self, digits: str) -> float | _Flaw:
        if digits == "-0":
            return -0.0  # there is no such integer
        if len(digits) > MAX_READABLE_DIGITS:
            return self._flaw("invalid_number", "a number of thousands of digits")
        if len(digits) <= MAX_INT_DIGITS and INT64_MIN <= (value := int(digits)) <= INT64_MAX:
            return value
        return self._flaw("out_of_range", "an integer beyond 64 bits")

    def _float(self, digits: str) -> float | _Flaw:
        value = float(digits)
        return value if math.isfinite(value) else self._flaw("invalid_number", "a number beyond a double")

    def _constant(self, name: str) -> _Flaw:
        return self._flaw("invalid_number", f"{name} is not a JSON number")

    def _flaw(self, code: str, message: str) -> _Flaw:
        self.has_flaws = True
        return _Flaw(code, message)


# ---------------------------------------------------------------------------------------- writing

_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * len(str(INT64_MAX))


def write(value: Json, *, max_bytes: int = MAX_BYTES) -> bytes:
    """This value as compact JSON that jsonb can hold; raises `InvalidJson` if there is none.

    Beside JSON's own types it takes tuples, aware datetimes, dates, times, UUIDs, enums, dataclasses
    and pydantic models, and Decimals as strings. Sets and bytes have no one form in JSON and are refused.
    """
    try:
        text = orjson.dumps(value, _plain, _OPTIONS)
    except TypeError as error:
        _refuse_first_flaw(value)
        raise InvalidJson("invalid_type", _shown(str(error))) from error
    if len(text) > max_bytes:
        raise InvalidJson("too_large", f"JSON of {len(text):,} bytes where {max_bytes:,} are allowed")
    if _may_hide_a_flaw(text) or (b"null" in text and _holds_nan(value)):
        _refuse_first_flaw(value)
    return text


def kind_of(value: Json) -> str:
    """What JSON calls the type of a value, with its article."""
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


def _may_hide_a_flaw(text: bytes) -> bool:
    """Whether the value needs a closer look: orjson lets NUL, uint64 and depth pass."""
    return (
        b"\\u0000" in text
        or _LONG_NUMBER in text.translate(_DIGITS_TO_ZERO)
        or _is_deep(text, MAX_DEPTH_WRITTEN)
    )


def _holds_nan(value: Json) -> bool:
    """Whether a null was a NaN or an infinity: orjson writes those as null without a word."""
    try:
        _encode_finite(value)
    except ValueError:
        return True
    return False


def _plain(value: object) -> Json:
    """What stands in JSON for a value that JSON does not know; raises `InvalidJson` if nothing does."""
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
        case tuple():  # a named one
            return list(value)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        case _ if hasattr(value, "model_dump") and not isinstance(value, type):
            return value.model_dump()
    raise InvalidJson("invalid_type", f"a value of type {type(value).__name__}, which JSON does not know")


_encode_finite = json.JSONEncoder(allow_nan=False, check_circular=False, default=_plain).encode


# -------------------------------------------------------------------------------------- searching

_KNOWN = (str, int, float, dict, list, tuple, _Flaw)
_HARMLESS = frozenset({bool, type(None)})


class _Step(NamedTuple):
    """A part of a document and how one came to it."""

    value: Json
    name: str
    above: _Step | None
    depth: int


def _refuse_first_flaw(root: Json) -> None:
    """Raise for the first flaw in document order, with a JSON pointer to it; slow, for the suspect only."""
    pending = [_Step(root, "", None, 0)]
    while pending:
        step = pending.pop()
        if step.depth > MAX_DEPTH_WRITTEN:
            raise InvalidJson("too_deep", f"JSON nested more than {MAX_DEPTH_WRITTEN} levels deep")
        try:
            value = _opened(step.value)
        except InvalidJson as error:
            _refuse(error.code, error.message, _path(step))
        if flaw := _flaw_in(value):
            _refuse(flaw.code, flaw.message, _path(step))
        children = [
            _Step(child, name, step, step.depth + 1)
            for name, child in _named_children(value)
            if not _is_harmless(child)
        ]
        children.reverse()
        pending += children


def _is_harmless(value: Json) -> bool:
    kind = type(value)
    if kind is str:
        return bool(value.isascii()) and "\0" not in value
    if kind is int:
        return bool(INT64_MIN <= value <= INT64_MAX)
    return kind in _HARMLESS


def _path(step: _Step) -> tuple[str, ...]:
    names = []
    while step.above is not None:
        names.append(step.name)
        step = step.above
    return tuple(reversed(names))


def _may_hold_bad_text(raw: bytes, value: Json) -> bool:
    """Whether a text may hold U+0000 or half a surrogate pair. Only escapes can bring them."""
    if not _SUSPECT_ESCAPE.search(raw):
        return False
    try:
        return b"\\u0000" in orjson.dumps(value)
    except TypeError:
        return True


_SUSPECT_ESCAPE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


def _opened(value: Json) -> Json:
    is_known = value is None or isinstance(value, _KNOWN)
    return value if is_known and not isinstance(value, Enum) else _plain(value)


def _flaw_in(value: Json) -> _Flaw | None:
    match value:
        case _Flaw():
            return value
        case str():
            return _flaw_in_text(value)
        case float() if not math.isfinite(value):
            return _Flaw("invalid_number", f"{value} is not a JSON number")
        case int() if not INT64_MIN <= value <= INT64_MAX:
            return _Flaw("out_of_range", "an integer beyond 64 bits")
        case dict():
            return next((flaw for key in value if (flaw := _flaw_in_key(key))), None)
    return None


def _flaw_in_key(key: object) -> _Flaw | None:
    if type(key) is not str:
        return _Flaw("invalid_type", f"a key of type {type(key).__name__}, where JSON has only strings")
    return _flaw_in_text(key)


def _flaw_in_text(text: str) -> _Flaw | None:
    if "\0" in text:
        return _Flaw("invalid_unicode", "the character U+0000")
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        return _Flaw("invalid_unicode", "a lone surrogate")
    return None


def _named_children(value: Json) -> Iterator[tuple[str, Json]]:
    match value:
        case dict():
            yield from value.items()
        case list() | tuple():
            yield from ((str(index), child) for index, child in enumerate(value))


def _refuse(code: str, message: str, path: tuple[str, ...]) -> NoReturn:
    steps = (step.replace("~", "~0").replace("/", "~1") for step in path)
    raise InvalidJson(code, message, "".join(f"/{step}" for step in steps))
