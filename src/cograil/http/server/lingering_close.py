"""Closing a connection so that its caller hears the answer.

A request may be refused while its body is still on the way. Closing the socket then makes the kernel answer
the rest with a reset, and the caller loses the answer that was sent before. So our side is closed first,
and a bounded part of the rest is read and thrown away.
"""

from __future__ import annotations

import asyncio
from typing import Any

LINGER_SECONDS = 2.0
MAX_DRAINED_BYTES = 4 * 1024 * 1024


class LingeringTransport:
    """A transport whose `close` waits for the rest of a request, if `has_rest` says that one may come."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._left = MAX_DRAINED_BYTES
        self._timer: asyncio.TimerHandle | None = None
        self.has_rest = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    @property
    def is_lingering(self) -> bool:
        """Whether the answer was sent, and what comes now is thrown away."""
        return self._timer is not None

    def is_closing(self) -> bool:
        return self.is_lingering or self._transport.is_closing()

    def close(self) -> None:
        """At once, or when the caller has seen the end of the answer and stops sending."""
        if self.is_closing():
            return
        if not self.has_rest or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._timer = self._loop.call_later(LINGER_SECONDS, self._transport.close)
        self._transport.write_eof()
        self._transport.resume_reading()

    def drain(self, data: bytes) -> None:
        """Throw this away; too much of it ends the connection."""
        self._left -= len(data)
        if self._left < 0:
            self._transport.abort()

    def stop(self) -> None:
        """The connection is lost."""
        if self._timer is not None:
            self._timer.cancel()
