"""The limit of concurrent containers of a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ContainerSlots:
    """A fixed number of slots. A running container always gets one; if none is free, the next release is skipped.

    Otherwise every restart of a worker would add as many containers as its limit.
    """

    def __init__(self, limit: int) -> None:
        self._free = asyncio.Semaphore(limit)
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
