"""Clients of server-sent events and WebSockets, over a plain connection."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import struct
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class StreamEvent:
    """One event of a stream; `name` is empty for a mere sign of life."""

    name: str
    id: str
    data: Any


@dataclass
class EventStream:
    """An answer that goes on."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int
    headers: Mapping[str, str]
    last_id: str = ""
    _lines: list[str] = field(default_factory=list)

    async def next(self) -> StreamEvent | None:
        """The next event; None when the stream has ended."""
        fields: dict[str, str] = {}
        while True:
            line = await self._line()
            if line is None:
                return None
            if line:
                name, _, text = line.partition(":")
                fields[name] = text.strip()
            elif "id" in fields:
                self.last_id = fields["id"]
                data = json.loads(fields["data"]) if "data" in fields else None
                return StreamEvent(fields.get("event", ""), fields["id"], data)

    async def take(self, count: int, seconds: float = 20.0) -> list[Any]:
        """The data of the next `count` events."""
        events: list[Any] = []
        async with asyncio.timeout(seconds):
            while len(events) < count:
                event = await self.next()
                assert event is not None, events
                if event.name:
                    events.append(event.data)
        return events

    async def rest(self, seconds: float = 20.0) -> list[StreamEvent]:
        """All events until it ends."""
        events = []
        async with asyncio.timeout(seconds):
            while (event := await self.next()) is not None:
                if event.name:
                    events.append(event)
        return events

    async def _line(self) -> str | None:
        while not self._lines or "\n" not in self._lines[0]:
            chunk = await self._chunk()
            if not chunk:
                return None
            self._lines = ["".join(self._lines) + chunk.decode()]
        line, _, rest = self._lines[0].partition("\n")
        self._lines = [rest] if rest else []
        return line

    async def _chunk(self) -> bytes:
        size = await self.reader.readline()
        if not size.strip():
            return b""
        chunk = await self.reader.readexactly(int(size, 16))
        await self.reader.readline()
        return chunk


@contextlib.asynccontextmanager
async def open_event_stream(
    port: int, path: str, key: str = "", **headers: str
) -> AsyncIterator[EventStream]:
    """A stream of events; `last_event_id` and the like are headers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        await write_request_head(writer, "GET", path, key, {"accept": "text/event-stream"} | headers)
        status, response_headers = await read_response_head(reader)
        yield EventStream(reader, writer, status, response_headers)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def write_request_head(
    writer: asyncio.StreamWriter,
    method: str,
    path: str,
    key: str = "",
    headers: Mapping[str, str] | None = None,
) -> None:
    """The head of a request."""
    sent = {"host": "localhost"} | ({"authorization": f"Bearer {key}"} if key else {})
    sent |= {name.replace("_", "-"): text for name, text in (headers or {}).items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in sent.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    await writer.drain()


async def read_response_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Status and headers."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return int(first.split(" ")[1]), {name.lower(): text.strip() for name, _, text in pairs}


@dataclass
class WebSocketClient:
    """The other end of a WebSocket."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int
    headers: Mapping[str, str]

    async def frame(self) -> tuple[int, bytes]:
        """Opcode and payload of the next frame."""
        first, size = await self.reader.readexactly(2)
        assert not size & 0x80, "a server masks nothing"
        if size == 126:
            (size,) = struct.unpack("!H", await self.reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self.reader.readexactly(8))
        return first & 0x0F, await self.reader.readexactly(size)

    async def messages(self, seconds: float = 20.0) -> tuple[list[Any], int, str]:
        """All messages until it closes, the code of the close and its reason."""
        messages: list[Any] = []
        async with asyncio.timeout(seconds):
            while True:
                opcode, payload = await self.frame()
                if opcode == 0x8:
                    return messages, struct.unpack("!H", payload[:2])[0], payload[2:].decode()
                if opcode == 0x1:
                    messages.append(json.loads(payload))

    def send(self, opcode: int, payload: bytes, first: int = 0x80) -> None:
        """A frame as a caller sends it."""
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
        size = bytes([0x80 | len(payload)]) if len(payload) < 126 else struct.pack("!BH", 0xFE, len(payload))
        self.writer.write(bytes([first | opcode]) + size + mask + masked)


@contextlib.asynccontextmanager
async def open_websocket(
    port: int, path: str, key: str = "", **headers: str
) -> AsyncIterator[WebSocketClient]:
    """A WebSocket, or the response that was sent instead of one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    upgrade = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": base64.b64encode(os.urandom(16)).decode(),
    }
    try:
        await write_request_head(writer, "GET", path, key, upgrade | headers)
        status, response_headers = await read_response_head(reader)
        yield WebSocketClient(reader, writer, status, response_headers)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
