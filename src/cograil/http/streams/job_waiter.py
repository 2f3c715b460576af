"""Waits for the end of a job: wakes up on a notification, and polls in case one is missed."""

from __future__ import annotations

import asyncio
import contextlib

from cograil.store.database import Database
from cograil.store.job_progress_queries import is_over
from cograil.store.listener import Listener
from cograil.store.write_batch import DONE_CHANNEL, TASKS_CHANNEL

POLL_SECONDS = 1.0
MAX_SECONDS = 60


class JobEndListener:
    """Listens for jobs that end, for all requests of one process that wait for one."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._has_tasks = asyncio.Event()
        self._listener = Listener(db.direct, [DONE_CHANNEL, TASKS_CHANNEL], self._on_notify)
        self._is_listening = False
        self._is_ending = False

    async def wait(self, job_id: str, tenant: str, seconds: float) -> bool:
        """Wait until this job has ended, at most `seconds`. Returns whether it has."""
        await self._listen()
        ended = asyncio.Event()
        self._waiting.setdefault(job_id, set()).add(ended)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, MAX_SECONDS)):
                    return await self._is_over(job_id, tenant, ended)
            return False
        finally:
            self._waiting[job_id].discard(ended)
            if not self._waiting[job_id]:
                del self._waiting[job_id]

    async def wait_for_tasks(self, seconds: float) -> bool:
        """Wait until there may be a task to claim, at most `seconds`. Returns whether to look again."""
        await self._listen()
        if self._is_ending:
            return False
        self._has_tasks.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._has_tasks.wait(), min(seconds, POLL_SECONDS))
        return not self._is_ending

    async def _listen(self) -> None:
        if not self._is_listening:
            self._is_listening = True
            await self._listener.start()

    def end(self) -> None:
        """End all waits: the process is about to stop."""
        self._is_ending = True
        self._has_tasks.set()
        for waiters in self._waiting.values():
            for ended in waiters:
                ended.set()

    async def stop(self) -> None:
        """Stop listening."""
        await self._listener.stop()

    async def _is_over(self, job_id: str, tenant: str, ended: asyncio.Event) -> bool:
        """Wait until the job is over or the process stops. Returns whether the job is over."""
        while True:
            async with self._db.transaction("watch", tenant=tenant) as tx:
                if await is_over(tx, job_id, tenant):
                    return True
            if self._is_ending:
                return False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), POLL_SECONDS)
            ended.clear()

    def _on_notify(self, channel: str, payload: str) -> None:
        if channel == TASKS_CHANNEL:
            self._has_tasks.set()
        elif channel == DONE_CHANNEL:
            for job_id in payload.split(","):
                for ended in self._waiting.get(job_id, ()):
                    ended.set()
