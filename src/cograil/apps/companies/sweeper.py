"""The sweeper ends runs that were left and marks what is old; the heartbeat holds the locks of who waits."""

from __future__ import annotations

import asyncio
import itertools

import psycopg
import structlog

from cograil.apps.companies import queries
from cograil.apps.companies.constants import COMPLETED_EVENT, INTERNAL_ERROR, lock_name
from cograil.apps.companies.enrichment import House, settle
from cograil.apps.companies.queries import Of
from cograil.apps.companies.run_log import Journal
from cograil.errors import CograilError, DatabaseUnavailable
from cograil.store.database import Database
from cograil.verbs import leases

HEARTBEATS = 4  # in the time of a lock
SOON = 0.1  # seconds; a lock that ends just now has ended then
AGEING = 10  # sweeps go by before it is looked for what has grown old: days count there

log = structlog.get_logger("companies")


async def sweep_for_ever(db: Database, house: House) -> None:
    """Sweep now and then, and when the next lock would end, until cancelled."""
    for number in itertools.count():
        pause = house.settings.sweep_seconds
        try:
            if number % AGEING == 0:
                await mark_old(db)
            _, next_end = await end_left(db, house)
            pause = min(pause, next_end + SOON)
        except (CograilError, psycopg.Error, OSError) as error:
            log.warning("sweep failed, trying again", error=str(error).strip())
        await asyncio.sleep(pause)


async def heartbeat_for_ever(db: Database, house: House) -> None:
    """Hold the locks of runs that are long, until cancelled."""
    while True:
        await asyncio.sleep(house.settings.lock_seconds / HEARTBEATS)
        try:
            await heartbeat(db, house)
        except (CograilError, psycopg.Error, OSError) as error:
            log.warning("heartbeat failed, trying again", error=str(error).strip())


async def heartbeat(db: Database, house: House) -> None:
    """Once: a run whose task waits for a worker keeps its lock, however long all of them are busy."""
    async with db.single("companies.held") as tx:
        held = await queries.list_held(tx)
    for of, fence in held:
        async with db.single("companies.hold") as tx:
            await leases.heartbeat(
                tx, lock_name(of.siren), fence, house.settings.lock_seconds, tenant=of.tenant
            )


async def sweep(db: Database, house: House) -> int:
    """Once, all of it; how many runs were ended."""
    await mark_old(db)
    return (await end_left(db, house))[0]


async def mark_old(db: Database) -> None:
    """What is older than it should be says so."""
    async with db.single("companies.stale") as tx:
        await queries.mark_stale(tx)


async def end_left(db: Database, house: House) -> tuple[int, float]:
    """End the runs that nobody is at any more: how many these were, and when there may be another."""
    async with db.single("companies.left") as tx:
        left, next_end = await queries.find_left(tx)
    ended = 0
    for of in left:
        ended += await _end_one(db, house, of)
    return ended, next_end


async def _end_one(db: Database, house: House, of: Of) -> bool:
    """Whatever is wrong with one of them, the others are ended; this one is tried again by the next sweep."""
    try:
        async with db.transaction("companies.settle") as tx:
            return await settle(tx, house, of)
    except DatabaseUnavailable:
        raise
    except Exception as error:
        own = Journal(*of, "").fields(COMPLETED_EVENT)
        told = own | {"error_code": INTERNAL_ERROR, "error_message": str(error).strip()}
        log.exception("run that was left could not be ended", **told)
        return False
