"""Inputs as they are typed, and what they mean."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import click
import pytest

from cograil.cli.input_parsing import Timestamp, read_inputs, read_labels
from cograil.errors import InvalidInput, UsageError
from cograil.model.workflow import InputSpec


def declared(**types: str) -> dict[str, InputSpec]:
    return {name: InputSpec(name, kind) for name, kind in types.items()}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", "5", "5"),
        ("string", "null", "null"),
        ("string", "", ""),
        ("string", "a=b", "a=b"),
        ("integer", "5", 5),
        ("number", "0.5", 0.5),
        ("boolean", "true", True),
        ("array", "[1, 2]", [1, 2]),
        ("object", '{"a": 1}', {"a": 1}),
        ("integer", "null", None),
    ],
)
def test_an_input_is_read_by_its_declared_type(kind: str, text: str, value: Any) -> None:
    assert read_inputs(None, [f"x={text}"], declared(x=kind)) == {"x": value}


@pytest.mark.parametrize(
    ("text", "value"),
    [("5", 5), ('"5"', "5"), ("true", True), ("[1]", [1]), ("hello", "hello"), ("NaN", "NaN"), ("{", "{")],
)
def test_an_undeclared_input_is_json_when_it_is_and_text_when_not(text: str, value: Any) -> None:
    assert read_inputs(None, [f"x={text}"], None) == {"x": value}


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("x=five", "a whole number such as 5"),
        ("x=", "a whole number such as 5"),
        ("x", "is not KEY=VALUE"),
        ("=5", "is not KEY=VALUE"),
    ],
)
def test_an_input_that_cannot_be_read_says_what_to_give(pair: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_inputs(None, [pair], declared(x="integer"))


def test_all_inputs_that_do_not_fit_are_reported_at_once() -> None:
    with pytest.raises(InvalidInput, match=r"--input i=x: .* 5 .*\n--input j=y: .* true or false") as caught:
        read_inputs(None, ["i=x", "s=x", "j=y"], declared(i="integer", s="string", j="boolean"))
    assert [problem.pointer for problem in caught.value.problems] == ["/input_params/i", "/input_params/j"]


def test_an_input_that_is_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="--input x is given twice"):
        read_inputs(None, ["x=1", "x=2"], None)


@pytest.mark.parametrize("text", ["\x00", "\udcff"])
def test_text_that_the_database_cannot_hold_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_inputs(None, [f"x={text}"], declared(x="string"))


def test_pairs_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "inputs.json"
    file.write_text('{"a": 1, "b": 2}')
    assert read_inputs(str(file), ["b=3"], None) == {"a": 1, "b": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [("[1]", "must contain a JSON object"), ('{"a": 1, "a": 2}', "inputs.json"), ("", "inputs.json")],
)
def test_a_file_that_is_not_one_json_object_is_refused_by_its_name(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "inputs.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_inputs(str(file), [], None)


def test_inputs_that_are_too_large_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "inputs.json"
    file.write_text('{"a": "' + "x" * 100 + '"}')
    with pytest.raises(UsageError):
        read_inputs(str(file), [], None, max_bytes=50)


def test_labels_keep_their_bounds() -> None:
    assert read_labels(["team=ops", "empty="]) == {"team": "ops", "empty": ""}
    assert read_labels([]) is None
    for pairs in ([f"{'k' * 64}=v"], [f"k={'v' * 256}"], [f"k{number}=v" for number in range(65)]):
        with pytest.raises(UsageError):
            read_labels(pairs)


def test_a_moment_needs_its_time_zone() -> None:
    assert Timestamp().convert("2026-01-31T09:00:00Z", None, None) == datetime(2026, 1, 31, 9, tzinfo=UTC)
    summer = timezone(timedelta(hours=2))
    assert Timestamp().convert("2026-07-01T09:00+02:00", None, None) == datetime(2026, 7, 1, 9, tzinfo=summer)
    for text in ("2026-01-31T09:00:00", "tomorrow"):
        with pytest.raises(click.BadParameter):
            Timestamp().convert(text, None, None)
    with pytest.raises(click.BadParameter) as caught:
        Timestamp().convert("2026-01-31", None, None)
    (moment,) = re.findall(r"write (\S+) for UTC", str(caught.value))  # and that is taken
    assert Timestamp().convert(moment, None, None) == datetime(2026, 1, 31, tzinfo=UTC)
