"""The scheduler loop: fires schedules when they are due."""

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
from cograil.verbs.schedules import Fired, fire_due, seconds_to_next

log = structlog.get_logger("schedules")
REASONS = {
    "overlapped": "its last job is still running, and overlap is skip",
    "missed": "no scheduler ran at that time",
    "refused": "the job was refused; `cograil schedules firings` shows the reason",
}

MAX_SLEEP_SECONDS = 30.0  # a notification may be lost
FALLBACK_POLL_SECONDS = 5.0  # while the listener is not connected
RETRY_SECONDS = 2.0
BUSY_SECONDS = 0.2  # another scheduler holds the due schedules


class Scheduler:
    """Wakes when a schedule is due, or on a notification that schedules have changed."""

    def __init__(self, db: Database, engine_context: EngineContext) -> None:
        self._db = db
        self._engine_context = engine_context
        self._wake = asyncio.Event()
        self._is_stopped = False
        self._listener = Listener(db.direct, [SCHEDULES_CHANNEL], self._on_notify)

    def stop(self) -> None:
        """Make `run` return after the current pass."""
        self._is_stopped = True
        self._wake.set()

    async def run(self) -> None:
        """Fire schedules until stopped. The error of a pass is logged, and the next pass tries again."""
        await self._listener.start()
        try:
            while not self._is_stopped:
                seconds = await self._fire_due()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), seconds)
                self._wake.clear()
        finally:
            await self._listener.stop()

    async def _fire_due(self) -> float:
        """Fire the due schedules; return the seconds until the next pass."""
        try:
            async with self._db.single("calendar") as tx:
                seconds = await seconds_to_next(tx)
            if seconds is None or seconds > 0:
                return self._max_sleep if seconds is None else min(seconds, self._max_sleep)
            async with self._db.transaction("fire") as tx:
                fired = await fire_due(tx, self._engine_context)
        except (DatabaseUnavailable, psycopg.Error) as error:
            log.warning("cannot load due schedules, trying again", error=str(error).strip())
            return RETRY_SECONDS
        except Exception:
            log.exception("schedules cannot be fired")
            return self._max_sleep
        _log_fired(fired)
        return 0.0 if fired.submitted or fired.passed_over else BUSY_SECONDS

    @property
    def _max_sleep(self) -> float:
        return MAX_SLEEP_SECONDS if self._listener.can_hear else FALLBACK_POLL_SECONDS

    def _on_notify(self, channel: str, payload: str) -> None:
        self._wake.set()


def _log_fired(fired: Fired) -> None:
    for passed in fired.passed:
        log_fields = {
            "schedule": passed.schedule,
            "moments": passed.moments,
            "reason": REASONS[passed.outcome],
        }
        if passed.job_id:
            log_fields["job_id"] = passed.job_id
        log.warning("passed over", **log_fields)
    if fired.submitted:
        log.info("fired", submitted=fired.submitted)
