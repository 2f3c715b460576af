"""Strict JSON: one meaning in, nothing bent on the way out."""

from __future__ import annotations

import json
import time
from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from cograil.errors import UsageError
from cograil.strict_json import InvalidJson, read, write

REFUSED = [
    (b"", "malformed_json", ""),
    (b"{", "malformed_json", ""),
    (b"{} x", "malformed_json", ""),
    (b"{'a': 1}", "malformed_json", ""),
    (b"// c\n{}", "malformed_json", ""),
    (b'{"a": 01}', "malformed_json", ""),
    (b'"a\nb"', "malformed_json", ""),
    (b"\xef\xbb\xbf{}", "invalid_encoding", ""),
    ("\ufeff{}", "invalid_encoding", ""),
    ('{"a": 1}'.encode("utf-16"), "invalid_encoding", ""),
    ('{"a": 1}'.encode("utf-16-le"), "invalid_encoding", ""),
    ('"é"'.encode("latin-1"), "invalid_encoding", ""),
    (b'{"a": 1, "a": 1}', "duplicate_key", ""),
    (b'{"a": [0, {"b/c": {"x": 1, "x": 2}}]}', "duplicate_key", "/a/1/b~1c"),
    (b'{"a": NaN}', "invalid_number", "/a"),
    (b"[1, -Infinity]", "invalid_number", "/1"),
    (b"[1e400]", "invalid_number", "/0"),
    (b"[-1e400]", "invalid_number", "/0"),
    (b'{"n": 9223372036854775808}', "out_of_range", "/n"),
    (b"[" + b"9" * 4000 + b"]", "out_of_range", "/0"),
    (b"[" + b"9" * 5000 + b"]", "invalid_number", "/0"),
    (b"[" * 33 + b"]" * 33, "too_deep", ""),
    (b"[" * 100_000, "too_deep", ""),
    (b'{"a":' * 100_000, "too_deep", ""),
    (b'"' + b"x" * 1024 * 1024 + b'"', "too_large", ""),
    (json.dumps({str(n): n for n in range(10_001)}), "too_large", ""),
    (b'{"s": "\\ud800"}', "invalid_unicode", "/s"),
    (b'{"\\udc00": 1}', "invalid_unicode", ""),
    (b'["a", "\\u0000"]', "invalid_unicode", "/1"),
    ('"\ud800"', "invalid_unicode", ""),
]


@pytest.mark.parametrize(("text", "code", "pointer"), REFUSED)
def test_text_that_is_not_plain_json_is_refused_with_code_and_place(
    text: str | bytes, code: str, pointer: str
) -> None:
    with pytest.raises(InvalidJson) as caught:
        read(text)
    assert (caught.value.code, caught.value.pointer) == (code, pointer)
    assert isinstance(caught.value, UsageError)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a": [1, 2.5, null, true, "x"]}', {"a": [1, 2.5, None, True, "x"]}),
        (b"9223372036854775807", 2**63 - 1),
        (b"-9223372036854775808", -(2**63)),
        (b"9007199254740993", 2**53 + 1),
        (b"0.100000000000000000000000000001", 0.1),
        (b'"\\\\u0000"', "\\u0000"),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'{"__proto__": 1, "__class__": 2}', {"__proto__": 1, "__class__": 2}),
        (b"[" * 32 + b"]" * 32, json.loads("[" * 32 + "]" * 32)),
        (json.dumps(["[" * 50, '"' + "{" * 50 + "\\"]), ["[" * 50, '"' + "{" * 50 + "\\"]),
        ("  {}\n", {}),
    ],
)
def test_plain_json_is_read_exactly(text: str | bytes, value: object) -> None:
    assert read(text) == value
    assert type(read(text)) is type(value)


