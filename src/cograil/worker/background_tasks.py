"""Background loops of an app beside a worker: if one of them dies, the worker ends too.

A loop that ended by itself would leave a worker that looks ready and does nothing. It is logged at once, and
the worker is asked to stop: its supervisor starts another one, and /readyz says so meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import structlog

log = structlog.get_logger("apps")


@contextlib.asynccontextmanager
async def background(app: str, *loops: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run these loops in this block. Raises at its end what one of them raised."""
    is_leaving = False

    def report(task: asyncio.Task[None]) -> None:
        if is_leaving or task.cancelled():
            return
        log.error("a part of the app ended, stopping the worker", app=app, exc_info=task.exception())
        os.kill(os.getpid(), signal.SIGTERM)

    tasks = [asyncio.create_task(loop, name=app) for loop in loops]
    for task in tasks:
        task.add_done_callback(report)
    try:
        yield
    finally:
        is_leaving = True
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
