"""Claiming tasks for one worker, including tasks that must run exclusively."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import psycopg

from cograil import tracing
from cograil.errors import DatabaseUnavailable
from cograil.model.outcome import WorkItem
from cograil.store.database import Database
from cograil.store.scan_cursors import ClaimCursors
from cograil.verbs import tasks
from cograil.verbs.tasks import Slots, WorkerHeartbeat


class TaskClaimer:
    """Claims tasks and remembers what the last claim and the last heartbeat said about exclusive tasks.

    A task that runs exclusively needs a worker without any other attempt. The heartbeat names the worker that
    must finish its attempts first (`makes_room`).
    """

    def __init__(self, db: Database) -> None:
        self.answered = 0  # claims that the database has answered; attempts and heartbeats refer to it
        self.is_claiming = False
        self.makes_room = False
        self.runs_exclusively = False  # the last claim returned an exclusive task
        self.workflows: dict[str, tuple[str, int]] = {}  # of the last claimed jobs, for the names of spans
        self._db = db
        self._cursors = ClaimCursors()
        self._may_have_exclusive = True

    async def claim(self, worker_id: int, slots: Slots, *, is_idle: bool) -> list[WorkItem]:
        """Take due tasks for these slots. Return an empty list when no task is due or the lease is lost.

        Raises psycopg.Error or DatabaseUnavailable.
        """
        self.is_claiming = True
        try:
            items = await self._claim(worker_id, slots, is_idle=is_idle)
            if items and tracing.is_on():
                self.workflows = await self._load_workflows(items)
            return items
        finally:
            self.is_claiming = False
            self.answered += 1

    def note_heartbeat(self, heartbeat: WorkerHeartbeat) -> None:
        """Remember what this heartbeat says about exclusive tasks."""
        self._may_have_exclusive, self.makes_room = heartbeat.has_alone_tasks, heartbeat.makes_room

    async def _claim(self, worker_id: int, slots: Slots, *, is_idle: bool) -> list[WorkItem]:
        if self._may_have_exclusive and is_idle:
            async with self._db.single("claim") as tx:
                items = await tasks.claim_exclusive(tx, worker_id, slots)
            self._may_have_exclusive = self.makes_room = self.runs_exclusively = bool(items)
            if items:
                return items
        self.runs_exclusively = False
        async with self._db.single("claim") as tx:
            return await tasks.claim(tx, worker_id, slots, self._cursors)

    async def _load_workflows(self, items: Sequence[WorkItem]) -> dict[str, tuple[str, int]]:
        """Load the workflows of these jobs. Spans have other names when the database does not answer."""
        with contextlib.suppress(psycopg.Error, DatabaseUnavailable):
            async with self._db.single("show") as tx:
                return await tasks.workflows_of(tx, {item.job_id for item in items})
        return {}
