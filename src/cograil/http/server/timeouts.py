"""Timeouts for awaitables that may not react to cancellation, and waiting for a client to disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")
_unfinished: set[asyncio.Task[Any]] = set()


async def run_with_timeout(seconds: float, coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result. Raises TimeoutError after `seconds`, even if cancelling the coroutine takes longer.

    A query to a frozen database takes longer: the driver waits for the end of the query it cancels.
    """
    task = asyncio.create_task(coroutine)
    _unfinished.add(task)
    task.add_done_callback(_discard)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        task.cancel()
    if not task.done():
        raise TimeoutError
    return task.result()


async def wait_for_disconnect(receive: Receive, message_type: str = "http.disconnect") -> None:
    """Return when the client has disconnected; other messages are ignored. The body must be read before."""
    while (await receive())["type"] != message_type:
        pass


def _discard(task: asyncio.Task[Any]) -> None:
    """Mark the exception as retrieved: the caller may have timed out."""
    _unfinished.discard(task)
    if not task.cancelled():
        task.exception()
