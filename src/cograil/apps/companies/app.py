"""The app `companies`, as the processes know it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from cograil.apps.app import App
from cograil.apps.background_tasks import background
from cograil.egress import PublicOnly
from cograil.model.job import Bounds
from cograil.runners.handler_registry import Registry
from cograil.settings import Settings
from cograil.store.database import Database
from cograil.verbs.advance import EngineContext

if TYPE_CHECKING:  # a worker needs neither
    from starlette.types import ASGIApp

    from cograil.http.server.dispatcher import Instance
    from cograil.http.server.openapi import Described


def _doors(instance: Instance) -> Mapping[str, ASGIApp]:
    from cograil.apps.companies.routes import PREFIX, company_door  # noqa: PLC0415  a worker needs none

    return {PREFIX: company_door(instance)}


def _described() -> Described:
    from cograil.apps.companies.routes import DESCRIBED  # noqa: PLC0415

    return DESCRIBED


@contextlib.asynccontextmanager
async def running_companies(registry: Registry, db: Database, settings: Settings) -> AsyncIterator[None]:
    """Ask the sources in this block, and sweep."""
    from cograil.apps.companies.enrichment import House  # noqa: PLC0415
    from cograil.apps.companies.handlers import Tools, bucket_of, register  # noqa: PLC0415
    from cograil.apps.companies.source_http import Caller  # noqa: PLC0415  a server needs none
    from cograil.apps.companies.sources import configured  # noqa: PLC0415
    from cograil.apps.companies.sweeper import heartbeat_for_ever, sweep_for_ever  # noqa: PLC0415
    from cograil.apps.companies.workflow import QUEUE  # noqa: PLC0415

    own = settings.companies
    house = House(make_engine_context(settings), own)
    caller = Caller(PublicOnly(settings.outbound), own.timeout_seconds)
    sources = configured(own, caller, bucket_of(db, own.recherche_per_second))
    register(registry, Tools(db, house, sources))
    deeds = [sweep_for_ever(db, house)]
    if not settings.queues.names or QUEUE in settings.queues.names:
        deeds.append(heartbeat_for_ever(db, house))  # what waits for a worker waits for this one
    try:
        async with background("companies", *deeds):
            yield
    finally:
        await caller.close()


def make_engine_context(settings: Settings) -> EngineContext:
    """What the runs that the sweeper begins need; those of callers have that of the server."""
    bounds = Bounds(poison_limit=settings.worker.poison_limit)
    return EngineContext(bounds=bounds, strict_queues=settings.queues.strict, outbound=settings.outbound)


async def _sentence(settings: Settings) -> str:
    """What is half set up; for most there is nothing to say."""
    own, said = settings.companies, []
    if bool(own.inpi_username) != bool(own.inpi_password):
        said.append(
            "INPI_RNE is not asked: it needs both COGRAIL_COMPANIES__INPI_USERNAME and __INPI_PASSWORD"
        )
    if own.rcs_token and not own.rcs_recipient:
        said.append(
            "API_ENTREPRISE_RCS wants to know for whom: set COGRAIL_COMPANIES__RCS_RECIPIENT to a SIRET"
        )
    return "; ".join(said)


app = App(
    name="companies",
    is_enabled=lambda settings: settings.companies.enabled,
    doors=_doors,
    described=_described,
    beside_worker=running_companies,
    sentence=_sentence,
)
