"""How many containers one worker runs at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ContainerSlots:
    """So many slots. What runs already has one at once; where none is free, the next that ends leaves none.

    Else every restart of a worker would add as many containers as it may run.
    """

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)
        self._owed = 0

    @asynccontextmanager
    async def one(self, *, runs_already: bool = False) -> AsyncIterator[None]:
        """Wait for a slot and have it in this block."""
        if runs_already and self._free.locked():
            self._owed += 1
        else:
            await self._free.acquire()
        try:
            yield
        finally:
            if self._owed:
                self._owed -= 1
            else:
                self._free.release()
