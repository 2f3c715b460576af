"""B09: who never gets to the end of a head is not waited for on any port; no key is needed to be sent off."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path

import pytest
from starlette.applications import Starlette

from cograil import metrics
from cograil.http.server import request_limits
from cograil.http.server.port import bind, serving
from cograil.http.server.probes import probe_routes
from cograil.processes.gateway_server import open_gateway
from cograil.settings import Settings

WHOLE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
SECONDS = 0.3


async def _api() -> AsyncGenerator[int, None]:
    async def nothing() -> dict[str, str]:
        return {}

    async def none() -> list[metrics.Sample]:
        return []

    listening = bind("127.0.0.1", 0)
    async with serving(Starlette(routes=probe_routes(nothing, none)), listening):
        yield listening.getsockname()[1]


async def _gateway(directory: Path) -> AsyncGenerator[int, None]:
    listening = bind("127.0.0.1", 0)
    async with open_gateway(Settings(data_dir=directory), listening):
        yield listening.getsockname()[1]


@pytest.fixture(params=["api", "gateway"])
async def port(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[int]:
    """A door that has little patience."""
    monkeypatch.setattr(request_limits, "HEAD_SECONDS", SECONDS)
    async with aclosing(_api() if request.param == "api" else _gateway(tmp_path)) as door:
        async for port in door:
            yield port


async def until_closed(port: int, *sent: bytes, drip: bytes = b"") -> bytes:
    """All that is answered until the other side hangs up; then a byte now and again, if there is a drip."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in sent:
        writer.write(part)
    reading = asyncio.create_task(_all_of(reader))
    begun = time.monotonic()
    with suppress(ConnectionError):
        while drip and not reading.done():
            writer.write(drip)
            await asyncio.wait([reading], timeout=SECONDS / 5)
            assert time.monotonic() - begun < 20 * SECONDS, "it is still taken"
    async with asyncio.timeout(20 * SECONDS):
        heard = await reading
    writer.close()
    return heard


async def _all_of(reader: asyncio.StreamReader) -> bytes:
    """Until it is closed, or reset because a drip was on its way."""
    heard = b""
    with suppress(ConnectionResetError):
        while part := await reader.read(2**16):
            heard += part
    return heard


def code_of(heard: bytes) -> str:
    """Of a problem, in the shape of the API or of the gateway; it ends the connection."""
    assert heard.startswith(b"HTTP/1.1 408 "), heard
    assert b"connection: close" in heard.lower()
    return str(json.loads(heard.partition(b"\r\n\r\n")[2])["code"])


async def test_a_caller_that_sends_nothing_is_disconnected(port: int) -> None:
    assert await until_closed(port) == b""


async def test_blank_lines_are_nothing(port: int) -> None:
    assert await until_closed(port, drip=b"\r\n") == b""


@pytest.mark.parametrize("half", [b"G", b"GET /livez HT", WHOLE[:-2]])
async def test_half_a_head_is_told_so(port: int, half: bytes) -> None:
    assert code_of(await until_closed(port, half)) == "request_timeout"


async def test_a_head_that_drips_is_told_so(port: int) -> None:
    assert code_of(await until_closed(port, WHOLE[:-2] + b"X: ", drip=b"x")) == "request_timeout"


async def test_the_next_request_has_as_much_time_as_the_first(port: int) -> None:
    """A connection that is kept is not one that may drip."""
    heard = await until_closed(port, WHOLE, WHOLE[:-2] + b"X: ", drip=b"x")
    first, _, rest = heard.partition(b"HTTP/1.1 408 ")
    assert first.startswith(b"HTTP/1.1 200 ")
    assert b"request_timeout" in rest


async def test_blank_lines_do_not_keep_a_connection(port: int) -> None:
    heard = await until_closed(port, WHOLE, drip=b"\r\n")
    assert heard.count(b"HTTP/1.1 ") == 1


async def test_between_requests_only_keep_alive_counts(port: int) -> None:
    """Who has been answered and is quiet may come back later than a head may take."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(2):
        writer.write(WHOLE)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        await reader.readexactly(int(length.partition(b":")[2]))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2 * SECONDS):
                await reader.read()
    writer.close()
