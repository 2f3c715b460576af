"""The loop watchdog: a thread that checks whether the event loop of the handlers still runs.

A coroutine that never awaits blocks the event loop: no other handler of the worker runs, reports or stops,
while the heartbeat thread still renews the lease. Nothing can unblock the loop from outside. When it is
blocked for too long, the watchdog reports to the database and ends the process. The attempt of the blocking
coroutine fails. The other attempts are released and do not count. The supervisor of the worker starts a new one.

The current task of the loop identifies the blocking attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from cograil import logs
from cograil.model.outcome import Failed, WorkItem
from cograil.store.database import Database
from cograil.verbs import tasks
from cograil.verbs.tasks import Report
from cograil.worker.heartbeat import Identity

log = structlog.get_logger("worker")

LOOK_SECONDS = 0.25
MIN_SILENCE = 2.0  # a handler may compute for a second
OVERTIME_SECONDS = 0.7  # beyond the timeout of the attempt
REPORT_SECONDS = 3.0
MAX_TRACEBACK = 8_000
EXIT_CODE = 75  # EX_TEMPFAIL: the supervisor should start another worker


class WatchedAttempt(Protocol):
    """An attempt that the worker holds."""

    item: WorkItem
    started_at: float
    is_ended: bool

    @property
    def work(self) -> asyncio.Future[Any] | None: ...


@dataclass(frozen=True, slots=True)
class WatchedWorker:
    """Access to the worker that the watchdog observes."""

    identity: Callable[[], Identity | None]
    held: Callable[[], Iterable[WatchedAttempt]]
    database: Callable[[], Database]  # opens a database for the loop of the watchdog


class LoopWatchdog(threading.Thread):
    """Ends the process when the event loop in which it was created stays blocked.

    It does so when the blocking attempt has passed its timeout, or after `limit` seconds.
    """

    def __init__(self, watched: WatchedWorker, limit: float, end: Callable[[int], object] = os._exit) -> None:
        super().__init__(name="watch", daemon=True)
        self._watched = watched
        self._limit = limit
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._is_stopping = threading.Event()
        self._has_answered = True
        self._silence = 0.0

    def stop(self) -> None:
        """End the thread."""
        self._is_stopping.set()

    def run(self) -> None:
        looked_at = time.monotonic()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            while not self._is_stopping.wait(LOOK_SECONDS):
                now = time.monotonic()
                self._look(now, now - looked_at)
                looked_at = now

    def _look(self, now: float, since_last: float) -> None:
        """Check the loop once. Time counts check by check, so that a stopped process does not count as blocked."""
        if self._has_answered:
            self._silence = 0.0
            self._has_answered = False
            self._loop.call_soon_threadsafe(self._answer)
            return
        self._silence += min(since_last, 2 * LOOK_SECONDS)
        if self._silence < min(MIN_SILENCE, self._limit):
            return
        blocker = self._find_blocker()
        if self._silence >= self._limit or (blocker is not None and _is_overdue(blocker, now)):
            self._end_process(blocker, now)

    def _answer(self) -> None:
        self._has_answered = True

    def _find_blocker(self) -> WatchedAttempt | None:
        """Return the attempt whose coroutine blocks the loop; None when a task of the handler's own does."""
        current = asyncio.current_task(self._loop)
        running = self._running()
        return next((attempt for attempt in running if current is not None and attempt.work is current), None)

    def _running(self) -> list[WatchedAttempt]:
        return [attempt for attempt in self._watched.held() if not attempt.is_ended]

    def _end_process(self, blocker: WatchedAttempt | None, now: float) -> None:
        frame = sys._current_frames().get(self._thread)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        fields = {} if blocker is None else _log_fields(blocker.item)
        log.error("the event loop is blocked, ending this worker", seconds=round(self._silence, 1), **fields)
        log.error("stack of the blocked event loop", stack=stack)
        if blocker is not None and not self._has_answered:
            with contextlib.suppress(Exception):
                report = self._report(blocker, _failure(blocker, now, stack))
                asyncio.run(asyncio.wait_for(report, REPORT_SECONDS))
        self._end(EXIT_CODE)

    async def _report(self, blocker: WatchedAttempt, failed: Failed) -> None:
        """Report the blocking attempt as failed and release the other attempts."""
        identity = self._watched.identity()
        if identity is None:
            return
        others = {
            attempt.item.task_id: attempt.item.fence for attempt in self._running() if attempt is not blocker
        }
        async with self._watched.database() as db:
            async with db.single("report") as tx:
                await tasks.report(tx, identity.worker_id, identity.name, [Report(blocker.item, failed)])
            if others:
                async with db.single("release") as tx:
                    await tasks.release(tx, identity.worker_id, others)


def _is_overdue(attempt: WatchedAttempt, now: float) -> bool:
    return now - attempt.started_at > attempt.item.timeout_seconds + OVERTIME_SECONDS


def _log_fields(item: WorkItem) -> dict[str, Any]:
    return {"handler": item.handler, **logs.attempt_fields(item)}


def _failure(attempt: WatchedAttempt, now: float, stack: str) -> Failed:
    item = attempt.item
    reason = "the handler blocks the event loop"
    details = {"type": "LoopBlocked", "traceback": stack[-MAX_TRACEBACK:]}
    if _is_overdue(attempt, now):
        message = f"the handler did not finish within {item.timeout_seconds:g} s: {reason}"
        return Failed("timeout", message, details=details)
    advice = "make it a plain function, or register it with process=True"
    return Failed("loop_blocked", f"{reason}; {advice}", details=details)