def test_an_unterminated_string_of_escaped_quotes_is_refused_in_linear_time() -> None:
    text = b"[" * 33 + b'"' + b'\\"' * 500_000
    started = time.perf_counter()
    with pytest.raises(InvalidJson):
        read(text)
    with pytest.raises(InvalidJson):
        read(b"[]," * 33 + b'"' + b'\\"' * 500_000)
    assert time.perf_counter() - started < 1


def test_the_limit_is_in_bytes() -> None:
    assert read('"ä"', max_bytes=4) == "ä"
    with pytest.raises(InvalidJson, match="more than 3 bytes"):
        read('"ä"', max_bytes=3)


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: float
    y: float


class Model(BaseModel):
    when: datetime
    points: list[Any] = []


Pair = namedtuple("Pair", "left right")
LOOP: list[Any] = []
LOOP.append(LOOP)

UNWRITABLE = [
    ({"a": [1, float("nan")]}, "invalid_number", "/a/1"),
    ({"a": None, "b": float("inf")}, "invalid_number", "/b"),
    ({"p": Point(1.0, float("nan"))}, "invalid_number", "/p/y"),
    (Model(when=datetime(2026, 1, 1, tzinfo=UTC), points=[float("nan")]), "invalid_number", "/points/0"),
    ({"a": "x\0"}, "invalid_unicode", "/a"),
    ({"x\0": 1}, "invalid_unicode", ""),
    ({"a": ["\ud800"]}, "invalid_unicode", "/a/0"),
    ({"a": {1: 2}}, "invalid_type", "/a"),
    ({"a": 2**63}, "out_of_range", "/a"),
    ({"a": -(2**63) - 1}, "out_of_range", "/a"),
    ({"a": 2**200}, "out_of_range", "/a"),
    ({"a": {1, 2}}, "invalid_type", "/a"),
    ({"a": b"x"}, "invalid_type", "/a"),
    ({"a": Decimal("NaN")}, "invalid_type", "/a"),
    ({"a": object}, "invalid_type", "/a"),
    ({"a": datetime(2026, 1, 1)}, "invalid_type", "/a"),  # noqa: DTZ001
    (LOOP, "too_deep", ""),
    (json.loads("[" * 102 + "]" * 102), "too_deep", ""),
    ({"a": "x" * 2_000_000}, "too_large", ""),
]


@pytest.mark.parametrize(("value", "code", "pointer"), UNWRITABLE)
def test_a_value_that_jsonb_cannot_hold_is_refused_with_code_and_place(
    value: object, code: str, pointer: str
) -> None:
    with pytest.raises(InvalidJson) as caught:
        write(value)
    assert (caught.value.code, caught.value.pointer) == (code, pointer)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": (1, 2), "b": None}, b'{"a":[1,2],"b":null}'),
        ({"n": 2**63 - 1, "m": -(2**63)}, b'{"n":9223372036854775807,"m":-9223372036854775808}'),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), b'"2026-01-02T03:04:05+00:00"'),
        (date(2026, 1, 2), b'"2026-01-02"'),
        (UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
        ([None, Colour.RED, Pair(1, 2)], b'[null,"red",[1,2]]'),
        ({"null": Point(1, 2)}, b'{"null":{"x":1,"y":2}}'),
        ("null 9999999999999999999", b'"null 9999999999999999999"'),
        ("\\u0000", b'"\\\\u0000"'),
    ],
)
def test_values_with_one_form_in_json_are_written(value: object, text: bytes) -> None:
    assert write(value) == text


TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@given(TREES)
def test_written_json_reads_back_the_same(value: object) -> None:
    assert read(write(value)) == value


@given(st.binary(max_size=64) | st.text(alphabet='{}[]",:\\u0dN1e9 \n', max_size=64))
def test_any_text_is_read_or_refused_and_nothing_else_happens(text: str | bytes) -> None:
    try:
        value = read(text)
    except InvalidJson:
        return
    assert read(write(value)) == value


def test_a_decimal_is_written_as_the_string_it_is() -> None:
    assert write({"price": Decimal("19.90")}) == b'{"price":"19.90"}'
