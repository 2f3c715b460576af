"""Steps are saved in natural batches: what gathers while one save is under way is the next one."""

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
TRIES = 20
RETRY_SECONDS = 0.5
BATCH = 1_000

Waiting = tuple[Identity, Step, asyncio.Future[bool]]


class StepWriter:
    """Saves the steps of all handlers of a worker; each caller waits for the commit that has its own."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._pending: list[Waiting] = []
        self._task: asyncio.Task[None] | None = None

    async def save(self, identity: Identity, step: Step) -> bool:
        """Durable when it returns True; False when the attempt is no longer ours.

        Raises Fail for a step that the database cannot hold.
        """
        saved: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._pending.append((identity, step, saved))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._save_all(), name="steps")
        return await saved

    async def _save_all(self) -> None:
        await asyncio.sleep(0)  # steps that end in the same turn of the loop share a batch
        while self._pending:
            pending, self._pending = self._pending[:BATCH], self._pending[BATCH:]
            for identity in dict.fromkeys(identity for identity, _, _ in pending):
                await self._save(identity, [one for one in pending if one[0] is identity])

    async def _save(self, identity: Identity, waiting: Sequence[Waiting]) -> None:
        """Saving the same step twice does no harm, so an error is simply tried again."""
        try:
            saved = await self._saved(identity, [step for _, step, _ in waiting])
        except psycopg.DataError as error:
            await self._save_apart(identity, waiting, error)
            return
        for number, (_, _, answer) in enumerate(waiting):
            if not answer.done():  # its handler may have been stopped meanwhile
                answer.set_result(number in saved)

    async def _saved(self, identity: Identity, steps: Sequence[Step]) -> set[int]:
        for _ in range(TRIES):
            try:
                return await tasks.save_steps(self._db, identity.worker_id, identity.name, steps)
            except psycopg.DataError:
                raise
            except (psycopg.Error, DatabaseUnavailable) as error:
                log.warning("steps not saved, trying again", error=str(error).strip(), steps=len(steps))
                await asyncio.sleep(RETRY_SECONDS)
        return set()

    async def _save_apart(self, identity: Identity, waiting: Sequence[Waiting], error: Exception) -> None:
        """The database cannot hold one of these: it must not take the others down."""
        if len(waiting) > 1:
            for one in waiting:
                await self._save(identity, [one])
        elif not waiting[0][2].done():
            said = Fail(f"step: the database cannot hold its result: {error}".strip(), code="bad_step")
            waiting[0][2].set_exception(said)
