"""Waiting for the end of a job: a hint when it is there, and a look now and then in case none came."""

from __future__ import annotations

import asyncio
import contextlib

from cograil.store.database import Database
from cograil.store.job_progress_queries import is_over
from cograil.store.listener import Listener
from cograil.store.write_batch import DONE_CHANNEL, TASKS_CHANNEL

LOOK_SECONDS = 1.0
MAX_SECONDS = 60


class JobEndListener:
    """Hears which jobs have ended, for all calls of one process that wait for one."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._has_tasks = asyncio.Event()
        self._listener = Listener(db.direct, [DONE_CHANNEL, TASKS_CHANNEL], self._hear)
        self._is_listening = False
        self._is_ending = False

    async def wait(self, job_id: str, tenant: str, seconds: float) -> bool:
        """Until this job has ended, or for so long. Whether it has."""
        await self._listen()
        rung = asyncio.Event()
        self._waiting.setdefault(job_id, set()).add(rung)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, MAX_SECONDS)):
                    return await self._is_over(job_id, tenant, rung)
            return False
        finally:
            self._waiting[job_id].discard(rung)
            if not self._waiting[job_id]:
                del self._waiting[job_id]

    async def wait_for_tasks(self, seconds: float) -> bool:
        """Until there may be something to claim, or for so long. Whether to look again at all."""
        await self._listen()
        if self._is_ending:
            return False
        self._has_tasks.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._has_tasks.wait(), min(seconds, LOOK_SECONDS))
        return not self._is_ending

    async def _listen(self) -> None:
        if not self._is_listening:
            self._is_listening = True
            await self._listener.start()

    def end(self) -> None:
        """Nobody waits any longer: the process is about to stop."""
        self._is_ending = True
        self._has_tasks.set()
        for bells in self._waiting.values():
            for rung in bells:
                rung.set()

    async def stop(self) -> None:
        """Hear nothing more."""
        await self._listener.stop()

    async def _is_over(self, job_id: str, tenant: str, rung: asyncio.Event) -> bool:
        """Whether it is over: once it is, or when nobody is to wait any longer."""
        while True:
            async with self._db.transaction("watch", tenant=tenant) as tx:
                if await is_over(tx, job_id, tenant):
                    return True
            if self._is_ending:
                return False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(rung.wait(), LOOK_SECONDS)
            rung.clear()

    def _hear(self, channel: str, payload: str) -> None:
        if channel == TASKS_CHANNEL:
            self._has_tasks.set()
        elif channel == DONE_CHANNEL:
            for job_id in payload.split(","):
                for rung in self._waiting.get(job_id, ()):
                    rung.set()
