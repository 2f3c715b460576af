"""YAML text to plain JSON: what gets through, what does not, and at which line and column."""

from __future__ import annotations

import time

import pytest

from cograil.definitions import yaml_loader
from cograil.definitions.diagnostics import Diagnostics
from cograil.definitions.yaml_loader import MAX_BYTES, Unreadable, read_yaml
from cograil.errors import Problem
from cograil.model.workflow import Json


def parsed(text: str) -> Json:
    report = Diagnostics()
    value = read_yaml(text, report)
    assert report.problems == []
    return value


def problems(text: str) -> list[Problem]:
    report = Diagnostics()
    try:
        read_yaml(text, report)
    except Unreadable:
        assert report.problems
    return list(report.error().problems)


def refused(text: str) -> set[str]:
    return {problem.code for problem in problems(text)}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("off", "off"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("0755", 755),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b11", "0b11"),
        ("1_000", "1_000"),
        ("12:30:00", "12:30:00"),
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01T10:00:00Z", "2024-01-01T10:00:00Z"),
        ("1e3", 1000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("-7", -7),
        ("+7", 7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("00000000000000000000000000000000042", 42),
        ("=", "="),
        ('"5"', "5"),
        ("'true'", "true"),
        ("|-\n  true", "true"),
        ('"\\u00e9"', "é"),
        ('"\\U0001F600"', "\U0001f600"),
    ],
)
def test_a_plain_scalar_means_what_the_core_schema_of_yaml_1_2_says(written: str, meant: Json) -> None:
    value = parsed(f"v: {written}")["v"]
    assert value == meant
    assert type(value) is type(meant)


def test_keys_that_yaml_1_1_took_for_booleans_are_strings() -> None:
    assert parsed("on: 1\nno: 2\ny: 3\n") == {"on": 1, "no": 2, "y": 3}


def test_a_byte_order_mark_a_document_start_and_a_yaml_1_2_directive_are_harmless() -> None:
    assert parsed("\ufeffa: 1") == parsed("---\na: 1\n...\n") == parsed("%YAML 1.2\n---\na: 1\n") == {"a": 1}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a: !!python/object/apply:os.system ['id']", "yaml_tag"),
        ("a: !!binary aGk=", "yaml_tag"),
        ("a: !!str 5", "yaml_tag"),
        ("a: ! x", "yaml_tag"),
        ("!x a: 1", "yaml_tag"),
        ("a: !!set {b, c}", "yaml_tag"),
        ("a: &x 1", "yaml_alias"),
        ("a: &x 1\nb: *x", "yaml_alias"),
        ("a: &a [*a]", "yaml_alias"),
        ("a: *nothing", "yaml_alias"),
        ("a: 1\na: 2", "duplicate_key"),
        ("{a: 1, 'a': 2}", "duplicate_key"),
        ("a: 1\n---\nb: 2", "yaml_unsupported"),
        ("%YAML 1.1\n---\na: no", "yaml_unsupported"),
        ("%TAG ! tag:x,2000:\n---\na: 1", "yaml_unsupported"),
        ("~: 1", "yaml_unsupported"),
        ("1: 1", "yaml_unsupported"),
        ("1.5: 1", "yaml_unsupported"),
        (".nan: 1", "yaml_unsupported"),
        ("true: 1", "yaml_unsupported"),
        ("? [a]\n: 1", "yaml_unsupported"),
        ("? {a: 1}\n: 1", "yaml_unsupported"),
        ("<<: {a: 1}", "yaml_unsupported"),
        ("a:\n\tb: 1", "yaml_unsupported"),
        ("\ta: 1", "yaml_unsupported"),
        ("a: .nan", "invalid_number"),
        ("a: .inf", "invalid_number"),
        ("a: -.INF", "invalid_number"),
        ("a: 1e999", "invalid_number"),
        ("a: 9223372036854775808", "invalid_number"),
        ("a: -9223372036854775809", "invalid_number"),
        ("a: 0xffffffffffffffff", "invalid_number"),
        (f"a: {'9' * 5000}", "invalid_number"),
        ("a: \0", "invalid_unicode"),
        ('a: "\\0"', "invalid_unicode"),
        ('a: "\\ud800"', "invalid_unicode"),
        ('"\\0": 1', "invalid_unicode"),
        ("a: \ud800", "invalid_unicode"),
        ("a: \x07", "invalid_unicode"),
        ("a: [1, 2", "yaml_syntax"),
        ("a: b: c", "yaml_syntax"),
        ('a: "\\UFFFFFFFF"', "yaml_syntax"),
        ("a: %x", "yaml_syntax"),
        ("x" * (MAX_BYTES + 1), "too_large"),
        ("é" * (MAX_BYTES // 2 + 1), "too_large"),
    ],
)
def test_yaml_that_is_not_plain_json_is_refused(text: str, code: str) -> None:
    assert code in refused(text)


def test_a_file_of_too_many_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a lower limit: to read 50,000 of them takes seconds."""
    monkeypatch.setattr(yaml_loader, "MAX_VALUES", 100)
    assert "too_large" in refused("a: [" + "1," * 100 + "]")
    assert len(read_yaml("a: [" + "1," * 90 + "]", Diagnostics())["a"]) == 90


@pytest.mark.parametrize(
    "text",
    ["a: " + "[" * 2_000, "a: " + "{x: " * 2_000, "a:\n" + "- " * 2_000, "a: " + "[" * 100_000],
    ids=["brackets", "braces", "dashes", "as many as fit"],
)
def test_deep_nesting_is_refused_at_once_and_without_recursion(text: str) -> None:
    begun = time.perf_counter()
    assert refused(text) == {"too_deep"}
    assert time.perf_counter() - begun < 10


def test_32_levels_are_not_too_deep_and_brackets_in_strings_do_not_count() -> None:
    assert parsed("[" * 32 + "]" * 32)
    assert refused("[" * 33 + "]" * 33) == {"too_deep"}
    assert parsed(f'a: "{"[" * 2_000}"')


def test_a_billion_laughs_end_as_an_error_in_no_time() -> None:
    lines = ["a0: &a0 [lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    assert refused("\n".join(lines)) == {"yaml_alias"}


def test_boolean_keys_are_strings_in_branches_and_refused_elsewhere() -> None:
    assert parsed("nodes:\n  a:\n    branches: {true: b, False: c}")["nodes"]["a"]["branches"] == {
        "true": "b",
        "false": "c",
    }
    assert refused("nodes:\n  a:\n    branches: {1: b}") == {"yaml_unsupported"}
    assert refused("nodes:\n  a:\n    params: {true: b}") == {"yaml_unsupported"}
    assert refused("nodes:\n  a:\n    params:\n      branches: {true: b}") == {"yaml_unsupported"}
    assert refused("nodes:\n  a:\n    branches: {true: b, 'true': c}") == {"duplicate_key"}


def test_every_problem_has_its_line_and_column() -> None:
    text = "a: 1\nb:\n  - !x 2\n  - .inf\na: *x\n? 5\n: 1\n"
    assert [(problem.code, problem.pointer, problem.line, problem.column) for problem in problems(text)] == [
        ("yaml_tag", "/b/0", 3, 5),
        ("invalid_number", "/b/1", 4, 5),
        ("duplicate_key", "/a", 5, 1),
        ("yaml_alias", "/a", 5, 4),
        ("yaml_unsupported", "/5", 6, 3),
    ]


def test_a_flaw_of_the_syntax_is_where_the_parser_stumbled() -> None:
    (problem,) = problems("a: 1\nb: [1, 2\nc: 3\n")
    assert (problem.line, problem.code) == (3, "yaml_syntax")
    (problem,) = problems("é: x\nb: \0")
    assert (problem.line, problem.column) == (2, 4)


def test_the_first_of_two_equal_keys_counts() -> None:
    report = Diagnostics()
    assert read_yaml("a: {b: 1}\na: {b: 2}\n", report) == {"a": {"b": 1}}
    assert report.values["/a/b"] == (1, 8)


def test_pointers_escape_slashes_and_tildes() -> None:
    report = Diagnostics()
    read_yaml("a/b: {c~d: 1}", report)
    assert "/a~1b/c~0d" in report.values
