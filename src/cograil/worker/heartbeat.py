"""The heartbeat: one thread, one connection, one statement every few seconds.

It runs outside the event loop of the handlers, so a handler that blocks the loop does not lose the lease.

A worker that gets no answer from the database cannot know whether it still owns its tasks. It stops them one
heartbeat interval before its lease ends by the local clock, because another worker may claim them soon after.
An answer of PostgreSQL that it is starting or recovering counts as a heartbeat: no task is claimed meanwhile,
and orchestrators wait for one lease after the start before they declare a worker dead. Stopped tasks are
released when the database answers again, and do not count as attempts.
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
from cograil.verbs.tasks import WorkerHeartbeat

log = structlog.get_logger("worker")
RETRY_SECONDS = 0.5
NO_TASKS = WorkerHeartbeat(
    is_alive=True, fences={}, has_ready_tasks=False
)  # the worker owns nothing for certain


@dataclass(frozen=True, slots=True)
class Identity:
    """One registration of a worker."""

    worker_id: int
    name: str


OnHeartbeat = Callable[[Identity, WorkerHeartbeat, int], None]


class HeartbeatThread(threading.Thread):
    """Sends heartbeats for the current identity and calls `on_heartbeat` in this thread with each answer.

    The third argument of `on_heartbeat` is the value of `epoch()` before the heartbeat was sent: the answer
    covers only the claims up to that epoch.
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
        self._leased: Identity | None = None  # the identity whose lease the timer watches
        self._renewed_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def beat_now(self) -> None:
        """Send a heartbeat at once, for example because a task was revoked."""
        with contextlib.suppress(RuntimeError):
            if self._loop is not None and self._wake is not None:
                self._loop.call_soon_threadsafe(self._wake.set)

    def stop(self) -> None:
        """End the thread. Waits up to five seconds for a running statement."""
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
            sent_at = self._loop.time()
            try:
                async with await connect(self._conninfo, prepare=False) as connection:
                    await self._heartbeat_until_stopped(connection, self._wake)
            except (psycopg.Error, DatabaseUnavailable, OSError) as error:
                log.warning("heartbeat failed", error=str(error).strip())
                if says_it_starts(error):
                    self._renew(sent_at)
                await self._sleep(self._wake, RETRY_SECONDS)

    async def _heartbeat_until_stopped(self, connection: AsyncConnection[Row], wake: asyncio.Event) -> None:
        while not self._is_stopping:
            identity = self._begin_lease()
            if identity is not None:
                await self._heartbeat(connection, identity)
            await self._sleep(wake, self._lease.heartbeat_seconds)

    async def _heartbeat(self, connection: AsyncConnection[Row], identity: Identity) -> None:
        epoch, sent_at = self._epoch(), asyncio.get_running_loop().time()
        tx = Transaction(connection, "heartbeat", clock.now())
        info = self._info() | {"clock_offset_seconds": round(clock.offset_seconds(), 3)}
        answer = await tasks.heartbeat_worker(
            tx, identity.worker_id, identity.name, self._lease.seconds, info, self._handlers()
        )
        fault_injection.point("heartbeat.commit.after")
        if answer.is_alive:
            self._renew(sent_at)
        self._on_heartbeat(identity, answer, epoch)

    def _begin_lease(self) -> Identity | None:
        """Return the current identity. A new identity starts with a fresh lease."""
        identity = self.identity
        if identity is not self._leased:
            self._leased = identity
            self._renew(asyncio.get_running_loop().time())
        return identity

    def _renew(self, sent_at: float) -> None:
        """Restart the timer: the lease was extended at `sent_at` or later."""
        if self._timer is not None:
            self._timer.cancel()
        self._renewed_at = max(self._renewed_at, sent_at)
        until = self._renewed_at + self._lease.seconds - self._lease.heartbeat_seconds
        self._timer = asyncio.get_running_loop().call_at(until, self._stop_tasks)

    def _stop_tasks(self) -> None:
        """Stop all tasks. Repeats at every heartbeat interval, for tasks that were claimed meanwhile."""
        if self._leased is None or self._leased is not self.identity:
            return
        self._timer = asyncio.get_running_loop().call_later(self._lease.heartbeat_seconds, self._stop_tasks)
        log.warning(
            "the database has not answered for most of a lease, stopping all tasks",
            worker=self._leased.name,
        )
        self._on_heartbeat(self._leased, NO_TASKS, self._epoch())

    async def _sleep(self, wake: asyncio.Event, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(wake.wait(), seconds)
        wake.clear()
