"""Deliveries per second to a receiver on this machine: one `cograil relay`, signed callbacks."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator

from bench.engine import Bench, query
from bench.figures import Figures
from cograil.setting_sections import OutboundSettings
from cograil.verbs.submit import Submission, submit

OK = b"HTTP/1.1 204 No Content\r\n\r\n"
HERE = "127.0.0.0/8"
BULK = 1000
SECRET = "whsec_" + base64.b64encode(bytes(32)).decode()
LEFT = query(
    "select (select count(*) from cograil.outbox)"
    " + (select count(*) from cograil.deliveries where state = 'pending')"
)


class _Counting(asyncio.Protocol):
    """Answers each request with 204 and counts it; requests here have a body and are never pipelined."""

    received = 0

    def __init__(self) -> None:
        self._left, self._head = 0, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._left:
            self._head += data
            head, separator, data = self._head.partition(b"\r\n\r\n")
            if not separator:
                return
            self._left = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            self._head = b""
        self._left -= len(data)
        if self._left <= 0:
            _Counting.received += 1
            self._transport.write(OK)  # type: ignore[attr-defined]


@contextlib.asynccontextmanager
async def _receiver() -> AsyncIterator[str]:
    server = await asyncio.get_running_loop().create_server(_Counting, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"


@contextlib.contextmanager
def _relay(conninfo: str) -> Iterator[None]:
    more = {"COGRAIL_OUTBOUND__ALLOW_NETWORKS": HERE, "COGRAIL_LOG__LEVEL": "warning"}
    environment = os.environ | {"COGRAIL_DATABASE_URL": conninfo} | more
    relay = subprocess.Popen([sys.executable, "-m", "cograil", "relay"], env=environment)
    try:
        yield
    finally:
        relay.terminate()
        relay.wait()


async def measure(bench: Bench, jobs: int) -> Figures:
    """How fast one relay delivers one event of each of these jobs, from its first to its last request."""
    bench.engine_context.outbound = OutboundSettings(allow_networks=(HERE,))
    _Counting.received = 0
    async with _receiver() as url:
        callback = {"url": url, "secret": SECRET, "events": ["job.created"]}
        for start in range(0, jobs, BULK):
            chunk = [
                Submission("single", {"name": "d"}, callback=callback) for _ in range(min(BULK, jobs - start))
            ]
            async with bench.db.transaction("submit") as tx:
                await submit(tx, bench.engine_context, chunk)
        with _relay(bench.conninfo):
            while not _Counting.received:  # noqa: ASYNC110  its start does not count
                await asyncio.sleep(0.001)
            began, before = time.perf_counter(), _Counting.received
            while _Counting.received < jobs:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            seconds = time.perf_counter() - began
            await bench.until(LEFT, 0)
    assert _Counting.received == jobs, "nothing is sent twice"
    return {"deliveries_per_s": round((jobs - before) / seconds)}
