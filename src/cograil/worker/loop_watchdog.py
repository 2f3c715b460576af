"""The watch over the handlers' loop: one thread that asks it for a sign of life while coroutines run.

A coroutine that never awaits keeps the loop for itself: nothing else in the worker runs, reports or is told
to stop, not even that coroutine, while the heartbeat keeps the lease. A loop cannot be freed from outside. So
when the silence is too long, the watch tells the database what it knows and ends the process: the attempt of
the culprit fails, the others are handed back and do not count, and whoever supervises the worker starts a
new one.

Whose fault it is the loop itself knows: the task that it is in the middle of.
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
from cograil.verbs import tasks as work
from cograil.verbs.tasks import Report
from cograil.worker.heartbeat import Identity

log = structlog.get_logger("worker")

LOOK_SECONDS = 0.25
MIN_SILENCE = 2.0  # a second of computing is no reason to end anything
OVERTIME_SECONDS = 0.7  # beyond the time of the attempt
TELL_SECONDS = 3.0
MAX_TRACEBACK = 8_000
EXIT_CODE = 75  # try again: whoever supervises us is to start another


class WatchedAttempt(Protocol):
    """An attempt that the worker holds."""

    item: WorkItem
    began: float
    is_ended: bool

    @property
    def work(self) -> asyncio.Future[Any] | None: ...


@dataclass(frozen=True, slots=True)
class WatchedWorker:
    """What the watch must know of a worker."""

    identity: Callable[[], Identity | None]
    held: Callable[[], Iterable[WatchedAttempt]]
    database: Callable[[], Database]  # one for a loop of our own


class LoopWatchdog(threading.Thread):
    """Ends the process when the loop in which it was made stays blocked.

    That is: when the attempt it is busy with is past its time, or after `limit` seconds of silence.
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
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing left to watch
            while not self._is_stopping.wait(LOOK_SECONDS):
                now = time.monotonic()
                self._look(now, now - looked_at)
                looked_at = now

    def _look(self, now: float, since_last: float) -> None:
        """Silence is counted look by look: while the whole process is stopped, nobody is silent."""
        if self._has_answered:
            self._silence = 0.0
            self._has_answered = False
            self._loop.call_soon_threadsafe(self._answer)
            return
        self._silence += min(since_last, 2 * LOOK_SECONDS)
        if self._silence < min(MIN_SILENCE, self._limit):
            return
        culprit = self._culprit()
        if self._silence >= self._limit or (culprit is not None and _is_overdue(culprit, now)):
            self._give_up(culprit, now)

    def _answer(self) -> None:
        self._has_answered = True

    def _culprit(self) -> WatchedAttempt | None:
        """The attempt whose coroutine the loop is in; None when it is in a task of the handler's own."""
        current = asyncio.current_task(self._loop)
        return next((one for one in self._held() if current is not None and one.work is current), None)

    def _held(self) -> list[WatchedAttempt]:
        return [one for one in self._watched.held() if not one.is_ended]

    def _give_up(self, culprit: WatchedAttempt | None, now: float) -> None:
        frame = sys._current_frames().get(self._thread)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        about = {} if culprit is None else _facts(culprit.item)
        log.error("the event loop is blocked, ending this worker", seconds=round(self._silence, 1), **about)
        log.error("it was here", stack=stack)
        if culprit is not None and not self._has_answered:
            with contextlib.suppress(Exception):
                asyncio.run(asyncio.wait_for(self._tell(culprit, _failed(culprit, now, stack)), TELL_SECONDS))
        self._end(EXIT_CODE)

    async def _tell(self, culprit: WatchedAttempt, failed: Failed) -> None:
        """The culprit fails, what shared the loop with it is handed back. Without a culprit all are lost."""
        identity = self._watched.identity()
        if identity is None:
            return
        others = {one.item.task_id: one.item.fence for one in self._held() if one is not culprit}
        async with self._watched.database() as db:
            await work.report(db, identity.worker_id, identity.name, [Report(culprit.item, failed)])
            if others:
                await work.release(db, identity.worker_id, others)


def _is_overdue(held: WatchedAttempt, now: float) -> bool:
    return now - held.began > held.item.timeout_seconds + OVERTIME_SECONDS


def _facts(item: WorkItem) -> dict[str, Any]:
    return {"handler": item.handler, **logs.attempt_fields(item)}


def _failed(held: WatchedAttempt, now: float, stack: str) -> Failed:
    item = held.item
    why = "the handler does not give the event loop back"
    details = {"type": "LoopBlocked", "traceback": stack[-MAX_TRACEBACK:]}
    if _is_overdue(held, now):
        message = f"the handler did not finish within {item.timeout_seconds:g} s: {why}"
        return Failed("timeout", message, details=details)
    advice = "make it a plain function, or one with process=True"
    return Failed("loop_blocked", f"{why}; {advice}", details=details)
