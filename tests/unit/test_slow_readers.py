"""Callers that take nothing of their answers are dropped: after a while, and at the end of a port at once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from tests.conftest import Eventually

from cograil.http.server import request_limits
from cograil.http.server.port import bind, serving
from cograil.http.server.write_timeout import WriteTimeout

PART = bytes(1 << 20)


class Long:
    """An application whose answer is longer than what fits on the way."""

    def __init__(self) -> None:
        self.parts = 0
        self.is_done = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        del receive
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(100):
            await send({"type": "http.response.body", "body": PART, "more_body": True})
            self.parts += 1
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        self.is_done = True


async def test_a_reader_that_takes_nothing_for_long_is_dropped_while_the_response_goes_on(
    eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_limits, "WRITE_SECONDS", 0.1)
    app, listening = Long(), bind("127.0.0.1", 0)
    async with serving(app, listening):
        _, writer = await asyncio.open_connection(*listening.getsockname(), limit=1)
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await eventually(lambda: app.is_done)  # it said the rest to nobody
        writer.transport.abort()


class Wire:
    """A connection with so much on it that was not taken, and a clock that is turned by hand."""

    def __init__(self, size: int) -> None:
        self.size, self.is_cut = size, False
        self.due: list[Callable[[], None]] = []

    def get_write_buffer_size(self) -> int:
        return self.size

    def abort(self) -> None:
        self.is_cut = True

    def call_later(self, seconds: float, then: Callable[[], None]) -> Any:
        self.due.append(then)
        return SimpleNamespace(cancel=lambda: self.due.remove(then) if then in self.due else None)


def test_a_slow_reader_that_takes_something_may_go_on() -> None:
    wire: Any = Wire(1000)
    taking = WriteTimeout(wire, wire)
    taking.arm()
    for size in (999, 500, 499):
        wire.size = size
        wire.due.pop()()
        assert not wire.is_cut
    wire.due.pop()()
    assert wire.is_cut


def test_a_reader_that_took_all_of_it_is_not_watched() -> None:
    wire: Any = Wire(1000)
    taking = WriteTimeout(wire, wire)
    taking.arm()
    taking.stop()
    assert wire.due == []
    wire.size = 0
    taking.arm()
    assert wire.due == []


async def test_a_reader_that_takes_nothing_of_its_response_is_dropped(
    eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """Its answer is stuck when the end comes. The end comes all the same, and the log has no word of it."""
    app, listening = Long(), bind("127.0.0.1", 0)
    with caplog.at_level(logging.WARNING):
        async with serving(app, listening):
            _, writer = await asyncio.open_connection(*listening.getsockname(), limit=1)
            writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await eventually(lambda: app.parts)
            begun = time.monotonic()
            assert not app.is_done
        assert time.monotonic() - begun < 5
        await eventually(lambda: app.is_done)  # it said the rest to nobody
        writer.transport.abort()
    assert caplog.messages == []
