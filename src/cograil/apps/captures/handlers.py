"""The handlers of the workflow that every new capture starts.

The cryptographic modules are imported with the first capture: most workers never seal any.
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
    from cograil.apps.captures.sealer import Sealer


@asynccontextmanager
async def captures_on_worker(registry: Registry, db: Database, settings: Settings) -> AsyncIterator[None]:
    """Register the handlers of captures with this worker, and sweep for abandoned captures."""

    @cache
    def sealer() -> Sealer:
        from cograil.apps.captures.sealer import Sealer  # noqa: PLC0415

        return Sealer(db, settings)

    async def seal(ctx: Context, capture_event_id: str) -> dict[str, Json]:
        """Check the object of a capture, and sign the result."""
        return await (await asyncio.to_thread(sealer)).seal(ctx, capture_event_id)

    async def settle(ctx: Context, capture_event_id: str) -> None:
        """Mark a capture as failed, and fail with the same error."""
        await (await asyncio.to_thread(sealer)).settle(ctx, capture_event_id)

    async def stamp(ctx: Context, capture_event_id: str) -> dict[str, Json]:
        """Add a time stamp of a time-stamping authority to the proof of a capture."""
        return await (await asyncio.to_thread(sealer)).stamp(ctx, capture_event_id)

    for handler in (seal, settle, stamp):
        registry.register(handler, f"captures.{handler.__name__}")
    async with background("captures", sweep_for_ever(db, settings)):
        yield
