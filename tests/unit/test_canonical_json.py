"""Canonical JSON: the vectors of RFC 8785, our integers, and what has no canonical form."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cograil.canonical_json import MAX_DEPTH, NotCanonical, canonical, fingerprint


def double(bits: str) -> float:
    """The number with this IEEE 754 representation, as in appendix B of the RFC."""
    return float(struct.unpack(">d", bytes.fromhex(bits))[0])


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555554", "333333333.33333325"),
        ("41b3de4355555555", "333333333.3333333"),
        ("41b3de4355555556", "333333333.3333334"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_the_numbers_of_the_rfc(bits: str, text: str) -> None:
    assert canonical(double(bits)).decode() == text


def test_the_example_of_the_rfc() -> None:
    document = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": '\u20ac$\u000f\nA\'B"\\\\"/',
        "literals": [None, True, False],
    }
    text = (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert canonical(document) == text.encode()


def test_members_are_sorted_by_utf_16() -> None:
    """A character beyond the basic plane comes before U+FB33, though its code point is higher."""
    names = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\x80", "\u00f6"]
    text = canonical(dict.fromkeys(names, 0)).decode()
    assert list(json.loads(text)) == ["\r", "1", "\x80", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


@pytest.mark.parametrize("number", [0, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)])
def test_an_integer_of_64_bits_is_its_digits(number: int) -> None:
    assert canonical({"n": number}) == b'{"n":%d}' % number


def test_large_integers_that_are_one_double_stay_two() -> None:
    assert float(2**53) == float(2**53 + 1)
    assert fingerprint([2**53]) != fingerprint([2**53 + 1])


def test_one_and_one_point_nothing_are_one_number_and_true_is_none() -> None:
    assert canonical([1, 1.0, True]) == b"[1,1,true]"


def test_empty_things_and_tuples() -> None:
    assert canonical([{}, [], (), (1, "a"), ""]) == b'[{},[],[],[1,"a"],""]'


def test_the_fingerprint_is_the_sha_256_of_the_text() -> None:
    assert fingerprint({"b": 1, "a": 2}) == hashlib.sha256(b'{"a":2,"b":1}').hexdigest()


def deep(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        -(2**63) - 1,
        float("nan"),
        float("inf"),
        "\ud800",
        {"\ud800": 1, "a": 2},
        {1: 2},
        {"a": {None: 1}},
        {1, 2},
        b"bytes",
        object(),
        deep(MAX_DEPTH + 1),
        deep(100_000),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_without_a_canonical_form_are_refused(value: Any) -> None:
    with pytest.raises(NotCanonical):
        canonical(value)


def test_the_maximum_depth_is_allowed() -> None:
    assert canonical(deep(MAX_DEPTH)) == b"[" * MAX_DEPTH + b"0" + b"]" * MAX_DEPTH


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(-(2.0**53), 2.0**53)  # larger ones have the shortest digits that mean the same double
    | st.text()
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


def shuffled(value: Any) -> Any:
    """The same value with every object's members the other way round."""
    if isinstance(value, dict):
        return {name: shuffled(value[name]) for name in reversed(value)}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@given(VALUES)
def test_the_text_means_the_value_and_the_order_of_members_does_not_count(value: Any) -> None:
    text = canonical(value)
    assert json.loads(text) == value
    assert canonical(json.loads(text)) == text
    assert canonical(shuffled(value)) == text
