"""A keyed lock in memory: callers of one process that need the same database lock wait here instead.

In the database each of them would occupy a connection. Under load, the database may end the session of the holder
between two statements; then nothing was committed, and the holder repeats its transaction. When the database is
unavailable, all waiters fail at once, not one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar
from weakref import WeakValueDictionary

from cograil.errors import DatabaseUnavailable
from cograil.store.database import STALLED, Undone

T = TypeVar("T")
Name = tuple[str | None, ...]
MAX_TRIES = 3


class _LockState:
    """The lock of one key, and when a holder last found the database unavailable."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.unavailable: tuple[float, DatabaseUnavailable] | None = None


class KeyedLock:
    """One holder at a time for each key; a key without waiters is forgotten."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Name, _LockState] = WeakValueDictionary()

    async def take(self, name: Name, act: Callable[[], Awaitable[T]]) -> T:
        """Run `act`, which is one transaction, under the lock of this key; return its result."""
        turn, clock = self._locks.setdefault(name, _LockState()), asyncio.get_running_loop().time
        came_at = clock()
        async with turn.lock:
            if turn.unavailable is not None and turn.unavailable[0] > came_at:
                raise type(turn.unavailable[1])(str(turn.unavailable[1]))
            try:
                return await persist(act)
            except DatabaseUnavailable as error:
                turn.unavailable = (clock(), error)
                raise


async def persist(act: Callable[[], Awaitable[T]]) -> T:
    """Run `act`, and again if its session was ended before it could commit."""
    for _ in range(MAX_TRIES - 1):
        with suppress(STALLED, Undone):
            return await act()
    return await act()
