"""A handler that ends only when a test lets it."""

from __future__ import annotations

import asyncio
from typing import Any

from cograil.runners.context import Context


class Patient:
    """A handler that ends when it is told to, and notes when it is stopped."""

    def __init__(self) -> None:
        self.begun, self.go_on, self.stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.runs = 0
        self.reason: str | None = None

    async def __call__(self, ctx: Context) -> dict[str, Any]:
        self.runs += 1
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.reason = ctx.reason
            self.stopped.set()
            raise
        return {}
