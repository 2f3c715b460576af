"""The handlers of the workflow that every new capture starts.

What opens and signs is imported when the first capture comes: most workers never seal any.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING

from cograil.apps.captures.sweeper import sweep_for_ever
from cograil.model.workflow import Json
from cograil.runners.context import Context
from cograil.runners.handler_registry import Registry
from cograil.settings import Settings
from cograil.store.database import Database
from cograil.worker.background_tasks import background

if TYPE_CHECKING:
    from cograil.apps.captures.sealing import Sealer


@asynccontextmanager
async def sealing(registry: Registry, db: Database, settings: Settings) -> AsyncIterator[None]:
    """Let the worker of this registry seal captures, and look for those that were left."""

    @cache
    def sealer() -> Sealer:
        from cograil.apps.captures.sealing import Sealer  # noqa: PLC0415

        return Sealer(db, settings)

    async def seal(ctx: Context, capture_event_id: str) -> dict[str, Json]:
        """Examine the object of a capture, and sign what was found."""
        return await (await asyncio.to_thread(sealer)).seal(ctx, capture_event_id)

    async def settle(ctx: Context, capture_event_id: str) -> None:
        """Write down why a capture was given up, and fail as it did."""
        await (await asyncio.to_thread(sealer)).settle(ctx, capture_event_id)

    async def stamp(ctx: Context, capture_event_id: str) -> dict[str, Json]:
        """Ask a time-stamping authority about the proof of a capture, and add what it says."""
        return await (await asyncio.to_thread(sealer)).stamp(ctx, capture_event_id)

    for one in (seal, settle, stamp):
        registry.register(one, f"captures.{one.__name__}")
    async with background("captures", sweep_for_ever(db, settings)):
        yield
