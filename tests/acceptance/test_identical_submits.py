"""The same submit from thousands at once, over several servers: one job, and all are told of it."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path

import pytest
from tests.acceptance.instances import Running, Start, port_of, said_port
from tests.conftest import Eventually

HELLO = "workflow_id: hello\nnodes: {a: {handler: echo}}"
BODY = b'{"workflow_id": "hello", "input_params": {"n": 1}}'
MANY, CALLERS = 10_000, 400  # each caller sends all of its requests before it reads an answer
ANSWER = re.compile(rb"HTTP/1\.1 (\d+)[^\n]*\r\n.*?\r\n\r\n\{\"job_id\":\"([^\"]+)\"", re.DOTALL)
REQUEST = (
    b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Idempotency-Key: the-one\r\nContent-Length: %d\r\n%b\r\n" + BODY
)

pytestmark = pytest.mark.usefixtures("used_data_dir")


@pytest.mark.timeout(240)
async def test_ten_thousand_identical_submits_make_one_job(
    start: Start, eventually: Eventually, tmp_path: Path
) -> None:
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "hello.yaml").write_text(HELLO)
    up = start("up", "--port", "0", "--workflows", str(tmp_path / "flows"))
    await eventually(up.is_ready, 60)
    others = [start("server", "--port", "0") for _ in range(2)]
    ports = [port_of(up), *[await port_when_ready(server, eventually) for server in others]]
    gate = asyncio.Event()
    callers = [
        asyncio.create_task(submit_many(ports[n % len(ports)], MANY // CALLERS, gate)) for n in range(CALLERS)
    ]
    gate.set()
    replies = [answer for answers in await asyncio.gather(*callers) for answer in answers]
    assert Counter(status for status, _ in replies) == {202: 1, 200: MANY - 1}
    assert len({job_id for _, job_id in replies}) == 1
    async with up.lab() as lab:
        assert await lab.rows("select count(*) from cograil.jobs") == [(1,)]
        assert await lab.rows("select count(*) from cograil.audit_log where action = 'submit'") == [(1,)]


async def port_when_ready(server: Running, eventually: Eventually) -> int:
    await eventually(server.is_ready, 60)
    port: int = await eventually(lambda: said_port(server))
    return port


async def submit_many(port: int, count: int, gate: asyncio.Event) -> list[tuple[int, bytes]]:
    """The answers to `count` submits, all of them under way on one connection; the last closes it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await gate.wait()
    requests = [REQUEST % (len(BODY), b"")] * (count - 1)
    writer.write(b"".join([*requests, REQUEST % (len(BODY), b"Connection: close\r\n")]))
    answered = await reader.read()
    writer.close()
    replies = [(int(status), job_id) for status, job_id in ANSWER.findall(answered)]
    assert len(replies) == count, answered[-2000:]
    return replies
