"""How a process comes to its database: one that is there and slow, or full, is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import structlog

from cograil.errors import DatabaseUnavailable
from cograil.store.database import LOST, Database

log = structlog.get_logger("store")

PATIENCE_SECONDS = 60.0
RETRY_SECONDS = 0.5
# What a server says that is there and cannot take us just now. In other languages we do not understand it.
NOT_NOW = (
    "too many clients",
    "too many connections",
    "remaining connection slots",
    "is starting up",
    "is shutting down",
    "in recovery mode",
    "timeout expired",
)

Found = TypeVar("Found")
Hope = Callable[[Exception], bool]


@asynccontextmanager
async def opened(db: Database) -> AsyncIterator[Database]:
    """This database, open in this block. Raises DatabaseUnavailable, at once where nobody answers at all."""
    await look(db.open, _says_not_now)
    try:
        yield db
    finally:
        await db.close()


async def look(at: Callable[[], Awaitable[Found]], is_hopeful: Hope = lambda _: True) -> Found:
    """What this look at the database finds. While there is hope it is taken again, for a minute.

    For the first looks of a process, on a slow machine or at a server that restarts; afterwards each of its
    loops tries again by itself. Raises what the last look raised.
    """
    until = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        try:
            return await at()
        except (*LOST, DatabaseUnavailable) as error:
            if asyncio.get_running_loop().time() > until or not is_hopeful(error):
                raise
            log.warning("cannot look at the database, trying again", error=str(error).strip())
        await asyncio.sleep(RETRY_SECONDS)


def _says_not_now(error: Exception) -> bool:
    return any(words in str(error) for words in NOT_NOW)
