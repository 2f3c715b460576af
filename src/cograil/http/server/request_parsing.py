"""Parses requests strictly: bodies and query parameters become models, or an error with a JSON pointer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar, cast, get_args
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, ValidationError

from cograil import strict_json
from cograil.definitions.suggestions import Suggestions
from cograil.errors import InvalidInput, Problem
from cograil.http.server import field_types
from cograil.http.server.problem_details import Refusal

MAX_STRING = 256 * 1024
MAX_ITEMS = 10_000


class Body(BaseModel):
    """A request body. Unknown fields are rejected, and types are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    @classmethod
    def of_bytes(cls, raw: bytes, max_bytes: int) -> Self:
        """Parse these bytes. Raises what `read_body` raises."""
        return as_model(read_json(raw, max_bytes=max_bytes), cls)


class BatchBody(Body):
    """`{"jobs": [...]}`: each item has the limits of a single body and is rejected separately.

    After parsing, `jobs` has each item as it was sent, or the CograilError that says why it is invalid.
    """

    max_items: ClassVar[int]

    @classmethod
    def of_bytes(cls, raw: bytes, max_bytes: int) -> Self:
        items = strict_json.read_each(raw, "jobs", max_items=cls.max_items)
        if items is None:
            return super().of_bytes(raw, max_bytes)
        if len(items) > cls.max_items:
            message = f"a batch has at most {cls.max_items:,} jobs"
            raise InvalidInput([Problem("too_large", message, "/jobs")])
        batch: Any = cls.model_construct()
        batch.jobs = [_checked_item(item) for item in items]
        return cast("Self", batch)


def _checked_item(item: Any) -> Any:
    try:
        _check_sizes(item)
    except Refusal as refusal:
        return InvalidInput([Problem(refusal.code, refusal.detail, refusal.pointer)])
    return item


