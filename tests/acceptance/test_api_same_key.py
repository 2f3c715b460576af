"""One job for thousands of submits: one request under one key, at four servers of one database at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from tests.acceptance.instances import Running, Start, said_port
from tests.conftest import Eventually

HELLO = "workflow_id: hello\nnodes: {a: {handler: echo}}"
BODY = b'{"workflow_id":"hello","input_params":{"n":1}}'
REQUEST = (
    b"POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"idempotency-key: the-one\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
)
SERVERS, EACH = 4, 2_500

pytestmark = pytest.mark.usefixtures("used_data_dir")


class Callers:
    """Connections, each with one request. All are open before the first request is sent, and all
    requests are sent before the first answer is read."""

    def __init__(self) -> None:
        self._lines: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def connect(self, port: int, count: int) -> None:
        for _ in range(count):
            self._lines.append(await asyncio.open_connection("127.0.0.1", port))

    async def ask(self) -> list[tuple[int, bytes]]:
        """Status and body of each answer."""
        for _, writer in self._lines:
            writer.write(REQUEST)
        try:
            return await asyncio.gather(*(one_answer(reader) for reader, _ in self._lines))
        finally:
            for _, writer in self._lines:
                writer.transport.abort()


async def one_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return int(head.split(b" ")[1]), await reader.readexactly(length)


@pytest.mark.timeout(180)
@pytest.mark.torture
async def test_thousands_of_submits_under_one_key_make_one_job(
    start: Start, eventually: Eventually, tmp_path: Path
) -> None:
    """10,000 connections at once; test_identical_submits.py sends as many over fewer. Nobody is sent away."""
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "hello.yaml").write_text(HELLO)
    up = start("up", "--port", "0", "--workflows", str(tmp_path / "flows"))
    await eventually(up.is_ready, 60)
    servers: list[Running] = [up, *(start("server", "--port", "0") for _ in range(SERVERS - 1))]
    for server in servers:
        await eventually(server.is_ready, 60)
    ports = [await eventually(partial(said_port, server)) for server in servers]
    assert len(set(ports)) == SERVERS
    callers = Callers()
    await asyncio.gather(*(callers.connect(port, EACH) for port in ports))
    answers = await callers.ask()
    assert Counter(status for status, _ in answers) == {202: 1, 200: SERVERS * EACH - 1}
    assert len({body for _, body in answers}) == 1
    async with up.lab() as lab:
        assert await lab.rows("select count(*) from cograil.jobs") == [(1,)]
        assert await lab.rows("select count(*) from cograil.idempotency") == [(1,)]
