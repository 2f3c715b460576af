"""Write timeout: drop clients that stop reading."""

from __future__ import annotations

import asyncio

from cograil.http.server import request_limits


class WriteTimeout:
    """Aborts a connection whose client reads nothing for WRITE_SECONDS.

    A slow client stays connected as long as it reads anything.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._unread_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def arm(self) -> None:
        """Start the timer. The write buffer must not grow while the timer runs."""
        self.stop()
        self._unread_bytes = self._transport.get_write_buffer_size()
        if self._unread_bytes:
            self._timer = self._loop.call_later(request_limits.WRITE_SECONDS, self._check)

    def stop(self) -> None:
        """Stop the timer: the client has read everything, or the connection is lost."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        if self._transport.get_write_buffer_size() < self._unread_bytes:
            self.arm()
        else:
            self._transport.abort()
