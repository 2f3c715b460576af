"""Waiting for no longer than one means to."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")
_left: set[asyncio.Task[Any]] = set()


async def within(seconds: float, asked: Coroutine[Any, Any, T]) -> T:
    """What comes of it. Raises TimeoutError after so long, also when it takes longer to be stopped.

    A question to a database that is frozen is one of those: its driver waits for the end of what it cancels.
    """
    task = asyncio.create_task(asked)
    _left.add(task)
    task.add_done_callback(_forget)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        task.cancel()
    if not task.done():
        raise TimeoutError
    return task.result()


async def until_gone(receive: Receive, gone: str = "http.disconnect") -> None:
    """Until the caller has gone, whatever else it says. Its body was read before."""
    while (await receive())["type"] != gone:
        pass


def _forget(task: asyncio.Task[Any]) -> None:
    """Nobody may be there any more to whom it matters how it ended."""
    _left.discard(task)
    if not task.cancelled():
        task.exception()
