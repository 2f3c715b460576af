"""Turns: those of one process who would wait for the same lock of the database wait for each other in memory.

In the database each of them would keep a connection waiting, and soon nobody else would have any. While a
crowd comes in, whoever has the turn may be kept so long between two statements that the database ends its
session: then nothing was done, and it is done again in the same turn. When the database is away, that is told
to all who wait at once, not to one after the other.
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


class _Turn:
    """Of one name: one at a time, and when one of them last could not reach the database."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.away: tuple[float, DatabaseUnavailable] | None = None


class Turns:
    """One turn at a time for each name; a name that nobody waits for is forgotten."""

    def __init__(self) -> None:
        self._turns: WeakValueDictionary[Name, _Turn] = WeakValueDictionary()

    async def take(self, name: Name, act: Callable[[], Awaitable[T]]) -> T:
        """What `act`, which is one transaction, returns in the turn of this name."""
        turn, clock = self._turns.setdefault(name, _Turn()), asyncio.get_running_loop().time
        came_at = clock()
        async with turn.lock:
            if turn.away is not None and turn.away[0] > came_at:
                raise type(turn.away[1])(str(turn.away[1]))
            try:
                return await persist(act)
            except DatabaseUnavailable as error:
                turn.away = (clock(), error)
                raise


async def persist(act: Callable[[], Awaitable[T]]) -> T:
    """Do it, and again if its session was ended before it could commit."""
    for _ in range(MAX_TRIES - 1):
        with suppress(STALLED, Undone):
            return await act()
    return await act()
