"""What a handler's `ctx` talks to: checkpoints, events and steps at once, the rest once a second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import structlog

from cograil import logs
from cograil.errors import DatabaseUnavailable
from cograil.model.app_events import Event
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
said = structlog.get_logger("handler")
SAVING_TRIES = 20
RETRY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class ChannelServices:
    """Where what handlers say goes; one of each for a worker."""

    db: Database
    progress_writer: ProgressWriter
    saver: StepWriter
    connections: HandlerConnections


class WorkerChannel:
    """The channel of one identity of this worker."""

    def __init__(self, lines: ChannelServices, identity: Identity) -> None:
        self._services = lines
        self._identity = identity

    async def save_checkpoint(self, item: WorkItem, data: bytes, phase: str) -> bool:
        """Durable when it returns True; False when the attempt is no longer ours.

        Saving the same checkpoint twice does no harm, so an error is simply tried again.
        """
        worker, name = self._identity.worker_id, self._identity.name

        async def once() -> bool:
            async with self._services.db.single("checkpoint") as tx:
                return await tasks.checkpoint(tx, worker, name, item, phase, data)

        return await _saved(once, "checkpoint")

    async def tell(self, item: WorkItem, event: Event) -> bool:
        """Durable when it returns True; False when the attempt is no longer ours.

        An event has a mark of its own, so that telling it again after an error tells it once.
        """
        worker, name = self._identity.worker_id, self._identity.name

        async def once() -> bool:
            async with self._services.db.single("tell") as tx:
                return await tasks.tell(tx, worker, name, item, event)

        return await _saved(once, "event")

    async def save_step(self, item: WorkItem, name: str, output: bytes) -> bool:
        """Durable when it returns True; False when the attempt is no longer ours."""
        return await self._services.saver.save(self._identity, Step(item, name, output))

    def create_transaction(self, item: WorkItem, connection: Any) -> WorkerTransaction:
        """What the transaction of a handler needs."""
        lines = self._services
        return WorkerTransaction(
            lines.db, lines.connections, lines.progress_writer, self._identity, item, connection
        )

    def note_progress(self, item: WorkItem, current: float, total: float | None, message: str) -> None:
        """Remember the latest progress."""
        self._services.progress_writer.add(
            self._identity, item, current=current, total=total, message=message
        )

    def note_log(self, item: WorkItem, line: dict[str, Json]) -> None:
        """Keep this line, and let it be heard where this process logs unless it was heard already."""
        self._services.progress_writer.add(self._identity, item, line=line)
        if "logger" in line:
            return
        fields = {"fields": line["fields"]} if "fields" in line else {}
        getattr(said, line["level"])(
            line["message"], **logs.attempt_fields(item, line.get("fields")), **fields
        )


async def _saved(once: Callable[[], Awaitable[bool]], what: str) -> bool:
    """Whether it counts; an error is tried again, for to save the same twice does no harm."""
    for _ in range(SAVING_TRIES):
        try:
            return await once()
        except (psycopg.OperationalError, psycopg.InterfaceError, DatabaseUnavailable) as error:
            log.warning("not saved, trying again", what=what, error=str(error).strip())
            await asyncio.sleep(RETRY_SECONDS)
    return False
