"""Handlers by name, and their params checked against their signatures."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pytest
from pydantic import BaseModel

import cograil
from cograil.errors import UsageError
from cograil.runners.handler_params import InvalidParams
from cograil.runners.handler_registry import (
    CheckpointableHandler,
    HandlerSpec,
    Registry,
    default_registry,
    handler,
)

if TYPE_CHECKING:
    from cograil import Context

Json = Any


@pytest.fixture
def registry() -> Registry:
    return Registry()


def bind(spec: HandlerSpec, params: dict[str, Json]) -> dict[str, Json]:
    return spec.params.bind(params, {"ctx": "the context", "params": params, "checkpoint": "the checkpoint"})


def problems(function: Callable[..., Any], params: dict[str, Json]) -> dict[str, str]:
    with pytest.raises(InvalidParams) as caught:
        bind(Registry().register(function), params)
    return {problem["param"]: problem["message"] for problem in caught.value.problems}


# --- names and kinds


def test_a_handler_is_found_by_the_name_it_was_given(registry: Registry) -> None:
    @handler("raster.validate", registry=registry)
    def validate() -> None: ...

    spec = registry.get("raster.validate")
    assert spec is not None
    assert spec.call is validate
    assert registry.names() == ["raster.validate"]
    assert registry.get("validate") is None


def test_the_bare_decorator_uses_the_name_of_the_function() -> None:
    @handler
    def a_name_of_its_own() -> None: ...

    spec = default_registry.get("a_name_of_its_own")
    assert spec is not None
    assert spec.call is a_name_of_its_own


def test_two_functions_of_one_name_are_an_error_that_shows_both_places(registry: Registry) -> None:
    def first() -> None: ...
    def second() -> None: ...

    registry.register(first, "same")
    with pytest.raises(UsageError, match=r"(?s)'same'.*first.*py:\d+.*second.*py:\d+"):
        registry.register(second, "same")
    spec = registry.get("same")
    assert spec is not None
    assert spec.call is first


def test_the_same_function_may_be_registered_again(registry: Registry) -> None:
    def make() -> Callable[[], None]:
        def reloaded() -> None: ...

        return reloaded

    registry.register(make(), "same")
    again = make()
    assert registry.register(again, "same") is registry.get("same")


class Plain(CheckpointableHandler):
    async def execute(self, params: dict[str, Json], checkpoint: Json = None) -> AsyncGenerator[Json, None]:
        yield {"type": "result", "output": {}}


class Callable_:
    async def __call__(self, size: int) -> None: ...


async def coroutine(size: int, extra: int = 0) -> None: ...


async def generator(size: int) -> AsyncIterator[Json]:
    yield {}


@pytest.mark.parametrize(
    ("target", "kind", "is_checkpointable"),
    [
        (lambda size: None, "thread", False),
        (coroutine, "async", False),
        (functools.partial(coroutine, extra=1), "async", False),
        (Callable_(), "async", False),
        (generator, "async", True),
        (Plain, "async", True),
        (Plain(), "async", True),
    ],
)
def test_every_form_of_handler_is_recognised(
    registry: Registry, target: Any, kind: str, is_checkpointable: bool
) -> None:
    spec = registry.register(target, "it")
    assert (spec.kind, spec.is_checkpointable) == (kind, is_checkpointable)
    assert bind(spec, {"size": "5"})


class NotAsync(CheckpointableHandler):
    async def execute(  # type: ignore[override]
        self, params: dict[str, Json], checkpoint: Json = None
    ) -> Json:
        return {}


def sync_generator() -> Any:
    yield 1


def positional(a: int, /) -> None: ...


def unknown_type(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def unusable_type(a: Plain) -> None: ...


@pytest.mark.parametrize(
    "target", [NotAsync, sync_generator, positional, unknown_type, unusable_type, int, 5]
)
def test_objects_that_cannot_be_handlers_are_refused_by_name(registry: Registry, target: Any) -> None:
    with pytest.raises(UsageError, match="it"):
        registry.register(target, "it")
    assert registry.names() == []


@pytest.mark.parametrize("name", ["", "a b", "-a", "x" * 65, "ä", "a\n"])
def test_a_strange_name_is_refused(registry: Registry, name: str) -> None:
    with pytest.raises(UsageError, match="invalid handler name"):
        registry.register(coroutine, name)


# --- params


def typed(
    count: int,
    rate: float = 0.5,
    flag: bool = False,
    name: str = "x",
    sizes: list[int] = [],  # noqa: B006
    mode: int = None,  # type: ignore[assignment]  # noqa: RUF013 (people write this)
) -> None: ...


@pytest.mark.parametrize(
    ("params", "bound"),
    [
        ({"count": "5"}, {"count": 5}),
        ({"count": 5.0, "rate": "0.3"}, {"count": 5, "rate": 0.3}),
        ({"count": 1, "flag": 1, "name": 7}, {"count": 1, "flag": True, "name": "7"}),
        ({"count": 1, "flag": "false"}, {"count": 1, "flag": False}),
        ({"count": 1, "sizes": ["1", 2]}, {"count": 1, "sizes": [1, 2]}),
        ({"count": 1, "mode": None}, {"count": 1, "mode": None}),
    ],
)
def test_params_are_coerced_to_the_types_of_the_signature(params: Json, bound: Json) -> None:
    assert bind(Registry().register(typed), params) == bound


def test_every_wrong_param_is_named_at_once() -> None:
    flaws = problems(typed, {"rate": "nan", "flag": "perhaps", "sizes": [1, "x"], "colour": 1})
    assert set(flaws) == {"count", "rate", "flag", "sizes.1", "colour"}
    assert flaws["count"] == "is missing"
    assert flaws["colour"] == "is not a parameter of this handler"


def test_a_wrong_value_is_not_repeated_in_the_message() -> None:
    assert "secret" not in str(problems(typed, {"count": "secret" * 100}))


def test_without_type_hints_anything_goes() -> None:
    spec = Registry().register(lambda a, b=1: None, "it")
    assert bind(spec, {"a": {"x": [1]}, "b": "2"}) == {"a": {"x": [1]}, "b": "2"}


def test_unknown_params_are_taken_by_keyword_arguments_or_ignored_when_asked() -> None:
    def takes_all(a: int, **rest: Any) -> None: ...
    def takes_one(a: int) -> None: ...

    assert bind(Registry().register(takes_all), {"a": "1", "b": 2}) == {"a": 1, "b": 2}
    assert bind(Registry().register(takes_one, extra="ignore"), {"a": "1", "b": 2}) == {"a": 1}


def test_ctx_gets_the_context_even_if_its_hint_exists_only_for_type_checkers() -> None:
    def wants_ctx(a: int, ctx: Context) -> None: ...
    def takes_all(ctx: Context, **rest: Any) -> None: ...

    assert bind(Registry().register(wants_ctx), {"a": 1}) == {"a": 1, "ctx": "the context"}
    assert bind(Registry().register(takes_all), {"ctx": "forged"}) == {"ctx": "the context"}
    assert problems(wants_ctx, {"a": 1, "ctx": 2}) == {"ctx": "is not a parameter of this handler"}


def test_a_checkpointable_handler_gets_params_and_checkpoint_whole_and_a_plain_one_by_name() -> None:
    def plain(params: int, checkpoint: int) -> None: ...

    assert bind(Registry().register(Plain), {"a": 1}) == {"params": {"a": 1}, "checkpoint": "the checkpoint"}
    assert bind(Registry().register(plain), {"params": "1", "checkpoint": 2}) == {
        "params": 1,
        "checkpoint": 2,
    }


class Model(BaseModel):
    size: int


@dataclass
class Record:
    size: int


def test_rich_types_are_built_and_their_flaws_located() -> None:
    def rich(model: Model, record: Record, mode: Literal["a", "b"], _private: int = 0) -> None: ...

    spec = Registry().register(rich)
    bound = bind(spec, {"model": {"size": "1"}, "record": {"size": 2}, "mode": "a", "_private": 3})
    assert bound == {"model": Model(size=1), "record": Record(2), "mode": "a", "_private": 3}
    flaws = problems(rich, {"model": {}, "record": {"size": "x"}, "mode": "c"})
    assert set(flaws) == {"model.size", "record.size", "mode"}


# --- the front of the package


def test_every_public_name_exists_and_none_is_unlisted() -> None:
    assert sorted(cograil.__all__) == sorted(cograil._HOMES)
    assert all(getattr(cograil, name) for name in cograil.__all__)
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = cograil.nothing_like_this


def test_importing_the_package_loads_no_library() -> None:
    script = (
        "import sys, cograil; sys.exit(bool({'pydantic', 'asyncio', 'psycopg', 'orjson'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
