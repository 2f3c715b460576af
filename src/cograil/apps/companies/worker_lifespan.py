"""Companies beside a worker: the handlers that ask the sources, and the sweeper."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from cograil.apps.companies.enrichment import EnrichmentContext
from cograil.apps.companies.handlers import Tools, bucket_of, register
from cograil.apps.companies.settings import CompanySettings
from cograil.apps.companies.source_http import SourceClient
from cograil.apps.companies.sources import configured
from cograil.apps.companies.sweeper import heartbeat_for_ever, sweep_for_ever
from cograil.apps.companies.workflow import QUEUE
from cograil.plugins import Bounds, Database, EngineContext, PublicOnly, Registry, Settings, background


@contextlib.asynccontextmanager
async def companies_on_worker(registry: Registry, db: Database, settings: Settings) -> AsyncIterator[None]:
    """Ask the sources in this block, and sweep."""

    own = settings.section(CompanySettings)
    context = EnrichmentContext(make_engine_context(settings), own)
    client = SourceClient(PublicOnly(settings.outbound), own.timeout_seconds)
    sources = configured(own, client, bucket_of(db, own.recherche_per_second))
    register(registry, Tools(db, context, sources))
    deeds = [sweep_for_ever(db, context)]
    if not settings.queues.names or QUEUE in settings.queues.names:
        deeds.append(heartbeat_for_ever(db, context))  # what waits for a worker waits for this one
    try:
        async with background("companies", *deeds):
            yield
    finally:
        await client.close()


def make_engine_context(settings: Settings) -> EngineContext:
    """What the runs that the sweeper begins need; those of callers have that of the server."""
    bounds = Bounds(poison_limit=settings.worker.poison_limit)
    return EngineContext(bounds=bounds, strict_queues=settings.queues.strict, outbound=settings.outbound)
