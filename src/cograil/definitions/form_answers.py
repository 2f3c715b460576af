"""Validation of the data of an answer against the form of its approval (a JSON Schema).

Schema and data both come from callers. Every evaluated keyword spends steps of a budget, patterns run on
RE2, and the number of problems is limited, so an answer cannot keep the server busy.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import islice
from typing import Any

from cograil.definitions.diagnostics import child
from cograil.definitions.linear_patterns import PatternError, compile_pattern, search_steps
from cograil.definitions.operators import size_of
from cograil.errors import Problem
from cograil.model.evaluation_budget import Budget, ExpressionTooCostly
from cograil.model.workflow import Json

MAX_ANSWER_STEPS = 100_000
MAX_ANSWER_PROBLEMS = 20
_STEPS_PER_REFERENCE = 10

Check = Callable[[Any, Any, Any, Any], Iterator[Any]]


def find_misfits(form: Mapping[str, Json], data: Json) -> list[Problem]:
    """Return the problems of the data, at most `MAX_ANSWER_PROBLEMS`; an empty list when it is valid."""
    budget = Budget(None, MAX_ANSWER_STEPS)
    try:
        errors = list(islice(_validator(budget)(form).iter_errors(data), MAX_ANSWER_PROBLEMS))
    except ExpressionTooCostly:
        message = f"validating this data takes more than {MAX_ANSWER_STEPS:,} steps; send less data"
        return [Problem("form_too_costly", message, "/data")]
    except PatternError as error:
        message = f"the form has an invalid pattern: {error}; publish the workflow with a valid one"
        return [Problem("invalid_form", message, "/data")]
    return [Problem("invalid_value", error.message[:500], _pointer_of(error)) for error in errors]


def _pointer_of(error: Any) -> str:
    pointer = "/data"
    for step in error.absolute_path:
        pointer = child(pointer, step)
    return pointer


def _validator(budget: Budget) -> Any:
    """Return a validator class whose keywords spend this budget."""
    from jsonschema import Draft202012Validator, validators  # noqa: PLC0415  0.1 s, and few approvals have one

    keywords: dict[str, Check] = dict(Draft202012Validator.VALIDATORS)
    keywords |= {
        "additionalProperties": _check_additional(budget),
        "pattern": _check_pattern(budget),
        "patternProperties": _check_named_by_pattern(budget),
        "uniqueItems": _check_unique(budget),
        "unevaluatedProperties": _refuse_keyword("unevaluatedProperties"),
        "unevaluatedItems": _refuse_keyword("unevaluatedItems"),
    }
    metered = {name: _metered(budget, name, check) for name, check in keywords.items()}
    return validators.extend(Draft202012Validator, metered)


def _metered(budget: Budget, name: str, check: Check) -> Check:
    def checked(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        budget.spend(_steps_of(name, value, instance))
        yield from check(validator, value, instance, schema) or ()

    return checked


def _steps_of(name: str, value: Any, instance: Any) -> int:
    """Return the cost of the keyword itself, without the subschemas that it applies."""
    if name in ("enum", "const") and isinstance(instance, list | dict):
        return 1 + (size_of(instance) >> 3) * (len(value) if name == "enum" else 1)
    if name == "$ref":
        return _STEPS_PER_REFERENCE
    size = len(instance) if isinstance(instance, list | dict) else 0
    return 1 + size + (len(value) if isinstance(value, list | dict) else 0)


# -- keywords ---------------------------------------------------------------------------------------


def _matches(budget: Budget, pattern: str, text: str) -> bool:
    compiled = compile_pattern(pattern)
    budget.spend(search_steps(compiled, text))
    return compiled.search(text) is not None


def _check_pattern(budget: Budget) -> Check:
    def check(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
        if isinstance(instance, str) and not _matches(budget, pattern, instance):
            yield _error(f"{instance[:200]!r} does not match {pattern!r}")

    return check


def _check_named_by_pattern(budget: Budget) -> Check:
    def check(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if not isinstance(instance, dict):
            return
        for pattern, part in patterns.items():
            for name, member in instance.items():
                if _matches(budget, pattern, name):
                    yield from validator.descend(member, part, path=name, schema_path=pattern)

    return check


def _check_additional(budget: Budget) -> Check:
    def check(validator: Any, part: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if not isinstance(instance, dict):
            return
        known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for name, member in instance.items():
            if name in known or any(_matches(budget, pattern, name) for pattern in patterns):
                continue
            if part is False:
                yield _error(f"Additional properties are not allowed ({name[:200]!r} was unexpected)")
            elif isinstance(part, dict):
                yield from validator.descend(member, part, path=name)

    return check


def _check_unique(budget: Budget) -> Check:
    """Check by hash: the library compares every pair when items cannot be sorted."""

    def check(validator: Any, is_wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if not is_wanted or not isinstance(instance, list):
            return
        budget.spend(size_of(instance) >> 2)
        if len({_key_of(item) for item in instance}) < len(instance):
            yield _error(f"the {len(instance)} items are not unique")

    return check


def _key_of(value: Json) -> Hashable:
    """Return a key that is the same for equal JSON values: 1 equals 1.0, true does not equal 1."""
    if isinstance(value, list):
        return ("list", *map(_key_of, value))
    if isinstance(value, dict):
        return ("object", frozenset((name, _key_of(member)) for name, member in value.items()))
    return ("boolean", value) if isinstance(value, bool) else (value,)


def _refuse_keyword(name: str) -> Check:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        yield _error(f"the form uses {name}, which is not supported; publish the workflow without it")

    return check


def _error(message: str) -> Exception:
    from jsonschema import ValidationError  # noqa: PLC0415

    error: Exception = ValidationError(message)
    return error
