"""The worker's side of a handler's `ctx`.

Checkpoints, events and steps are written at once; progress and log lines once a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import structlog

from cograil import logs
from cograil.errors import DatabaseUnavailable
from cograil.model.app_events import AppEvent
from cograil.model.outcome import WorkItem
from cograil.model.workflow import Json
from cograil.store.database import Database
from cograil.store.handler_transactions import HandlerConnections
from cograil.verbs import tasks
from cograil.verbs.tasks import Step
from cograil.worker.heartbeat import Identity
from cograil.worker.progress_writer import ProgressWriter
from cograil.worker.step_writer import StepWriter
from cograil.worker.worker_transactions import WorkerTransaction

log = structlog.get_logger("worker")
handler_logger = structlog.get_logger("handler")
MAX_SAVE_TRIES = 20
RETRY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class ChannelServices:
    """The services of a worker that its channels use."""

    db: Database
    progress_writer: ProgressWriter
    step_writer: StepWriter
    connections: HandlerConnections


class WorkerChannel:
    """Implements `Channel` for the attempts of one worker identity."""

    def __init__(self, lines: ChannelServices, identity: Identity) -> None:
        self._services = lines
        self._identity = identity

    async def save_checkpoint(self, item: WorkItem, data: bytes, phase: str) -> bool:
        """Save a checkpoint durably. Return False when this worker no longer owns the attempt.

        Saving is idempotent, so errors are retried.
        """
        worker, name = self._identity.worker_id, self._identity.name

        async def once() -> bool:
            async with self._services.db.single("checkpoint") as tx:
                return await tasks.save_checkpoint(tx, worker, name, item, phase, data)

        return await _save_with_retries(once, "checkpoint")

    async def tell(self, item: WorkItem, event: AppEvent) -> bool:
        """Publish an event durably. Return False when this worker no longer owns the attempt.

        Each event has a unique mark, so a retry after an error publishes it once.
        """
        worker, name = self._identity.worker_id, self._identity.name

        async def once() -> bool:
            async with self._services.db.single("tell") as tx:
                return await tasks.add_attempt_event(tx, worker, name, item, event)

        return await _save_with_retries(once, "event")

    async def save_step(self, item: WorkItem, name: str, output: bytes) -> bool:
        """Save a step durably. Return False when this worker no longer owns the attempt."""
        return await self._services.step_writer.save(self._identity, Step(item, name, output))

    def create_transaction(self, item: WorkItem, connection: Any) -> WorkerTransaction:
        """Create the transaction of this attempt, on this connection or on one of the worker's."""
        lines = self._services
        return WorkerTransaction(
            lines.db, lines.connections, lines.progress_writer, self._identity, item, connection
        )

    def note_progress(self, item: WorkItem, current: float, total: float | None, message: str) -> None:
        """Queue the latest progress for the next write."""
        self._services.progress_writer.add(
            self._identity, item, current=current, total=total, message=message
        )

    def note_log(self, item: WorkItem, line: dict[str, Json]) -> None:
        """Queue this log line, and log it in this process unless another logger already did."""
        self._services.progress_writer.add(self._identity, item, line=line)
        if "logger" in line:
            return
        fields = {"fields": line["fields"]} if "fields" in line else {}
        getattr(handler_logger, line["level"])(
            line["message"], **logs.attempt_fields(item, line.get("fields")), **fields
        )


async def _save_with_retries(once: Callable[[], Awaitable[bool]], what: str) -> bool:
    """Call `once` until it succeeds, and return its result. Return False after `MAX_SAVE_TRIES` errors."""
    for _ in range(MAX_SAVE_TRIES):
        try:
            return await once()
        except (psycopg.OperationalError, psycopg.InterfaceError, DatabaseUnavailable) as error:
            log.warning("not saved, trying again", what=what, error=str(error).strip())
            await asyncio.sleep(RETRY_SECONDS)
    return False
