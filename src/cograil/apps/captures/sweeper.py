"""The sweeper: finds abandoned captures, whose job has ended or was removed without ending them."""

from __future__ import annotations

import asyncio

import psycopg
import structlog

from cograil.apps.captures.settings import CaptureSettings
from cograil.errors import CograilError
from cograil.settings import Settings
from cograil.store.database import Database
from cograil.store.statements import statement

log = structlog.get_logger("captures")
FIND_LEFT = statement("find_left_captures", package="cograil.apps.captures")
AT_ONCE = 100


async def sweep_for_ever(db: Database, settings: Settings) -> None:
    """Sweep at the configured interval, until cancelled."""
    while True:
        try:
            await sweep(db, settings)
        except (CograilError, psycopg.Error, OSError) as error:
            log.warning("sweep failed, trying again", error=str(error).strip())
        await asyncio.sleep(settings.section(CaptureSettings).sweep_seconds)


async def sweep(db: Database, settings: Settings) -> int:
    """Run one sweep; return how many captures were ended or begun again."""
    async with db.single("left_captures") as tx:
        left = await tx.fetch(FIND_LEFT, grace=settings.section(CaptureSettings).retry_seconds, limit=AT_ONCE)
    if not left:
        return 0
    from cograil.apps.captures.reconciler import reconcile  # noqa: PLC0415  for few workers, and seldom

    return sum([await reconcile(db, settings, tenant, id) for tenant, id in left])
