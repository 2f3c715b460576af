"""The sweeper: ends runs that were left, and marks what is no longer fresh."""

from __future__ import annotations

import asyncio

import psycopg
import structlog

from cograil.apps.companies import rows
from cograil.apps.companies.enriching import House, settle
from cograil.errors import CograilError
from cograil.store.database import Database

log = structlog.get_logger("companies")


async def sweep_for_ever(db: Database, house: House) -> None:
    """Sweep now and then, until cancelled."""
    while True:
        try:
            await sweep(db, house)
        except (CograilError, psycopg.Error, OSError) as error:
            log.warning("sweep failed, trying again", error=str(error).strip())
        await asyncio.sleep(house.settings.sweep_seconds)


async def sweep(db: Database, house: House) -> int:
    """Once; how many runs were ended."""
    async with db.single("companies.stale") as tx:
        await rows.mark_stale(tx)
    async with db.single("companies.left") as tx:
        left = await rows.find_left(tx)
    ended = 0
    for of in left:
        async with db.transaction("companies.settle") as tx:
            ended += await settle(tx, house, of)
    return ended
