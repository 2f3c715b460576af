"""Connecting with retries: a process waits for a database that is slow, full or starting."""

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
# Messages of a server that cannot accept a session at the moment. Translated messages are not recognised.
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
    """Yield this database, open in this block. Raises DatabaseUnavailable at once when no server answers."""
    await look(db.open, _says_not_now)
    try:
        yield db
    finally:
        await db.close()


async def look(at: Callable[[], Awaitable[Found]], is_hopeful: Hope = lambda _: True) -> Found:
    """Run `at` and return its result. While the outage seems temporary, retry for a minute.

    For the first queries of a process, on a slow machine or at a server that restarts; later, each loop of
    the process retries by itself. Raises the error of the last try.
    """
    until = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        try:
            return await at()
        except (*LOST, DatabaseUnavailable) as error:
            if asyncio.get_running_loop().time() > until or not is_hopeful(error):
                raise
            log.warning("cannot query the database, trying again", error=str(error).strip())
        await asyncio.sleep(RETRY_SECONDS)


def _says_not_now(error: Exception) -> bool:
    return any(words in str(error) for words in NOT_NOW)
