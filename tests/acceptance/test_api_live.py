"""Live events of real processes: two servers on one database, and an end that no listener can delay."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.instances import Running, Start, port_of, said_port
from tests.conftest import Eventually
from tests.support.event_streams import open_event_stream, open_websocket, write_request_head

WAITING = "workflow_id: waiting\nnodes: {ask: {type: approval, approval: {message: may it?}}}"
HELLO = "workflow_id: hello\nnodes: {a: {handler: echo, next: b}, b: {handler: echo}}"
WAITED = '{"workflow_id": "waiting"}'
CLAIM = '{"worker_id": "w", "wait_seconds": 30}'
FEED = "/api/v1/events/stream"

pytestmark = pytest.mark.usefixtures("used_data_dir")


@pytest.fixture
def flows(tmp_path: Path) -> Path:
    folder = tmp_path / "flows"
    folder.mkdir()
    (folder / "waiting.yaml").write_text(WAITING)
    (folder / "hello.yaml").write_text(HELLO)
    return folder


async def started(start: Start, flows: Path, eventually: Eventually) -> Running:
    up = start("up", "--port", "0", "--workflows", str(flows))
    await eventually(up.is_ready, 60)
    return up


async def submit(port: int, workflow_id: str) -> str:
    """A job, over HTTP."""
    body = f'{{"workflow_id": "{workflow_id}"}}'
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    length = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    await write_request_head(writer, "POST", "/api/v1/jobs", headers=length)
    writer.write(body.encode())
    answer = (await reader.read()).decode()
    writer.close()
    assert answer.startswith("HTTP/1.1 202"), answer
    return answer.split('"job_id":"')[1].split('"')[0]


async def test_the_feed_goes_on_at_another_server(
    start: Start, flows: Path, eventually: Eventually, tmp_path: Path
) -> None:
    """A place is one of the database: what was missed at the one is heard at the other, once and in order."""
    up = await started(start, flows, eventually)
    other = start("server", "--port", "0")
    await eventually(other.is_ready, 60)
    port, other_port = port_of(up), await eventually(lambda: said_port(other))
    jobs, seen = [], list[Any]()
    async with open_event_stream(port, FEED) as stream:
        await stream.next()
        jobs.append(await submit(port, "hello"))
        seen += await stream.take(5)
    jobs += [await submit(port, "hello"), await submit(other_port, "hello")]
    async with open_event_stream(other_port, FEED, last_event_id=stream.last_id) as stream:
        while sum(event["event_type"] == "job_completed" for event in seen) < 3:
            seen += await stream.take(1)
    for job_id in jobs:
        numbers = [event["seq"] for event in seen if event["job_id"] == job_id]
        assert numbers == list(range(1, len(numbers) + 1))


async def test_no_listener_delays_the_end(start: Start, flows: Path, eventually: Eventually) -> None:
    """Open streams are told and end at once; who says nothing, or half of it, is left behind. Exit 0."""
    up = await started(start, flows, eventually)
    port = port_of(up)
    job_id = await submit(port, "waiting")
    halves = [await half_sent(port) for _ in range(3)]
    mute = await asyncio.open_connection("127.0.0.1", port)
    async with (
        open_event_stream(port, FEED) as feed,
        open_event_stream(port, f"/api/v1/jobs/{job_id}/events/stream") as job,
        open_event_stream(port, FEED),  # never read
        open_websocket(port, f"/ws/jobs/{job_id}") as socket,
    ):
        await feed.next()
        await job.take(1)
        begun = time.monotonic()
        up.send(signal.SIGTERM)
        endings = await asyncio.gather(feed.rest(), job.rest(), socket.messages())
        assert endings[0][-1].data == endings[1][-1].data == {"reason": "shutdown"}
        assert endings[2][1:] == (1001, "shutdown")
        assert await asyncio.to_thread(up.ended) == 0
        assert time.monotonic() - begun < 10
    for _, writer in [*halves, mute]:
        writer.close()
    assert up.events()[-1] == "stopped"
    assert "Traceback" not in up.output


async def half_sent(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request whose body never comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    headers = {"content-type": "application/json", "content-length": "1000"}
    await write_request_head(writer, "POST", "/api/v1/jobs", headers=headers)
    writer.write(b'{"workflow_id": ')
    await writer.drain()
    return reader, writer


async def test_a_server_alone_ends_as_soon(start: Start, flows: Path, eventually: Eventually) -> None:
    up = await started(start, flows, eventually)
    server = start("server", "--port", "0")
    await eventually(server.is_ready, 60)
    port = await eventually(lambda: said_port(server))
    async with open_event_stream(port, FEED) as feed:
        await feed.next()
        _, writer = await half_sent(port)
        server.send(signal.SIGTERM)
        assert [event.data for event in await feed.rest()] == [{"reason": "shutdown"}]
        assert await asyncio.to_thread(server.ended) == 0
        writer.close()
    assert up.process.poll() is None


async def test_callers_who_wait_or_dawdle_are_answered_before_the_end(
    start: Start, flows: Path, eventually: Eventually
) -> None:
    """Who waits for something is answered at once, who has half-sent its request when the grace is over is
    told 503; and the log has nothing to complain about."""
    up = await started(start, flows, eventually)
    server = start("server", "--port", "0")
    await eventually(server.is_ready, 60)
    port = await eventually(lambda: said_port(server))
    with contextlib.ExitStack() as open_ones:
        waiting = await asking(open_ones, port, "/api/v1/jobs", WAITED, prefer="wait=50")
        claiming = await asking(open_ones, port, "/api/v1/tasks/claim", CLAIM)
        half, writer = await half_sent(port)
        open_ones.callback(writer.close)
        async with up.lab() as lab:
            await eventually(lambda: lab.rows("select id from cograil.jobs"))
        begun = time.monotonic()
        server.send(signal.SIGTERM)
        assert (await waiting.read()).startswith(b"HTTP/1.1 202")
        assert b'{"tasks":[]}' in await claiming.read()
        assert time.monotonic() - begun < 1.5
        response = await half.read()
        assert response.startswith(b"HTTP/1.1 503")
        assert b'"code":"shutting_down"' in response
        assert await asyncio.to_thread(server.ended) == 0
        assert time.monotonic() - begun < 10
    assert server.events() == ["ready", "stopped"]
    assert "Traceback" not in server.output


async def asking(
    open_ones: contextlib.ExitStack, port: int, path: str, body: str, **headers: str
) -> asyncio.StreamReader:
    """A request; its answer is still to come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    open_ones.callback(writer.close)
    length = {"content-type": "application/json", "content-length": str(len(body))}
    await write_request_head(writer, "POST", path, headers=length | headers)
    writer.write(body.encode())
    await writer.drain()
    return reader
