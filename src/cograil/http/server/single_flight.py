"""What many ask at the same moment is looked up once, and all are told the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")
END_SECONDS = 1.0


class _Flight(NamedTuple):
    task: asyncio.Task[Any]
    begun: float


class Flights(Generic[T]):
    """Questions under way. One that has taken longer than `patience` seconds is not joined any more.

    Whoever asks may go away: the answer is for the others then.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._under_way: dict[Hashable, _Flight] = {}
        self._tasks: set[asyncio.Task[T]] = set()

    async def join(self, key: Hashable, ask: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T, bool]:
        """The answer, and whether it was asked for us. Raises what asking raised."""
        now = asyncio.get_running_loop().time()
        found = self._under_way.get(key)
        if found is not None and now - found.begun < self._patience:
            return await asyncio.shield(found.task), False
        task = asyncio.create_task(ask(), name="question")
        self._under_way[key] = _Flight(task, now)
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._forget(key, task))
        return await asyncio.shield(task), True

    def _forget(self, key: Hashable, task: asyncio.Task[T]) -> None:
        self._tasks.discard(task)
        if (found := self._under_way.get(key)) is not None and found.task is task:
            del self._under_way[key]
        if not task.cancelled():
            task.exception()  # perhaps nobody is there any more to whom it matters

    async def end(self) -> None:
        """Ask nothing more."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=END_SECONDS)
