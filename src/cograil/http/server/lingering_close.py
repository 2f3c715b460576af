"""Lingering close: lets a client read the response before the connection ends.

A request may be rejected while its body is still being sent. If the socket is closed then, the kernel
answers the rest with a reset, and the client loses the response. So only the server's side is closed first,
and a bounded part of the rest is read and discarded.
"""

from __future__ import annotations

import asyncio
from typing import Any

LINGER_SECONDS = 2.0
MAX_DRAINED_BYTES = 4 * 1024 * 1024


class LingeringTransport:
    """A transport whose `close` waits for the rest of a request, if `has_rest` is true."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._remaining_bytes = MAX_DRAINED_BYTES
        self._timer: asyncio.TimerHandle | None = None
        self.has_rest = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    @property
    def is_lingering(self) -> bool:
        """Whether the response was sent, and further input is discarded."""
        return self._timer is not None

    def is_closing(self) -> bool:
        return self.is_lingering or self._transport.is_closing()

    def close(self) -> None:
        """Close now, or when the client has read the response and stops sending."""
        if self.is_closing():
            return
        if not self.has_rest or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._timer = self._loop.call_later(LINGER_SECONDS, self._transport.close)
        self._transport.write_eof()
        self._transport.resume_reading()

    def drain(self, data: bytes) -> None:
        """Discard this input. More than MAX_DRAINED_BYTES abort the connection."""
        self._remaining_bytes -= len(data)
        if self._remaining_bytes < 0:
            self._transport.abort()

    def stop(self) -> None:
        """Stop the timer: the connection is lost."""
        if self._timer is not None:
            self._timer.cancel()
