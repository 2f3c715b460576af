"""Background loops of an app beside a worker: if one of them ends, the worker stops too.

A worker without its background loop would look ready and do nothing. The error is logged at once and the
worker stops: its supervisor starts another one, and /readyz reports it meanwhile.
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
    """Run these loops in this block. Raises the error of a loop at the end of the block."""
    is_leaving = False

    def report(task: asyncio.Task[None]) -> None:
        if is_leaving or task.cancelled():
            return
        log.error(
            "a background loop of the app ended, stopping the worker", app=app, exc_info=task.exception()
        )
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
