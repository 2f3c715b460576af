"""The sweeper ends abandoned runs and marks stale data; the heartbeat extends locks of waiting runs."""

from __future__ import annotations

import asyncio
import itertools

import psycopg
import structlog

from cograil.apps.companies import queries
from cograil.apps.companies.constants import COMPLETED_EVENT, INTERNAL_ERROR, lock_name
from cograil.apps.companies.enrichment import EnrichmentContext, settle
from cograil.apps.companies.queries import CompanyKey
from cograil.apps.companies.run_log import RunLog
from cograil.errors import CograilError, DatabaseUnavailable
from cograil.store.database import Database
from cograil.verbs import leases

HEARTBEATS = 4  # in the time of a lock
SOON = 0.1  # seconds; a lock that ends just now has ended then
AGEING = 10  # sweeps go by before it is looked for what has grown old: days count there

log = structlog.get_logger("companies")


async def sweep_for_ever(db: Database, context: EnrichmentContext) -> None:
    """Sweep now and then, and when the next lock would end, until cancelled."""
    for number in itertools.count():
        pause = context.settings.sweep_seconds
        try:
            if number % AGEING == 0:
                await mark_old(db)
            _, next_end = await end_left(db, context)
            pause = min(pause, next_end + SOON)
        except (CograilError, psycopg.Error, OSError) as error:
            log.warning("sweep failed, trying again", error=str(error).strip())
        await asyncio.sleep(pause)


async def heartbeat_for_ever(db: Database, context: EnrichmentContext) -> None:
    """Hold the locks of runs that are long, until cancelled."""
    while True:
        await asyncio.sleep(context.settings.lock_seconds / HEARTBEATS)
        try:
            await heartbeat(db, context)
        except (CograilError, psycopg.Error, OSError) as error:
            log.warning("heartbeat failed, trying again", error=str(error).strip())


async def heartbeat(db: Database, context: EnrichmentContext) -> None:
    """Extend the lock of every run whose task waits for a worker, however long all are busy."""
    async with db.single("companies.held") as tx:
        held = await queries.list_held(tx)
    for company_key, fence in held:
        async with db.single("companies.hold") as tx:
            await leases.heartbeat(
                tx,
                lock_name(company_key.siren),
                fence,
                context.settings.lock_seconds,
                tenant=company_key.tenant,
            )


async def sweep(db: Database, context: EnrichmentContext) -> int:
    """Run one sweep; return how many runs were ended."""
    await mark_old(db)
    return (await end_left(db, context))[0]


async def mark_old(db: Database) -> None:
    """Mark companies with expired data as STALE."""
    async with db.single("companies.stale") as tx:
        await queries.mark_stale(tx)


async def end_left(db: Database, context: EnrichmentContext) -> tuple[int, float]:
    """End abandoned runs; return how many, and the seconds until the next lock expires."""
    async with db.single("companies.left") as tx:
        left_runs, next_end = await queries.find_left(tx)
    ended = 0
    for company_key in left_runs:
        ended += await _end_one(db, context, company_key)
    return ended, next_end


async def _end_one(db: Database, context: EnrichmentContext, company_key: CompanyKey) -> bool:
    """End one run; an error does not stop the others, and the next sweep tries again."""
    try:
        async with db.transaction("companies.settle") as tx:
            return await settle(tx, context, company_key)
    except DatabaseUnavailable:
        raise
    except Exception as error:
        own = RunLog(*company_key, "").fields(COMPLETED_EVENT)
        fields = own | {"error_code": INTERNAL_ERROR, "error_message": str(error).strip()}
        log.exception("run that was left could not be ended", **fields)
        return False
