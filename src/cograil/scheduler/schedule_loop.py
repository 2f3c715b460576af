"""The clock: fires schedules when they are due. Every orchestrator has one; none leads."""

from __future__ import annotations

import asyncio
import contextlib

import psycopg
import structlog

from cograil.errors import DatabaseUnavailable
from cograil.store.database import Database
from cograil.store.listener import Listener
from cograil.store.schedule_queries import SCHEDULES_CHANNEL
from cograil.verbs.advance import EngineContext
from cograil.verbs.schedules import fire_due, seconds_to_next

log = structlog.get_logger("schedules")
REASONS = {
    "overlapped": "its last job is still under way, and overlap is skip",
    "missed": "nothing fired schedules when they came",
    "refused": "the job was refused; `cograil schedules firings` says why",
}

MAX_SLEEP, DEAF_SLEEP = 30.0, 5.0  # a notice may be lost; or none can be heard
RETRY_SECONDS = 2.0
BUSY_SECONDS = 0.2  # what is due is in another's hands


class Clock:
    """Looks when something is due, or when somebody says that the calendar has changed."""

    def __init__(self, db: Database, engine_context: EngineContext) -> None:
        self._db = db
        self._engine_context = engine_context
        self._wake = asyncio.Event()
        self._is_over = False
        self._listener = Listener(db.direct, [SCHEDULES_CHANNEL], self._hear)

    def stop(self) -> None:
        """Return from `run` after the look at hand."""
        self._is_over = True
        self._wake.set()

    async def run(self) -> None:
        """Fire until stopped. An error of one look is logged; the next one tries again."""
        await self._listener.start()
        try:
            while not self._is_over:
                seconds = await self._look()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), seconds)
                self._wake.clear()
        finally:
            await self._listener.stop()

    async def _look(self) -> float:
        """Fire what is due; for how long nothing will be."""
        try:
            async with self._db.single("calendar") as tx:
                seconds = await seconds_to_next(tx)
            if seconds is None or seconds > 0:
                return self._longest if seconds is None else min(seconds, self._longest)
            async with self._db.transaction("fire") as tx:
                fired = await fire_due(tx, self._engine_context)
        except (DatabaseUnavailable, psycopg.Error) as error:
            log.warning("cannot look for what is due, trying again", error=str(error).strip())
            return RETRY_SECONDS
        except Exception:
            log.exception("schedules cannot be fired")
            return self._longest
        for passed in fired.passed:
            facts = {
                "schedule": passed.schedule,
                "moments": passed.moments,
                "reason": REASONS[passed.outcome],
            }
            log.warning("passed over", **facts, **({"job_id": passed.job_id} if passed.job_id else {}))
        if fired.submitted:
            log.info("fired", submitted=fired.submitted)
        if fired.submitted or fired.passed_over:
            return 0.0
        return BUSY_SECONDS

    @property
    def _longest(self) -> float:
        return MAX_SLEEP if self._listener.can_hear else DEAF_SLEEP

    def _hear(self, channel: str, payload: str) -> None:
        self._wake.set()
