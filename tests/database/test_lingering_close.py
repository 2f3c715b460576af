"""A caller hears why it was refused, also while it is still sending; and an idle connection that is used
at the last moment is still answered."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

import pytest
from tests.support.api_client import ApiClient

from cograil.http.server import lingering_close as lingering
from cograil.http.server.uvicorn_protocol import Protocol

SIZE = 300_000
REFUSED = {
    "another media type": ("POST /api/v1/jobs", "Content-Type: text/plain\r\n", 415),
    "too large": ("POST /api/v1/jobs", "Content-Type: application/json\r\nX-Pad: a\r\n", 413),
    "two hosts": ("POST /api/v1/jobs", "Host: b\r\n", 400),
    "bad header": ("POST /api/v1/jobs", "Bad Header\r\n", 400),
    "too many headers": ("POST /api/v1/jobs", "X-A: b\r\n" * 200, 431),
    "no such route": ("POST /nowhere", "Connection: close\r\n", 404),
}


def sent_in_pieces(port: int, head: bytes, size: int) -> bytes:
    """Send the head, wait until there is an answer, then send the body; what was answered."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(head)
        connection.recv(1, socket.MSG_PEEK)
        for _ in range(size // 10_000):
            connection.sendall(b"x" * 10_000)
            time.sleep(0.002)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


@pytest.mark.parametrize("name", REFUSED)
async def test_a_refusal_is_heard_while_the_body_is_still_sent(api: ApiClient, name: str) -> None:
    line, headers, status = REFUSED[name]
    size = 50_000_000 if name == "too large" else SIZE
    head = f"{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n{headers}\r\n".encode()
    answer = await asyncio.to_thread(sent_in_pieces, api.port, head, SIZE)
    assert answer.startswith(b"HTTP/1.1 %d " % status)


async def test_a_caller_that_never_stops_sending_is_cut_off(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering, "MAX_DRAINED_BYTES", 1_000_000)
    head = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n"
    with pytest.raises(ConnectionError):
        await asyncio.to_thread(sent_in_pieces, api.port, head, 90_000_000)


async def test_a_request_that_came_while_we_were_busy_is_answered(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of an idle connection ends while its next request waits to be read."""
    made: Callable[..., None] = Protocol.connection_made

    def connection_made(self: Protocol, transport: asyncio.Transport) -> None:
        made(self, transport)
        self.timeout_keep_alive = 0.2  # type: ignore[assignment]

    monkeypatch.setattr(Protocol, "connection_made", connection_made)
    request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    for _ in range(3):
        writer.write(request)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        await reader.read(1000)
        writer.write(request)
        time.sleep(0.3)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        await reader.read(1000)
    writer.close()
