"""Turns: those of one process who would wait for the same lock of the database wait for each other in memory.

In the database each of them would keep a connection waiting, and soon nobody else would have any.
"""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary


class Turns:
    """One turn at a time for each name; a name that nobody waits for is forgotten."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[tuple[str | None, ...], asyncio.Lock] = WeakValueDictionary()

    def of(self, *name: str | None) -> asyncio.Lock:
        """The turn of this name, to be waited for with `async with`."""
        return self._locks.setdefault(name, asyncio.Lock())
