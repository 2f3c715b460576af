"""The heartbeat: one thread, one connection, one statement every few seconds.

It runs apart from the handlers' loop: a handler that blocks the loop must not cost the worker its lease.

A worker that the database does not answer cannot know whether its tasks are still its own. So one heartbeat
before its lease would be over, by our own clock, it lets go of them: soon somebody else may be at them.
PostgreSQL's own word that it starts or recovers is as good as a heartbeat: it takes nobody then, and from its
start on orchestrators wait for a lease before they take any worker for lost. What was let go of is given back
when the database is there again, and does not count as an attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import structlog
from psycopg import AsyncConnection

from cograil import clock, fault_injection
from cograil.errors import DatabaseUnavailable
from cograil.settings import LeaseSettings
from cograil.store.database import Row, Transaction, connect
from cograil.store.outage_errors import says_it_starts
from cograil.verbs import tasks
from cograil.verbs.tasks import Heartbeat

log = structlog.get_logger("worker")
RETRY_SECONDS = 0.5
NOTHING_IS_OURS = Heartbeat(is_alive=True, fences={}, has_ready_tasks=False)  # as far as we can know


@dataclass(frozen=True, slots=True)
class Identity:
    """One start of a worker."""

    worker_id: int
    name: str


OnHeartbeat = Callable[[Identity, Heartbeat, int], None]


class HeartbeatThread(threading.Thread):
    """Heartbeats for the current identity; `on_heartbeat` is called in this thread with the answer.

    The third argument is what `epoch()` returned before the question was sent: an answer is only
    about what the worker held before it.
    """

    def __init__(
        self,
        conninfo: str,
        lease: LeaseSettings,
        epoch: Callable[[], int],
        info: Callable[[], dict[str, Any]],
        handlers: Callable[[], list[str]],
        on_heartbeat: OnHeartbeat,
    ) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self.identity: Identity | None = None
        self._conninfo = conninfo
        self._lease = lease
        self._epoch = epoch
        self._info = info
        self._handlers = handlers
        self._on_heartbeat = on_heartbeat
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._is_stopping = False
        self._sure_of: Identity | None = None  # whose lease the timer is about
        self._sure_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def beat_now(self) -> None:
        """Heartbeat now: something was revoked."""
        with contextlib.suppress(RuntimeError):
            if self._loop is not None and self._wake is not None:
                self._loop.call_soon_threadsafe(self._wake.set)

    def stop(self) -> None:
        """End the thread; waits for the statement at hand."""
        self._is_stopping = True
        self.beat_now()
        if self.is_alive():
            self.join(timeout=5)

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        while not self._is_stopping:
            self._begin_lease()
            asked_at = self._loop.time()
            try:
                async with await connect(self._conninfo, prepare=False) as connection:
                    await self._heartbeat_until_stopped(connection, self._wake)
            except (psycopg.Error, DatabaseUnavailable, OSError) as error:
                log.warning("heartbeat failed", error=str(error).strip())
                if says_it_starts(error):
                    self._be_sure_from(asked_at)
                await self._sleep(self._wake, RETRY_SECONDS)

    async def _heartbeat_until_stopped(self, connection: AsyncConnection[Row], wake: asyncio.Event) -> None:
        while not self._is_stopping:
            identity = self._begin_lease()
            if identity is not None:
                await self._heartbeat(connection, identity)
            await self._sleep(wake, self._lease.heartbeat_seconds)

    async def _heartbeat(self, connection: AsyncConnection[Row], identity: Identity) -> None:
        epoch, asked_at = self._epoch(), asyncio.get_running_loop().time()
        tx = Transaction(connection, "heartbeat", clock.now())
        info = self._info() | {"clock_offset_seconds": round(clock.offset_seconds(), 3)}
        answer = await tasks.heartbeat(
            tx, identity.worker_id, identity.name, self._lease.seconds, info, self._handlers()
        )
        fault_injection.point("heartbeat.commit.after")
        if answer.is_alive:
            self._be_sure_from(asked_at)
        self._on_heartbeat(identity, answer, epoch)

    def _begin_lease(self) -> Identity | None:
        """Who we are; the lease of one that is new has just begun."""
        identity = self.identity
        if identity is not self._sure_of:
            self._sure_of = identity
            self._be_sure_from(asyncio.get_running_loop().time())
        return identity

    def _be_sure_from(self, asked_at: float) -> None:
        """The lease was extended at `asked_at` or later: until a heartbeat before its end nobody takes it."""
        if self._timer is not None:
            self._timer.cancel()
        self._sure_at = max(self._sure_at, asked_at)
        until = self._sure_at + self._lease.seconds - self._lease.heartbeat_seconds
        self._timer = asyncio.get_running_loop().call_at(until, self._let_go)

    def _let_go(self) -> None:
        """And again with each heartbeat that is due, for what was claimed meanwhile."""
        if self._sure_of is None or self._sure_of is not self.identity:
            return
        self._timer = asyncio.get_running_loop().call_later(self._lease.heartbeat_seconds, self._let_go)
        log.warning(
            "the database has not answered for most of a lease, letting go of all tasks",
            worker=self._sure_of.name,
        )
        self._on_heartbeat(self._sure_of, NOTHING_IS_OURS, self._epoch())

    async def _sleep(self, wake: asyncio.Event, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(wake.wait(), seconds)
        wake.clear()
