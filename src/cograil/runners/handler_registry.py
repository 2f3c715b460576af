"""The registry of handlers by name. `@handler` registers a handler."""

from __future__ import annotations

import functools
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, overload

from cograil.errors import UsageError
from cograil.model.outcome import WorkItem
from cograil.model.workflow import Json
from cograil.runners.context import Context
from cograil.runners.handler_params import Extra, Params, code_of

Kind = Literal["async", "thread", "process"]
Registered = TypeVar("Registered")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_SPECIAL = frozenset({"ctx"})
_SPECIAL_IN_CHECKPOINTABLE = frozenset({"ctx", "params", "checkpoint"})


class CheckpointableHandler(ABC):
    """A handler as a class: an async generator that reports as it goes.

    It yields any number of items
        {"type": "checkpoint", "phase": "...", "data": {...}}     durable before the generator goes on
        {"type": "progress", "current": 1, "total": 3, "message": "..."}
    and finally
        {"type": "result", "output": {...}}
    """

    @abstractmethod
    def execute(
        self, params: dict[str, Json], checkpoint: Json = None
    ) -> AsyncGenerator[dict[str, Json], None]:
        """Run the attempt. `checkpoint` is the `data` of the last checkpoint of an earlier attempt, or None."""


@dataclass(frozen=True, slots=True)
class HandlerSpec:
    """A registered handler.

    `kind` thread: a plain function, which may block. `kind` process: it runs in a child process of the worker,
    which imports `module`. `most`: the maximum number that a worker runs at a time, for a coroutine handler.
    """

    name: str
    call: Callable[..., Any]
    kind: Kind
    is_checkpointable: bool
    params: Params
    place: str
    module: str = ""
    most: int | None = None
    app: str | None = None  # the app that registered it

    def arguments(self, item: WorkItem, ctx: Context) -> dict[str, Any]:
        """Return the keyword arguments for this attempt. Raises InvalidParams."""
        special = {"ctx": ctx, "params": item.params, "checkpoint": item.checkpoint}
        return self.params.bind(item.params, special)


class Registry:
    """Handlers by unique name."""

    def __init__(self) -> None:
        self._specs: dict[str, HandlerSpec] = {}

    def register(
        self,
        target: Any,
        name: str | None = None,
        *,
        extra: Extra = "forbid",
        process: bool = False,
        most: int | None = None,
        app: str | None = None,
    ) -> HandlerSpec:
        """Register `target` under this name, or its own.

        Raises UsageError for an invalid handler or a name that is in use. The same function of a reloaded
        module replaces the old one.
        """
        spec = replace(_spec(target, name, extra, is_process=process), most=most, app=app)
        known = self._specs.get(spec.name)
        if known is not None and known.place != spec.place:
            raise UsageError(f"two handlers are named {spec.name!r}: {known.place} and {spec.place}")
        self._specs[spec.name] = spec
        return spec

    def get(self, name: str) -> HandlerSpec | None:
        """Return the handler of this name; None if there is none."""
        return self._specs.get(name)

    def only(self, names: Iterable[str]) -> Registry:
        """Return a registry with only these handlers."""
        other = Registry()
        other._specs = {name: self._specs[name] for name in names}
        return other

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted(self._specs)


class AppRegistry(Registry):
    """The registry that an app gets; it marks the handlers as the app's own.

    Such a handler is named `<app>.<name>`, which other workflows cannot use, or is listed in `offers`.
    """

    def __init__(self, registry: Registry, app: str, offers: Iterable[str] = ()) -> None:
        self._registry, self._app, self._offers = registry, app, frozenset(offers)
        self._specs = registry._specs

    def register(
        self,
        target: Any,
        name: str | None = None,
        *,
        extra: Extra = "forbid",
        process: bool = False,
        most: int | None = None,
        app: str | None = None,
    ) -> HandlerSpec:
        """Register `target` as a handler of this app. Raises UsageError, also for a name of another app."""
        spec = self._registry.register(
            target, name, extra=extra, process=process, most=most, app=app or self._app
        )
        if spec.name not in self._offers and not spec.name.startswith(f"{self._app}."):
            del self._specs[spec.name]
            raise UsageError(
                f"the app {self._app!r} registers the handler {spec.name!r}; name it "
                f"'{self._app}.{spec.name}', or list it in `offers` of the app if any workflow may use it"
            )
        return spec


