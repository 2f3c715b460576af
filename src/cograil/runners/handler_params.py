"""Validation of the params of a task against the signature of its handler.

The check is compiled once, at registration, and takes about a microsecond per call.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, cast

import typing_extensions
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

from cograil.errors import UsageError
from cograil.model.workflow import Json

Extra = Literal["forbid", "ignore"]
MAX_PROBLEMS_SHOWN = 20
MISSING, UNKNOWN = "is missing", "is not a parameter of this handler"


class InvalidParams(Exception):
    """The params of a task do not match the signature of its handler; `problems` has an entry for each."""

    def __init__(self, problems: list[dict[str, str]]) -> None:
        self.problems = problems
        super().__init__("; ".join(_sentence(problem) for problem in problems))


class ParamProblem(NamedTuple):
    """An invalid param: its path, the kind of problem and a message."""

    path: tuple[str, ...]
    kind: str
    message: str


class Params:
    """The parameters of a handler.

    `ctx` gets the context. In a checkpointable handler `checkpoint` gets the last checkpoint and
    `params` all params. Every other parameter is looked up by name and coerced to its type.
    """

    __slots__ = ("_special", "_validate", "names")

    def __init__(
        self, function: Callable[..., Any], *, extra: Extra = "forbid", special: frozenset[str]
    ) -> None:
        """Raise UsageError for a signature that cannot be called with named params."""
        parameters = inspect.signature(function).parameters
        ordinary = [p for name, p in parameters.items() if name not in special]
        self._special = tuple(name for name in parameters if name in special)
        sees_all = "params" in self._special
        self.names = tuple(p.name for p in ordinary if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL))
        self._validate = _compiled(function, ordinary, "ignore" if sees_all else extra).validate_python

    def check(self, literals: Mapping[str, Json], rendered: Collection[str]) -> list[ParamProblem]:
        """Return the problems of these params. Of `rendered` params only the names are known."""
        try:
            self._validate({**literals, **dict.fromkeys(rendered)})
        except ValidationError as error:
            listed = error.errors(include_url=False, include_input=False, include_context=False)
        else:
            return []
        problems = [
            ParamProblem(tuple(map(str, problem["loc"])), problem["type"], problem["msg"])
            for problem in listed
        ]
        return [
            problem
            for problem in problems
            if problem.path[0] not in rendered or problem.kind == "extra_forbidden"
        ]

    def bind(self, params: Mapping[str, Json], specials: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments of the call. Raises InvalidParams with every problem."""
        try:
            arguments: dict[str, Any] = self._validate(params)
        except ValidationError as error:
            raise InvalidParams(_problems(error)) from None
        for name in self._special:
            arguments[name] = specials[name]
        return arguments


def _compiled(function: Callable[..., Any], wanted: list[inspect.Parameter], extra: Extra) -> SchemaValidator:
    takes_any = any(p.kind is p.VAR_KEYWORD for p in wanted)
    named = [p for p in wanted if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    if hidden := [p.name for p in named if p.kind is p.POSITIONAL_ONLY]:
        raise UsageError(f"params are passed by name: {', '.join(hidden)} cannot be positional-only")
    try:
        types = _types(function, named)
        # A TypedDict, not a model: it allows any name, leaves defaults to the function and returns a dict.
        shape = cast(Any, typing_extensions.TypedDict)("Params", {p.name: _field(p, types) for p in named})
        shape.__pydantic_config__ = ConfigDict(
            extra="allow" if takes_any else extra, coerce_numbers_to_str=True, allow_inf_nan=False
        )
        return cast(SchemaValidator, TypeAdapter(shape).validator)
    except (NameError, TypeError, AttributeError, SyntaxError, PydanticUserError) as error:
        raise UsageError(f"its parameter types cannot be used: {error}") from error


def _types(function: Callable[..., Any], named: list[inspect.Parameter]) -> dict[str, Any]:
    """Evaluate the annotations of these parameters only: the annotation of `ctx` may be a name that exists
    only for the type checker."""
    written = {p.name: p.annotation for p in named if p.annotation is not p.empty}
    names = getattr(inspect.unwrap(code_of(function)), "__globals__", {})
    return typing.get_type_hints(SimpleNamespace(__annotations__=written), names, include_extras=True)


def code_of(call: Any) -> Any:
    """Return the function of a callable: of a partial its function, of an instance its `__call__`."""
    while isinstance(call, functools.partial):
        call = call.func
    return call if inspect.isroutine(call) else call.__call__


def _field(parameter: inspect.Parameter, types: dict[str, Any]) -> Any:
    hint = types.get(parameter.name, Any)
    if parameter.default is parameter.empty:
        return typing_extensions.Required[hint]
    if parameter.default is None:
        hint = hint | None if hint is not Any else Any  # `count: int = None` allows null
    return typing_extensions.NotRequired[hint]


def _problems(error: ValidationError) -> list[dict[str, str]]:
    listed = error.errors(include_url=False, include_input=False, include_context=False)
    shown_errors = listed[:MAX_PROBLEMS_SHOWN]
    return [
        _problem(".".join(map(str, problem["loc"])), problem["type"], problem["msg"])
        for problem in shown_errors
    ]


def _problem(param: str, kind: str, message: str) -> dict[str, str]:
    known = {"missing": MISSING, "extra_forbidden": UNKNOWN}
    return {"param": param[:100], "message": known.get(kind, message)[:200]}


def _sentence(problem: dict[str, str]) -> str:
    is_phrase = problem["message"] in (MISSING, UNKNOWN)
    return f"the parameter {problem['param']!r}{' ' if is_phrase else ': '}{problem['message']}"
