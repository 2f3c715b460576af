"""Results of steps, saved in batches: steps that arrive during one save form the next batch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import psycopg
import structlog

from cograil.errors import DatabaseUnavailable
from cograil.runners.handler_exceptions import Fail
from cograil.store.database import Database
from cograil.verbs import tasks
from cograil.verbs.tasks import Step
from cograil.worker.heartbeat import Identity

log = structlog.get_logger("worker")
MAX_TRIES = 20
RETRY_SECONDS = 0.5
MAX_BATCH = 1_000

PendingStep = tuple[Identity, Step, asyncio.Future[bool]]


class StepWriter:
    """Saves the steps of all handlers of a worker. Each caller waits for the commit with its own step."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._pending: list[PendingStep] = []
        self._task: asyncio.Task[None] | None = None

    async def save(self, identity: Identity, step: Step) -> bool:
        """Save a step durably. Return False when this worker no longer owns the attempt.

        Raises Fail for a step that the database cannot store.
        """
        saved: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._pending.append((identity, step, saved))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._save_all(), name="steps")
        return await saved

    async def _save_all(self) -> None:
        await asyncio.sleep(0)  # steps that end in the same turn of the loop share a batch
        while self._pending:
            pending, self._pending = self._pending[:MAX_BATCH], self._pending[MAX_BATCH:]
            for identity in dict.fromkeys(identity for identity, _, _ in pending):
                await self._save(identity, [entry for entry in pending if entry[0] is identity])

    async def _save(self, identity: Identity, pending: Sequence[PendingStep]) -> None:
        try:
            saved = await self._save_with_retries(identity, [step for _, step, _ in pending])
        except psycopg.DataError as error:
            await self._save_apart(identity, pending, error)
            return
        for index, (_, _, is_saved) in enumerate(pending):
            if not is_saved.done():  # its handler may have been stopped meanwhile
                is_saved.set_result(index in saved)

    async def _save_with_retries(self, identity: Identity, steps: Sequence[Step]) -> set[int]:
        """Save these steps and return the indexes of those that count. Saving is idempotent."""
        for _ in range(MAX_TRIES):
            try:
                async with self._db.single("steps") as tx:
                    return await tasks.save_steps(tx, identity.worker_id, identity.name, steps)
            except psycopg.DataError:
                raise
            except (psycopg.Error, DatabaseUnavailable) as error:
                log.warning("steps not saved, trying again", error=str(error).strip(), steps=len(steps))
                await asyncio.sleep(RETRY_SECONDS)
        return set()

    async def _save_apart(self, identity: Identity, pending: Sequence[PendingStep], error: Exception) -> None:
        """Save each step by itself, because the database cannot store one of them. That one fails."""
        if len(pending) > 1:
            for entry in pending:
                await self._save(identity, [entry])
        elif not pending[0][2].done():
            failure = Fail(f"step: the database cannot store its result: {error}".strip(), code="bad_step")
            pending[0][2].set_exception(failure)
