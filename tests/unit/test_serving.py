"""The end of a port: whoever takes nothing of its answer is dropped, and nothing is said about it."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest
from starlette.types import Receive, Scope, Send
from tests.conftest import Eventually

from cograil.intake.http.server import bind, serving

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


async def test_who_takes_nothing_of_its_answer_is_dropped(
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
