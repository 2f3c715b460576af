"""A pace: how often something is done, however often it is asked for, and the last of it always."""

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

Deed = Callable[[float], Awaitable[None]]  # is told how many seconds after it was asked for it is done


class _Kept(NamedTuple):
    deed: Deed
    asked_at: float
    timer: asyncio.TimerHandle


class Pace:
    """Allows each name once a second. Of what is kept meanwhile the last is done when it is over."""

    def __init__(self) -> None:
        self._done_at: OrderedDict[str, float] = OrderedDict()
        self._kept: dict[str, _Kept] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def allows(self, name: str) -> bool:
        """Whether it is time for this one again; if so, it counts as done, and what was kept is outdated."""
        now = time.monotonic()
        if now - self._done_at.get(name, -SECONDS) < SECONDS and len(self._kept) < MAX_KNOWN:
            return False
        self._forget(name)
        self._mark(name, now)
        return True

    def keep(self, name: str, deed: Deed) -> None:
        """Do this later, unless there is something newer by then."""
        self._forget(name)
        now = time.monotonic()
        left = self._done_at.get(name, now) + SECONDS - now
        timer = asyncio.get_running_loop().call_later(left, self._begin, name)
        self._kept[name] = _Kept(deed, now, timer)

    async def finish(self, name: str) -> None:
        """Do now what was kept for this name, if anything."""
        kept = self._forget(name)
        if kept is not None:
            self._mark(name, time.monotonic())
            await _do(kept)

    async def stop(self) -> None:
        """Do all that was kept."""
        for name in list(self._kept):
            await self.finish(name)
        await asyncio.gather(*self._tasks)

    def _begin(self, name: str) -> None:
        task = asyncio.create_task(self.finish(name), name="pace")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _forget(self, name: str) -> _Kept | None:
        kept = self._kept.pop(name, None)
        if kept is not None:
            kept.timer.cancel()
        return kept

    def _mark(self, name: str, now: float) -> None:
        self._done_at[name] = now
        self._done_at.move_to_end(name)
        if len(self._done_at) > MAX_KNOWN:
            self._done_at.popitem(last=False)


async def _do(kept: _Kept) -> None:
    """Whoever asked was answered long ago: what goes wrong is only logged."""
    try:
        await kept.deed(time.monotonic() - kept.asked_at)
    except (CograilError, Refusal, psycopg.Error) as error:
        log.info("not done after all", error=str(error).strip())
