"""Single-flight: concurrent calls with the same key share one execution and its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")
END_SECONDS = 1.0


class _Execution(NamedTuple):
    task: asyncio.Task[Any]
    started_at: float


class SingleFlight(Generic[T]):
    """Executions in progress, by key. Calls do not join an execution older than `max_age_seconds`.

    A call may be cancelled: the execution continues for the others.
    """

    def __init__(self, max_age_seconds: float) -> None:
        self._max_age_seconds = max_age_seconds
        self._executions: dict[Hashable, _Execution] = {}
        self._tasks: set[asyncio.Task[T]] = set()

    async def run(self, key: Hashable, function: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T, bool]:
        """Return the result, and whether this call started the execution. Raises what `function` raises."""
        now = asyncio.get_running_loop().time()
        execution = self._executions.get(key)
        if execution is not None and now - execution.started_at < self._max_age_seconds:
            return await asyncio.shield(execution.task), False
        task = asyncio.create_task(function(), name="single-flight")
        self._executions[key] = _Execution(task, now)
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._remove(key, task))
        return await asyncio.shield(task), True

    def _remove(self, key: Hashable, task: asyncio.Task[T]) -> None:
        self._tasks.discard(task)
        if (execution := self._executions.get(key)) is not None and execution.task is task:
            del self._executions[key]
        if not task.cancelled():
            task.exception()  # all callers may have been cancelled: mark the exception as retrieved

    async def end(self) -> None:
        """Cancel all executions and wait for them, at most END_SECONDS."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=END_SECONDS)
