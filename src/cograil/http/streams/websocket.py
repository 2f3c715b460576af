"""The WebSocket protocol for event streams: RFC 6455 for the server side of uvicorn.

The server sends text. It handles `close`, `ping` and `pong` frames of the client; other frames are bounded
and passed to the application. There are no extensions. A client that does not answer a ping before the next
one is disconnected.

The memory per connection is bounded. While the client does not read, the server reads nothing from it, so
that its pings cannot queue answers; after `limits.WRITE_SECONDS` without progress the connection is closed.
Every connection ends with a close frame and a code.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import struct
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote

from starlette.types import Message, Scope
from uvicorn.config import Config
from uvicorn.protocols.utils import get_local_addr, get_remote_addr
from uvicorn.server import ServerState

from cograil.http.server import request_limits
from cograil.http.server.lingering_close import LingeringTransport

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, CLOSE, PING, PONG = 0x1, 0x8, 0x9, 0xA
MAX_FRAME = 4096
MAX_PENDING = 32  # frames that were not read yet
PING_SECONDS = 15.0
MAX_FRAMES = 1_000  # frames that a client may send between two pings of the server
LINGER_SECONDS = 5.0  # time to send the close frame
PROTOCOL_ERROR, TOO_LARGE, GOING_AWAY, NO_CODE, FAILED = 1002, 1009, 1001, 1005, 1011
POLICY = 1008


class Frames:
    """Parses bytes into frames. Raises ValueError(code) for an invalid frame."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def read(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return opcode and payload of each complete frame."""
        self._rest += data
        found = []
        while (frame := self._next()) is not None:
            found.append(frame)
        return found

    def _next(self) -> tuple[int, bytes] | None:
        rest = self._rest
        if len(rest) < 2:
            return None
        opcode, length, begin = rest[0] & 0x0F, rest[1] & 0x7F, 2
        if rest[0] & 0x70 or not rest[1] & 0x80 or (opcode >= CLOSE and (length > 125 or not rest[0] & 0x80)):
            raise ValueError(PROTOCOL_ERROR)  # a client masks its frames, and no extension was negotiated
        if length == 127:
            raise ValueError(TOO_LARGE)
        if length == 126:
            if len(rest) < 4:
                return None
            (length,), begin = struct.unpack_from("!H", rest, 2), 4
        if length > MAX_FRAME:
            raise ValueError(TOO_LARGE)
        if len(rest) < begin + 4 + length:
            return None
        mask, masked = bytes(rest[begin : begin + 4]), bytes(rest[begin + 4 : begin + 4 + length])
        del rest[: begin + 4 + length]
        return opcode, _unmasked(mask, masked)


def _unmasked(mask: bytes, masked: bytes) -> bytes:
    """Unmask all bytes at once, because a loop over the bytes would block the server."""
    size = len(masked)
    repeated = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(masked, "big") ^ int.from_bytes(repeated, "big")).to_bytes(size, "big")


def frame(opcode: int, payload: bytes) -> bytes:
    """Return a frame as a server sends it."""
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", 0x80 | opcode, size)
    elif size < 65536:
        head = struct.pack("!BBH", 0x80 | opcode, 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, 127, size)
    return head + payload


