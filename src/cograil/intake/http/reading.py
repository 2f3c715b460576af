"""What a request says, read strictly: bodies and parameters become models, or a refusal that says where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar, cast, get_args
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, ValidationError

from cograil import jsontext
from cograil.definitions.hints import Hints
from cograil.errors import InvalidInput, Problem
from cograil.intake.http import words
from cograil.intake.http.problems import Refusal

MAX_STRING = 256 * 1024
MAX_ITEMS = 10_000


class Body(BaseModel):
    """A body: what is not named is refused, and types are what they say."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    @classmethod
    def of_bytes(cls, raw: bytes, max_bytes: int) -> Self:
        """What these bytes say. Raises what `read_body` raises."""
        return as_model(read_json(raw, max_bytes=max_bytes), cls)


class Batch(Body):
    """`{"jobs": [...]}`: each item has the bounds of a body of its own, and is refused by itself.

    Once read, `jobs` has each as it came, or the CograilError that says why it cannot be read.
    """

    most: ClassVar[int]

    @classmethod
    def of_bytes(cls, raw: bytes, max_bytes: int) -> Self:
        items = jsontext.read_each(raw, "jobs", most=cls.most)
        if items is None:
            return super().of_bytes(raw, max_bytes)
        if len(items) > cls.most:
            message = f"a batch has at most {cls.most:,} jobs"
            raise InvalidInput([Problem("too_large", message, "/jobs")])
        batch: Any = cls.model_construct()
        batch.jobs = [_within_bounds(item) for item in items]
        return cast("Self", batch)


def _within_bounds(item: Any) -> Any:
    try:
        _refuse_large(item)
    except Refusal as refusal:
        return InvalidInput([Problem(refusal.code, refusal.detail, refusal.pointer)])
    return item


class Query(BaseModel):
    """Parameters: each at most once, and none that is not named."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class NoQuery(Query):
    """No parameters."""


B = TypeVar("B", bound=BaseModel)
MAX_PROBLEMS = 50
_OTHER_NAMES = {"input": "input_params", "inputs": "input_params", "params": "input_params"}
TENANT = ("tenant", "tenant_id")  # it comes from the key, and from nowhere else

# What pydantic calls it -> what we call it. What is not here is invalid_value.
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
    """The body as this model. Raises InvalidJson for what cannot be read, InvalidInput for what is wrong."""
    if issubclass(model, Body):
        return model.of_bytes(raw, max_bytes)
    return as_model(read_json(raw, max_bytes=max_bytes), model)


def read_json(raw: bytes, *, max_bytes: int) -> Any:
    """The JSON of a body, within our bounds."""
    if not raw.strip():
        raise Refusal(400, "malformed_json", "the body is empty")
    value = jsontext.read(raw, max_bytes=max_bytes)
    if len(raw) > MAX_ITEMS:  # less cannot hold what is too large
        _refuse_large(value)
    return value


def as_model(value: Any, model: type[B], hints: Hints | None = None) -> B:
    """A value as this model. Raises InvalidInput with all that does not fit.

    `hints` are the suggestions that are left for the request of which this is a part.
    """
    if not isinstance(value, dict):
        kind = jsontext.kind_of(value)
        raise InvalidInput([Problem("invalid_type", f"the body is {kind}, not an object")])
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidInput(_problems(error, model, hints or Hints())) from None


def read_query(raw: bytes, model: type[B]) -> B:
    """The parameters of a URL as this model. Raises Refusal."""
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, strict_parsing=bool(raw), errors="strict"
        )
    except ValueError:
        raise Refusal(422, "invalid_parameter", "the parameters of the URL cannot be read") from None
    given: dict[str, str] = {}
    for name, value in pairs:
        if name in given:
            raise Refusal(422, "duplicate_parameter", f"{_short(name)} is given twice")
        if "\0" in value:
            raise Refusal(422, "invalid_parameter", f"{_short(name)} holds NUL")
        given[name] = value
    try:
        return model.model_validate(_typed(given, model))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = _short(str(first["loc"][0])) if first["loc"] else "a parameter"
        if first["type"] == "extra_forbidden":
            code = "unknown_field" if first["loc"][0] in TENANT else "unknown_parameter"
            raise Refusal(422, code, f"there is no parameter {name}") from None
        raise Refusal(422, "invalid_parameter", f"{name}: {first['msg']}") from None


def _typed(given: Mapping[str, str], model: type[BaseModel]) -> dict[str, Any]:
    """Numbers as plain digits only: pydantic would take 1e3 and other scripts' digits."""
    typed: dict[str, Any] = {}
    for name, text in given.items():
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


def _problems(error: ValidationError, model: type[BaseModel], hints: Hints) -> list[Problem]:
    errors = error.errors(include_url=False, include_context=False)
    found = [
        Problem(_code(one["type"], one["input"]), _message(one, model, hints), _pointer(one["loc"]))
        for one in errors[:MAX_PROBLEMS]
    ]
    if left := len(errors) - len(found):
        found.append(Problem("too_many_problems", f"and {left:,} more problems"))
    return found


def _code(kind: str, given: Any) -> str:
    if kind.startswith("int_") and isinstance(given, float) and not given.is_integer():
        return "out_of_range"  # a number, but none of those that there are
    if kind in _CODES:
        return _CODES[kind]
    if kind in words.CODES:
        return kind
    return "invalid_type" if kind.endswith("_type") or kind.startswith("int_") else "invalid_value"


def _message(one: Mapping[str, Any], model: type[BaseModel], hints: Hints) -> str:
    if one["type"] == "extra_forbidden":
        return f"there is no field {_short(str(one['loc'][-1]))}{_suggestion(one['loc'], model, hints)}"
    if one["type"] == "missing":
        return f"{_short(str(one['loc'][-1]))} is missing"
    message: str = one["msg"].removeprefix("Value error, ")
    return message


def _suggestion(steps: Sequence[int | str], model: type[BaseModel], hints: Hints) -> str:
    """The field of the body that was probably meant; nothing for a field further down."""
    if len(steps) != 1 or steps[0] in TENANT:
        return ""
    fields = [field.alias or name for name, field in model.model_fields.items()]
    usual = _OTHER_NAMES.get(str(steps[0]))
    close = usual if usual in fields else hints.suggest(str(steps[0]), fields)
    return f"; did you mean {close!r}?" if close else ""


def _pointer(steps: Sequence[int | str]) -> str:
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)


def _refuse_large(root: Any) -> None:
    """Texts and lists have a bound each."""
    if not _is_large(root):
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


def _is_large(root: Any) -> bool:
    """Whether a text or a list is over its bound, without saying where: ten times as fast."""
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
            pending.extend([one for one in members if one and type(one) in _SIZED])
    return False


_SIZED = frozenset((str, list, dict))


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
