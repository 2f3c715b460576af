"""What a handler's `ctx` talks to: checkpoints and steps at once, progress and log lines once a second."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import psycopg
import structlog

from cograil.errors import DatabaseUnavailable
from cograil.model.outcome import WorkItem
from cograil.model.workflow import Json
from cograil.store.database import Database
from cograil.store.joint import HandlerConnections
from cograil.verbs import work
from cograil.verbs.work import Step
from cograil.worker.notes import Notes
from cograil.worker.pulse import Identity
from cograil.worker.saver import StepSaver
from cograil.worker.transactions import WorkerJoint

log = structlog.get_logger("worker")
CHECKPOINT_TRIES = 20
RETRY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Lines:
    """Where what handlers say goes; one of each for a worker."""

    db: Database
    notes: Notes
    saver: StepSaver
    connections: HandlerConnections


class WorkerChannel:
    """The channel of one identity of this worker."""

    def __init__(self, lines: Lines, identity: Identity) -> None:
        self._lines = lines
        self._identity = identity

    async def save_checkpoint(self, item: WorkItem, data: bytes, phase: str) -> bool:
        """Durable when it returns True; False when the attempt is no longer ours.

        Saving the same checkpoint twice does no harm, so an error is simply tried again.
        """
        for _ in range(CHECKPOINT_TRIES):
            try:
                async with self._lines.db.single("checkpoint") as tx:
                    identity = self._identity
                    return await work.checkpoint(tx, identity.worker_id, identity.name, item, phase, data)
            except (psycopg.OperationalError, psycopg.InterfaceError, DatabaseUnavailable) as error:
                log.warning("checkpoint failed, trying again", error=str(error).strip())
                await asyncio.sleep(RETRY_SECONDS)
        return False

    async def save_step(self, item: WorkItem, name: str, output: bytes) -> bool:
        """Durable when it returns True; False when the attempt is no longer ours."""
        return await self._lines.saver.save(self._identity, Step(item, name, output))

    def join(self, item: WorkItem, connection: Any) -> WorkerJoint:
        """What the transaction of a handler needs."""
        lines = self._lines
        return WorkerJoint(lines.db, lines.connections, lines.notes, self._identity, item, connection)

    def note_progress(self, item: WorkItem, current: float, total: float | None, message: str) -> None:
        """Remember the latest progress."""
        self._lines.notes.add(self._identity, item, current=current, total=total, message=message)

    def note_log(self, item: WorkItem, line: dict[str, Json]) -> None:
        """Keep this line."""
        self._lines.notes.add(self._identity, item, line=line)