class Query(BaseModel):
    """Query parameters: each at most once, and no unknown ones."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class NoQuery(Query):
    """No query parameters."""


B = TypeVar("B", bound=BaseModel)
MAX_PROBLEMS = 50
_OTHER_NAMES = {"input": "input_params", "inputs": "input_params", "params": "input_params"}
TENANT = ("tenant", "tenant_id")  # only the key decides the tenant

# Error types of pydantic -> error codes of the API. All others are invalid_value.
_CODES = {
    "extra_forbidden": "unknown_field",
    "missing": "missing_field",
    "string_too_long": "too_long",
    "string_too_short": "too_short",
    "too_long": "too_large",
    "greater_than": "out_of_range",
    "greater_than_equal": "out_of_range",
    "less_than": "out_of_range",
    "less_than_equal": "out_of_range",
    "finite_number": "invalid_number",
    "literal_error": "invalid_value",
    "string_pattern_mismatch": "invalid_value",
}


def read_body(raw: bytes, model: type[B], *, max_bytes: int) -> B:
    """Return the body as this model. Raises InvalidJson for malformed JSON, InvalidInput for invalid fields."""
    if issubclass(model, Body):
        return model.of_bytes(raw, max_bytes)
    return as_model(read_json(raw, max_bytes=max_bytes), model)


def read_json(raw: bytes, *, max_bytes: int) -> Any:
    """Return the JSON of a body. Raises InvalidJson, or Refusal when it exceeds the limits."""
    if not raw.strip():
        raise Refusal(400, "malformed_json", "the body is empty")
    value = strict_json.read(raw, max_bytes=max_bytes)
    if len(raw) > MAX_ITEMS:  # a shorter body cannot exceed the limits
        _check_sizes(value)
    return value


def as_model(value: Any, model: type[B], hints: Suggestions | None = None) -> B:
    """Return a value as this model. Raises InvalidInput with all problems.

    `hints` is the budget of suggestions of the request that this value is a part of.
    """
    if not isinstance(value, dict):
        kind = strict_json.kind_of(value)
        raise InvalidInput([Problem("invalid_type", f"the body is {kind}, not an object")])
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidInput(_problems(error, model, hints or Suggestions())) from None


def read_query(raw: bytes, model: type[B]) -> B:
    """Return the query parameters as this model. Raises Refusal."""
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, strict_parsing=bool(raw), errors="strict"
        )
    except ValueError:
        raise Refusal(422, "invalid_parameter", "the parameters of the URL cannot be read") from None
    parameters: dict[str, str] = {}
    for name, value in pairs:
        if name in parameters:
            raise Refusal(422, "duplicate_parameter", f"{_short(name)} occurs twice")
        if "\0" in value:
            raise Refusal(422, "invalid_parameter", f"{_short(name)} holds NUL")
        parameters[name] = value
    try:
        return model.model_validate(_typed(parameters, model))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = _short(str(first["loc"][0])) if first["loc"] else "a parameter"
        if first["type"] == "extra_forbidden":
            code = "unknown_field" if first["loc"][0] in TENANT else "unknown_parameter"
            raise Refusal(422, code, f"unknown parameter {name}") from None
        raise Refusal(422, "invalid_parameter", f"{name}: {first['msg']}") from None


def _typed(parameters: Mapping[str, str], model: type[BaseModel]) -> dict[str, Any]:
    """Convert numbers and booleans. Only plain digits are numbers: pydantic would accept 1e3 and other digits."""
    typed: dict[str, Any] = {}
    for name, text in parameters.items():
        field = model.model_fields.get(name)
        kinds = () if field is None else (field.annotation, *get_args(field.annotation))
        if int in kinds:
            if not (text.isascii() and text.isdecimal() and len(text) < 19):
                raise Refusal(422, "invalid_parameter", f"{name} is a number in plain digits")
            typed[name] = int(text)
        elif bool in kinds:
            if text not in ("true", "false"):
                raise Refusal(422, "invalid_parameter", f"{name} is true or false")
            typed[name] = text == "true"
        else:
            typed[name] = text
    return typed


def _problems(error: ValidationError, model: type[BaseModel], hints: Suggestions) -> list[Problem]:
    errors = error.errors(include_url=False, include_context=False)
    problems = [
        Problem(
            _code(detail["type"], detail["input"]), _message(detail, model, hints), _pointer(detail["loc"])
        )
        for detail in errors[:MAX_PROBLEMS]
    ]
    if remaining := len(errors) - len(problems):
        problems.append(Problem("too_many_problems", f"and {remaining:,} more problems"))
    return problems


def _code(kind: str, value: Any) -> str:
    if kind.startswith("int_") and isinstance(value, float) and not value.is_integer():
        return "out_of_range"  # a number, but not an integer
    if kind in _CODES:
        return _CODES[kind]
    if kind in field_types.CODES:
        return kind
    return "invalid_type" if kind.endswith("_type") or kind.startswith("int_") else "invalid_value"


def _message(detail: Mapping[str, Any], model: type[BaseModel], hints: Suggestions) -> str:
    if detail["type"] == "extra_forbidden":
        return f"unknown field {_short(str(detail['loc'][-1]))}{_suggestion(detail['loc'], model, hints)}"
    if detail["type"] == "missing":
        return f"{_short(str(detail['loc'][-1]))} is missing"
    message: str = detail["msg"].removeprefix("Value error, ")
    return message


def _suggestion(steps: Sequence[int | str], model: type[BaseModel], hints: Suggestions) -> str:
    """Return a suggestion for the field of the body that was probably meant; empty for a nested field."""
    if len(steps) != 1 or steps[0] in TENANT:
        return ""
    fields = [field.alias or name for name, field in model.model_fields.items()]
    usual = _OTHER_NAMES.get(str(steps[0]))
    close = usual if usual in fields else hints.suggest(str(steps[0]), fields)
    return f"; did you mean {close!r}?" if close else ""


def _pointer(steps: Sequence[int | str]) -> str:
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)


def _check_sizes(root: Any) -> None:
    """Raise Refusal for a text or a list that is too large, with its pointer."""
    if not _exceeds_sizes(root):
        return
    pending: list[tuple[Any, str]] = [(root, "")]
    while pending:
        value, pointer = pending.pop()
        if isinstance(value, str) and len(value) > MAX_STRING:
            raise Refusal(422, "too_large", f"a text of more than {MAX_STRING:,} characters", pointer)
        if isinstance(value, list):
            if len(value) > MAX_ITEMS:
                raise Refusal(422, "too_large", f"a list of more than {MAX_ITEMS:,} items", pointer)
            pending.extend((item, f"{pointer}/{index}") for index, item in enumerate(value))
        elif isinstance(value, dict):
            pending.extend((item, pointer + _pointer([key])) for key, item in value.items())


def _exceeds_sizes(root: Any) -> bool:
    """Return whether a text or a list is too large, without its pointer: ten times as fast."""
    pending = [root]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            if len(value) > MAX_STRING:
                return True
        elif isinstance(value, list | dict):
            if isinstance(value, list) and len(value) > MAX_ITEMS:
                return True
            members = value if isinstance(value, list) else value.values()
            pending.extend([member for member in members if member and type(member) in _SIZED])
    return False


_SIZED = frozenset((str, list, dict))


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
