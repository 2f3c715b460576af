"""Progress and log lines of handlers, written once a second and before their attempt ends."""

from __future__ import annotations

import asyncio
import threading
from contextvars import Context
from typing import Any

import psycopg
import structlog

from cograil.errors import DatabaseUnavailable
from cograil.model.outcome import WorkItem
from cograil.model.workflow import Json
from cograil.store.database import Database
from cograil.verbs import tasks
from cograil.worker.heartbeat import Identity

log = structlog.get_logger("worker")
FLUSH_SECONDS = 1.0


class ProgressWriter:
    """Collects progress and log lines from any thread and writes them from the event loop."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._lock = threading.Lock()
        self._pending: dict[int, dict[str, Any]] = {}
        self._owners: dict[int, Identity] = {}
        self._loop = asyncio.get_running_loop()
        self._flush_task: asyncio.Task[None] | None = None

    def add(self, identity: Identity, item: WorkItem, **values: Json) -> None:
        """Keep the latest values of this attempt; log lines are appended."""
        line = values.pop("line", None)
        with self._lock:
            entry = self._pending.setdefault(item.task_id, {"id": item.task_id, "fence": item.fence})
            self._owners[item.task_id] = identity
            is_first = len(self._pending) == 1 and len(entry) == 2
            entry.update(values)
            if line is not None:
                entry.setdefault("lines", []).append(line)
        if is_first:
            self._loop.call_soon_threadsafe(self._schedule, context=Context())  # not the handler's

    def _schedule(self) -> None:
        if self._flush_task is None or self._flush_task.done():
            self._flush_task = asyncio.create_task(self._flush_later(), name="progress_writer")

    def stop(self) -> None:
        """Cancel the scheduled write."""
        if self._flush_task is not None:
            self._flush_task.cancel()

    async def _flush_later(self) -> None:
        await asyncio.sleep(FLUSH_SECONDS)
        with self._lock:
            owners = set(self._owners.values())
            ids = set(self._pending)
        for identity in owners:
            try:
                await self.flush(identity, ids)
            except (psycopg.Error, DatabaseUnavailable) as error:
                log.warning("progress not written", error=str(error).strip())
            except Exception:
                log.exception("progress not written")

    async def flush(self, identity: Identity, ids: set[int]) -> None:
        """Write the pending progress and log lines of these tasks of this identity."""
        with self._lock:
            owned = [
                task_id for task_id in ids & self._pending.keys() if self._owners.get(task_id) == identity
            ]
            entries = [self._pending.pop(task_id) for task_id in owned]
            for task_id in owned:
                self._owners.pop(task_id)
        if entries:
            async with self._db.single("progress") as tx:
                await tasks.save_progress(tx, identity.worker_id, entries)
