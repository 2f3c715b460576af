"""The inputs of a workflow as form fields: their initial values, and parsing."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from cograil import strict_json
from cograil.errors import InvalidInput, Problem
from cograil.model.workflow import InputSpec, Json, Workflow

MAX_VALUE = 256 * 1024
MAX_EDITABLE = 200_000  # bytes of JSON that a form shows; the CLI takes more


def fields_of(inputs: Mapping[str, Json], workflow: Workflow) -> dict[str, str]:
    """Return the form fields for these inputs."""
    fields = {"json": orjson.dumps(inputs, option=orjson.OPT_INDENT_2, default=str).decode()}
    for spec in (workflow.inputs or {}).values():
        fields[f"input.{spec.name}"] = _field_text(spec, inputs.get(spec.name))
    return fields


def _field_text(spec: InputSpec, value: Json) -> str:
    if value is None:
        return ""
    if spec.type == "string" and isinstance(value, str):
        return value
    option = orjson.OPT_INDENT_2 if spec.type == "object" else 0
    return orjson.dumps(value, option=option, default=str).decode()


def inputs_of(form: Mapping[str, str], workflow: Workflow) -> dict[str, Json]:
    """Return the inputs of a form. Raises InvalidInput."""
    if form.get("way") == "json":
        inputs: dict[str, Json] = as_json(form.get("json", "") or "{}", "/input_params")
        return inputs
    inputs = {}
    for spec in (workflow.inputs or {}).values():
        text = form.get(f"input.{spec.name}", "")
        if text:
            inputs[spec.name] = value_of(spec, text)
    return inputs


def value_of(spec: InputSpec, text: str) -> Json:
    """Return a field as the type of its input. Raises InvalidInput; the submit validates the rest."""
    pointer = f"/input_params/{spec.name}"
    if spec.type == "string":
        return text.replace("\r\n", "\n")  # so browsers send the lines of a field
    if spec.type == "boolean":
        return text in ("true", "on", "yes", "1")
    return as_json(text, pointer)


def as_json(text: str, pointer: str) -> Json:
    """Parse a field as JSON. Raises InvalidInput with its pointer."""
    try:
        return strict_json.read(text.encode("utf-8", "replace"), max_bytes=MAX_VALUE)
    except strict_json.InvalidJson as error:
        raise InvalidInput([Problem("malformed_json", f"this is not valid JSON: {error}", pointer)]) from None
