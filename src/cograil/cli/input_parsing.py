"""Inputs of a job, labels and moments, from what is typed to what they mean."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from cograil import strict_json
from cograil.definitions.inputs_section import INPUTS, unknown_inputs
from cograil.errors import InvalidInput, Problem, UsageError
from cograil.model.workflow import InputSpec, Json

MAX_LABELS, MAX_LABEL_KEY, MAX_LABEL_VALUE = 64, 63, 255


def read_inputs(
    file: str | None,
    pairs: Sequence[str],
    declared: Mapping[str, InputSpec] | None,
    *,
    max_bytes: int = strict_json.MAX_BYTES,
) -> dict[str, Json]:
    """The inputs of a job from a file and from KEY=VALUE pairs, which win.

    Raises UsageError; of pairs that do not fit their declaration, InvalidInput with all of them.
    """
    given = {} if file is None else _read_file(file, max_bytes)
    problems = []
    for key, text in split_pairs(pairs, "--input").items():
        spec = (declared or {}).get(key)
        try:
            given[key] = _value(text, spec)
        except strict_json.InvalidJson:
            assert spec is not None  # else it would be text
            message = f"--input {key}={text}: {_expected(spec.type)}"
            problems.append(Problem("invalid_type", message, f"{INPUTS}/{key}"))
    if problems and declared is not None:
        problems += unknown_inputs(given, declared)
    if problems:
        raise InvalidInput(problems)
    strict_json.write(given, max_bytes=max_bytes)  # what the database could not hold is refused here
    return given


def split_pairs(pairs: Sequence[str], option: str) -> dict[str, str]:
    """KEY=VALUE each, every key once. Raises UsageError."""
    split: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"{option} {pair!r} is not KEY=VALUE")
        if key in split:
            raise UsageError(f"{option} {key} is given twice")
        split[key] = value
    return split


def _read_file(file: str, max_bytes: int) -> dict[str, Json]:
    name = "stdin" if file == "-" else file
    try:
        text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        given = strict_json.read(text, max_bytes=max_bytes)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error
    except strict_json.InvalidJson as error:
        raise UsageError(f"{name}: {error}") from error
    if not isinstance(given, dict):
        raise UsageError(f"{name} must hold a JSON object with the inputs by name")
    return given


def _value(text: str, spec: InputSpec | None) -> Json:
    """By the declared type; without one, JSON when it is, else the text as it stands. Raises InvalidJson."""
    if spec is not None and spec.type == "string":
        return text
    try:
        return strict_json.read(text)
    except strict_json.InvalidJson:
        if spec is None:
            return text
        raise


def _expected(kind: str) -> str:
    examples = {
        "integer": "a whole number such as 5",
        "number": "a number such as 0.5",
        "boolean": "true or false",
        "array": "a JSON list such as [1, 2]",
        "object": 'a JSON object such as {"a": 1}',
    }
    return f"the input is {'an' if kind[0] in 'aeiou' else 'a'} {kind}; give {examples[kind]}"


def read_labels(pairs: Sequence[str]) -> dict[str, str] | None:
    """KEY=VALUE each, within the bounds of a job. Raises UsageError."""
    labels = split_pairs(pairs, "--label")
    if len(labels) > MAX_LABELS:
        raise UsageError(f"a job has at most {MAX_LABELS} labels, not {len(labels)}")
    for key, value in labels.items():
        if len(key) > MAX_LABEL_KEY:
            raise UsageError(f"the label {key[:20]}... is named with more than {MAX_LABEL_KEY} characters")
        if len(value) > MAX_LABEL_VALUE:
            raise UsageError(f"the label {key} has more than {MAX_LABEL_VALUE} characters")
    strict_json.write(labels)
    return labels or None


def read_callback(given: str) -> dict[str, Json]:
    """A URL, or the whole callback as JSON. Raises BadParameter; what it may be is checked with the job."""
    if not given.lstrip().startswith("{"):
        return {"url": given}
    try:
        value = strict_json.read(given.encode())
    except strict_json.InvalidJson as error:
        raise click.BadParameter(str(error), param_hint="--callback") from None
    assert isinstance(value, dict)
    return value


class Moment(click.ParamType[datetime]):
    """An RFC 3339 moment with its time zone."""

    name = "MOMENT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a moment such as 2026-01-31T09:00:00Z", param, ctx)
        if moment.tzinfo is None:
            told = f"{moment.isoformat()}Z"
            self.fail(f"{value!r} has no time zone; write {told} for UTC", param, ctx)
        return moment


class SpanOrMoment(Moment):
    """A moment, or how long ago it was: 90s, 15m, 2h, 3d."""

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        span = re.fullmatch(r"(\d{1,6})([smhd])", str(value).strip())
        if span is None:
            return super().convert(value, param, ctx)
        return datetime.now(UTC) - timedelta(seconds=int(span[1]) * SPAN_SECONDS[span[2]])


SPAN_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