default_registry = Registry()


@overload
def handler(
    target: str | None = None,
    *,
    extra: Extra = "forbid",
    process: bool = False,
    registry: Registry | None = None,
) -> Callable[[Registered], Registered]: ...
@overload
def handler(target: Registered) -> Registered: ...
def handler(
    target: Any = None,
    *,
    extra: Extra = "forbid",
    process: bool = False,
    registry: Registry | None = None,
) -> Any:
    """Register a handler: `@handler("name")`, or bare `@handler` for the function's own name.

    It takes functions, coroutine functions, async generator functions and classes (or instances) of
    `CheckpointableHandler`, and returns them unchanged. `extra="ignore"` ignores unknown params.
    `process=True` runs it in a child process, which can be killed.
    """
    if target is not None and not isinstance(target, str):
        default_registry.register(target)
        return target

    def register(decorated: Registered) -> Registered:
        (registry or default_registry).register(decorated, target, extra=extra, process=process)
        return decorated

    return register


def _spec(target: Any, name: str | None, extra: Extra, *, is_process: bool) -> HandlerSpec:
    name = name if name is not None else getattr(target, "__name__", type(target).__name__)
    place = _place(target)
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"invalid handler name {name[:80]!r} ({place}): use up to 64 letters, digits and _ . -"
        )
    try:
        call = _callable(target)
        is_checkpointable = inspect.isasyncgenfunction(code_of(call))
        special = _SPECIAL_IN_CHECKPOINTABLE if is_checkpointable else _SPECIAL
        params = Params(call, extra=extra, special=special)
        module = _importable(target) if is_process else ""
        kind: Kind = "process" if is_process else "async" if is_coroutine(call) else "thread"
        return HandlerSpec(name, call, kind, is_checkpointable, params, place, module)
    except UsageError as error:
        raise UsageError(f"handler {name!r} ({place}): {error}") from error


def _callable(target: Any) -> Callable[..., Any]:
    """Return the callable of this target; a `CheckpointableHandler` class is instantiated."""
    if isinstance(target, type):
        if not issubclass(target, CheckpointableHandler):
            raise UsageError("a class must derive from CheckpointableHandler")
        target = target()
    if isinstance(target, CheckpointableHandler):
        if not inspect.isasyncgenfunction(target.execute):
            raise UsageError("execute must be an async generator: `async def` with `yield`")
        return target.execute
    if not callable(target):
        raise UsageError("it is not callable")
    if inspect.isgeneratorfunction(code_of(target)):
        raise UsageError("a generator must be async: `async def` with `yield`")
    return target  # type: ignore[no-any-return]


def is_coroutine(call: Callable[..., Any]) -> bool:
    """Whether the callable needs an event loop."""
    code = code_of(call)
    return inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code)


def _importable(target: Any) -> str:
    """Return the module that a child process imports to register this handler."""
    code = code_of(target) if not isinstance(target, type) else target
    if code.__module__ == "__main__" or "<locals>" in code.__qualname__:
        raise UsageError("a child process imports the handler; define it at the top level of a module")
    return str(code.__module__)


def _place(target: Any) -> str:
    """Return the location of a handler: module.name (file:line)."""
    thing = target if isinstance(target, type) or inspect.isroutine(target) else type(target)
    if isinstance(target, functools.partial):
        thing = code_of(target)
    where = f"{thing.__module__}.{thing.__qualname__}"
    code = getattr(inspect.unwrap(thing), "__code__", None)
    return f"{where} ({code.co_filename}:{code.co_firstlineno})" if code else where
