"""LISTEN: notifications that something changed. Polling is the source of truth; a notification only saves
time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import psycopg

from cograil import fault_injection
from cograil.errors import DatabaseUnavailable
from cograil.store.database import connect

OnNotice = Callable[[str, str], None]
RECONNECTED = "cograil_reconnected"
PING = "cograil_ping"


class Listener:
    """One connection that listens, and reconnects when it is lost.

    `on_notice(channel, payload)` is called in the loop. After a reconnect it is called with `RECONNECTED`,
    because notifications of the meantime are lost. `conninfo` must lead to a session of its own
    (`Database.direct`); with None no notification arrives, and callers poll.
    """

    def __init__(self, conninfo: str | None, channels: Sequence[str], on_notice: OnNotice) -> None:
        self._conninfo = conninfo
        self._channels = channels
        self._on_notice = on_notice
        self._task: asyncio.Task[None] | None = None
        self.listening = asyncio.Event()

    @property
    def can_hear(self) -> bool:
        """Whether notifications can arrive, even if the connection is lost at the moment."""
        return self._conninfo is not None

    async def start(self) -> None:
        """Start to listen; returns when it listens, or after 5 s when it cannot yet."""
        if self._conninfo is None:
            return
        self._task = asyncio.create_task(self._run(), name="listener")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.listening.wait(), 5)

    async def stop(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(psycopg.Error, DatabaseUnavailable, OSError):
                await self._listen()
            self.listening.clear()
            await asyncio.sleep(0.5)

    async def _listen(self) -> None:
        assert self._conninfo is not None
        fault_injection.point("listen.connect")
        connection = await connect(self._conninfo, prepare=False)
        async with connection:
            fault_injection.point("listen.listen")
            for channel in self._channels:
                await connection.execute(f"listen {channel}".encode())
            fault_injection.point("listen.commit.after")
            self.listening.set()
            self._on_notice(RECONNECTED, "")
            async for notice in connection.notifies():
                self._on_notice(notice.channel, notice.payload)
