"""Throttle: runs an action at most once a second for each name, and always runs the last one."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import psycopg
import structlog

from cograil.errors import CograilError
from cograil.http.server.problem_details import Refusal

log = structlog.get_logger("http")
SECONDS = 1.0
MAX_KNOWN = 10_000

Callback = Callable[[float], Awaitable[None]]  # receives the seconds between `defer` and the call


class _Deferred(NamedTuple):
    callback: Callback
    deferred_at: float
    timer: asyncio.TimerHandle


class Throttle:
    """Allows each name once a second. Of the callbacks deferred meanwhile, the last one runs afterwards."""

    def __init__(self) -> None:
        self._run_at: OrderedDict[str, float] = OrderedDict()
        self._deferred: dict[str, _Deferred] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def try_now(self, name: str) -> bool:
        """Return whether the caller may act now. If so, a deferred callback of this name is dropped."""
        now = time.monotonic()
        if now - self._run_at.get(name, -SECONDS) < SECONDS and len(self._deferred) < MAX_KNOWN:
            return False
        self._pop(name)
        self._record(name, now)
        return True

    def defer(self, name: str, callback: Callback) -> None:
        """Run this callback at the end of the second, unless a newer one replaces it."""
        self._pop(name)
        now = time.monotonic()
        delay = self._run_at.get(name, now) + SECONDS - now
        timer = asyncio.get_running_loop().call_later(delay, self._start, name)
        self._deferred[name] = _Deferred(callback, now, timer)

    async def finish(self, name: str) -> None:
        """Run the deferred callback of this name now, if there is one."""
        deferred = self._pop(name)
        if deferred is not None:
            self._record(name, time.monotonic())
            await _run(deferred)

    async def stop(self) -> None:
        """Run all deferred callbacks."""
        for name in list(self._deferred):
            await self.finish(name)
        await asyncio.gather(*self._tasks)

    def _start(self, name: str) -> None:
        task = asyncio.create_task(self.finish(name), name="throttle")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _pop(self, name: str) -> _Deferred | None:
        deferred = self._deferred.pop(name, None)
        if deferred is not None:
            deferred.timer.cancel()
        return deferred

    def _record(self, name: str, now: float) -> None:
        self._run_at[name] = now
        self._run_at.move_to_end(name)
        if len(self._run_at) > MAX_KNOWN:
            self._run_at.popitem(last=False)


async def _run(deferred: _Deferred) -> None:
    """Run a callback. Its request was answered before, so errors are only logged."""
    try:
        await deferred.callback(time.monotonic() - deferred.deferred_at)
    except (CograilError, Refusal, psycopg.Error) as error:
        log.info("deferred action failed", error=str(error).strip())
