"""Stubs of handlers in a test: a function, a value, an exception, or a list of these for the attempts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cograil.errors import UsageError
from cograil.model.outcome import Failed, Outcome, WorkItem
from cograil.runners import python_runner
from cograil.runners.context import DEFAULT_LIMITS
from cograil.runners.handler_registry import HandlerSpec, Registry, default_registry
from cograil.runners.handler_results import completed
from cograil.testing.handler_context import Context

Stub = Any  # a callable, a JSON value, an exception, or a list of these for the attempts


class Timeout(Exception):
    """Raise it, or use it as a stub: the attempt exceeds its timeout."""


class StubbedHandlers:
    """The handlers of a test: its stubs, otherwise the registered ones."""

    def __init__(self, stubs: Mapping[str, Stub]) -> None:
        from cograil.runners import builtin_handlers  # noqa: F401, PLC0415  importing registers

        self._registry = Registry()
        self._values: dict[str, Stub] = {}
        self._queues: dict[str, Iterator[Stub]] = {}
        for name, stub in stubs.items():
            if isinstance(stub, list | tuple):
                self._queues[name] = iter(stub)
            else:
                self._set(name, stub)

    def _set(self, name: str, stub: Stub) -> None:
        self._values[name] = stub
        if callable(stub) and not _is_exception(stub):
            self._registry = self._registry.only(
                registered for registered in self._registry.names() if registered != name
            )
            self._registry.register(stub, name)

    def run(self, item: WorkItem, context: Context) -> Outcome:
        """Run this attempt to its end."""
        if item.handler in self._queues:
            self._set(item.handler, self._next(item.handler))
        stub = self._values.get(item.handler)
        if _is_exception(stub):
            return _failed(stub, item)
        if item.handler in self._values and not callable(stub):
            return completed(stub, DEFAULT_LIMITS.output_bytes)
        outcome = python_runner.run_here(self._spec(item), item, context, DEFAULT_LIMITS)
        is_timeout = isinstance(outcome, Failed) and _type_of(outcome) == Timeout.__qualname__
        return _failed(Timeout(), item) if is_timeout else outcome

    def _next(self, name: str) -> Stub:
        try:
            return next(self._queues[name])
        except StopIteration:
            raise AssertionError(f"handlers[{name!r}] has no answer for another attempt") from None

    def _spec(self, item: WorkItem) -> HandlerSpec:
        spec = self._registry.get(item.handler) or default_registry.get(item.handler)
        if spec is None:
            raise UsageError(
                f"node {item.node_id!r} needs the handler {item.handler!r}: "
                f"import the module that registers it, or give handlers={{{item.handler!r}: ...}}"
            )
        return spec


def _is_exception(stub: Stub) -> bool:
    return isinstance(stub, BaseException) or (isinstance(stub, type) and issubclass(stub, BaseException))


def _failed(error: Any, item: WorkItem) -> Failed:
    error = error() if isinstance(error, type) else error
    if isinstance(error, Timeout):
        return Failed("timeout", f"the handler did not finish within {item.timeout_seconds:g} s")
    return python_runner.failure(error)


def _type_of(outcome: Failed) -> Any:
    return outcome.details.get("type") if isinstance(outcome.details, dict) else None