class WebSocketProtocol(asyncio.Protocol):
    """One connection, from its upgrade request on."""

    transport: asyncio.Transport

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any]) -> None:
        self._config = config
        self._state = server_state
        self._app_state = app_state
        self._frames: Frames | None = None
        self._key = b""
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._is_closing = False
        self._is_awaiting_pong = False
        self._pinging: asyncio.TimerHandle | None = None
        self._slowness: asyncio.TimerHandle | None = None
        self._lingering: asyncio.TimerHandle | None = None
        self._frame_count = 0
        self._is_open = False
        self._started: tuple[HTTPStatus, list[tuple[bytes, bytes]]] = (HTTPStatus.FORBIDDEN, [])

    # -- callbacks of asyncio and uvicorn ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop has its own
        self._state.connections.add(self)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        self._state.connections.discard(self)
        self._is_closing = True
        self._may_write.set()
        for timer in (self._pinging, self._slowness, self._lingering):
            if timer is not None:
                timer.cancel()
        self._inbox.put_nowait({"type": "websocket.disconnect", "code": NO_CODE})

    def data_received(self, data: bytes) -> None:
        """Parse the upgrade request first, then frames."""
        if self._frames is None:
            self._frames = Frames()
            self._open(data)
            return
        if self._is_closing:
            if isinstance(self.transport, LingeringTransport):
                self.transport.drain(data)
            return
        try:
            frames = self._frames.read(data)
        except ValueError as error:
            self._close(error.args[0], "")
            return
        self._frame_count += len(frames)
        if self._frame_count > MAX_FRAMES:
            self._close(POLICY, "too many frames")
            return
        for opcode, payload in frames:
            self._take(opcode, payload)

    def pause_writing(self) -> None:
        """Stop reading and sending until the client has read what was sent."""
        self._may_write.clear()
        self.transport.pause_reading()
        if self._slowness is None:
            loop = asyncio.get_running_loop()
            self._slowness = loop.call_later(request_limits.WRITE_SECONDS, self._close, POLICY, "too slow")

    def resume_writing(self) -> None:
        self._may_write.set()
        if self._slowness is not None:
            self._slowness.cancel()
            self._slowness = None
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def shutdown(self) -> None:
        """Close the connection, because the server stops."""
        self._close(GOING_AWAY, "shutdown")

    # -- the handshake ----------------------------------------------------------------------------------

    def _open(self, request: bytes) -> None:
        first, *lines = request.split(b"\r\n\r\n")[0].split(b"\r\n")
        method, target, _ = first.split(b" ", 2)
        headers = [(name.lower(), value) for name, _, value in (line.partition(b": ") for line in lines)]
        fields = dict(headers)
        self._key = fields.get(b"sec-websocket-key", b"")
        if method != b"GET" or fields.get(b"sec-websocket-version") != b"13" or not _is_key(self._key):
            self._refuse(HTTPStatus.UPGRADE_REQUIRED, [(b"sec-websocket-version", b"13")], b"")
            return
        task = asyncio.get_running_loop().create_task(self._run(self._scope(target, headers)))
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    def _scope(self, target: bytes, headers: list[tuple[bytes, bytes]]) -> Scope:
        path, _, query = target.partition(b"?")
        offered = b",".join(value for name, value in headers if name == b"sec-websocket-protocol")
        return {
            "type": "websocket",
            "asgi": {"version": self._config.asgi_version, "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": "ws",
            "server": get_local_addr(self.transport),
            "client": get_remote_addr(self.transport),
            "root_path": self._config.root_path,
            "path": unquote(path.decode("ascii", "replace")),
            "raw_path": path,
            "query_string": query,
            "headers": headers,
            "subprotocols": [name.strip() for name in offered.decode("latin-1").split(",") if name.strip()],
            "state": self._app_state.copy(),
            "extensions": {"websocket.http.response": {}},
        }

    async def _run(self, scope: Scope) -> None:
        self._inbox.put_nowait({"type": "websocket.connect"})
        try:
            await self._config.loaded_app(scope, self._inbox.get, self._send)
        finally:
            self._close(FAILED, "")

    # -- messages of the application --------------------------------------------------------------------

    async def _send(self, message: Message) -> None:
        await self._may_write.wait()
        kind = message["type"]
        if self._is_closing:
            return
        if kind == "websocket.accept":
            self._accept(message.get("subprotocol"))
        elif kind == "websocket.send":
            self.transport.write(frame(TEXT, message["text"].encode()))
        elif kind == "websocket.close":
            self._close(message.get("code", 1000), message.get("reason") or "")
        elif kind == "websocket.http.response.start":
            self._started = HTTPStatus(message["status"]), list(message["headers"])
        elif not message.get("more_body", False):
            self._refuse(*self._started, message["body"])

    def _accept(self, protocol: str | None) -> None:
        answer = base64.b64encode(hashlib.sha1(self._key + GUID).digest())
        lines = [b"HTTP/1.1 101 Switching Protocols", b"Upgrade: websocket", b"Connection: Upgrade"]
        lines.append(b"Sec-WebSocket-Accept: " + answer)
        if protocol:
            lines.append(b"Sec-WebSocket-Protocol: " + protocol.encode("latin-1"))
        self.transport.write(b"\r\n".join([*lines, b"", b""]))
        self._is_open = True
        self._ping_later()

    def _refuse(self, status: HTTPStatus, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Refuse the upgrade with an ordinary response."""
        lines = [b"HTTP/1.1 %d %b" % (status.value, status.phrase.encode()), b"Connection: close"]
        lines += [name + b": " + value for name, value in headers]
        if not any(name.lower() == b"content-length" for name, _ in headers):
            lines.append(b"Content-Length: %d" % len(body))
        self._is_closing = True
        self.transport.write(b"\r\n".join([*lines, b"", body]))
        self.transport.close()

    # -- frames of the client ---------------------------------------------------------------------------

    def _take(self, opcode: int, payload: bytes) -> None:
        if opcode == CLOSE:
            self._close(1000, "")
        elif opcode == PING:
            self._write(frame(PONG, payload))
        elif opcode == PONG:
            self._is_awaiting_pong = False
        elif self._inbox.qsize() < MAX_PENDING:
            self._inbox.put_nowait({"type": "websocket.receive", "bytes": payload})

    def _ping_later(self) -> None:
        self._pinging = asyncio.get_running_loop().call_later(PING_SECONDS, self._ping)

    def _ping(self) -> None:
        if self._is_awaiting_pong:
            self._close(FAILED, "no answer to a ping")
            return
        self._is_awaiting_pong = True
        self._frame_count = 0
        self._write(frame(PING, b""))
        self._ping_later()

    def _write(self, data: bytes) -> None:
        if not self._is_closing and not self.transport.is_closing():
            self.transport.write(data)

    def _close(self, code: int, reason: str) -> None:
        """Send a close frame once, and close the connection."""
        if self._is_closing:
            return
        if not self._is_open:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, [], b"")
            return
        self._write(frame(CLOSE, struct.pack("!H", code) + reason.encode()[:100]))
        self._is_closing = True
        self._may_write.set()
        self.transport.close()
        self._lingering = asyncio.get_running_loop().call_later(LINGER_SECONDS, self.transport.abort)


def _is_key(text: bytes) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == 16
    except binascii.Error:
        return False
