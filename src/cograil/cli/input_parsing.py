"""Parsing of command-line values: job inputs, labels, callbacks, timestamps."""

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
    """Read the inputs of a job from a file and from KEY=VALUE pairs, which override the file.

    Raises UsageError, or InvalidInput with all pairs that do not match their declaration.
    """
    inputs = {} if file is None else _read_file(file, max_bytes)
    problems = []
    for key, text in split_pairs(pairs, "--input").items():
        spec = (declared or {}).get(key)
        try:
            inputs[key] = _parse_value(text, spec)
        except strict_json.InvalidJson:
            assert spec is not None  # without one every text is valid
            message = f"--input {key}={text}: {_expected(spec.type)}"
            problems.append(Problem("invalid_type", message, f"{INPUTS}/{key}"))
    if problems and declared is not None:
        problems += unknown_inputs(inputs, declared)
    if problems:
        raise InvalidInput(problems)
    strict_json.write(inputs, max_bytes=max_bytes)  # rejects what the database cannot hold
    return inputs


def split_pairs(pairs: Sequence[str], option: str) -> dict[str, str]:
    """Split KEY=VALUE pairs. Raises UsageError for another form or a duplicate key."""
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
        inputs = strict_json.read(text, max_bytes=max_bytes)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error
    except strict_json.InvalidJson as error:
        raise UsageError(f"{name}: {error}") from error
    if not isinstance(inputs, dict):
        raise UsageError(f"{name} must contain a JSON object with the inputs by name")
    return inputs


def _parse_value(text: str, spec: InputSpec | None) -> Json:
    """Parse by the declared type; without one, as JSON if valid, else as text. Raises InvalidJson."""
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
    return f"the input is {'an' if kind[0] in 'aeiou' else 'a'} {kind}; use {examples[kind]}"


def read_labels(pairs: Sequence[str]) -> dict[str, str] | None:
    """Read labels from KEY=VALUE pairs, within the limits of a job. Raises UsageError."""
    labels = split_pairs(pairs, "--label")
    if len(labels) > MAX_LABELS:
        raise UsageError(f"a job has at most {MAX_LABELS} labels, not {len(labels)}")
    for key, value in labels.items():
        if len(key) > MAX_LABEL_KEY:
            raise UsageError(f"the name of the label {key[:20]}... has more than {MAX_LABEL_KEY} characters")
        if len(value) > MAX_LABEL_VALUE:
            raise UsageError(f"the value of the label {key} has more than {MAX_LABEL_VALUE} characters")
    strict_json.write(labels)
    return labels or None


def read_callback(text: str) -> dict[str, Json]:
    """Read a callback: a URL, or JSON. Raises BadParameter. Its fields are checked on submission."""
    if not text.lstrip().startswith("{"):
        return {"url": text}
    try:
        value = strict_json.read(text.encode())
    except strict_json.InvalidJson as error:
        raise click.BadParameter(str(error), param_hint="--callback") from None
    assert isinstance(value, dict)
    return value


class Timestamp(click.ParamType[datetime]):
    """An RFC 3339 timestamp with a time zone."""

    name = "TIMESTAMP"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            timestamp = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a timestamp such as 2026-01-31T09:00:00Z", param, ctx)
        if timestamp.tzinfo is None:
            self.fail(f"{value!r} has no time zone; write {timestamp.isoformat()}Z for UTC", param, ctx)
        return timestamp


class TimestampOrAge(Timestamp):
    """A timestamp, or an age: 90s, 15m, 2h, 3d."""

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        age = re.fullmatch(r"(\d{1,6})([smhd])", str(value).strip())
        if age is None:
            return super().convert(value, param, ctx)
        return datetime.now(UTC) - timedelta(seconds=int(age[1]) * UNIT_SECONDS[age[2]])


UNIT_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
