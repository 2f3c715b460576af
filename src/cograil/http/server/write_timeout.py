"""Whether a caller takes what it is told: what is kept for one that does not is not kept for ever."""

from __future__ import annotations

import asyncio

from cograil.http.server import request_limits


class Taking:
    """One connection on which more is to be said than the caller has taken.

    However slow it is, it may go on as long as it takes anything.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._left = 0
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """From now on it has so long to take some of it. Nothing more is said meanwhile."""
        self.stop()
        self._left = self._transport.get_write_buffer_size()
        if self._left:
            self._timer = self._loop.call_later(request_limits.TAKE_SECONDS, self._look)

    def stop(self) -> None:
        """It took it, or has gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        if self._transport.get_write_buffer_size() < self._left:
            self.watch()
        else:
            self._transport.abort()
