"""StreamReader events with the client: whatever breaks in between, each event comes once and in its order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.api_client import ApiClient

from cograil.client import ApiError, AsyncClient, Client, Unreachable, sse
from cograil.client.sse import StreamReader
from cograil.http.streams import event_subscribers

HELLO = "workflow_id: hello\nnodes: {a: {handler: echo}, b: {handler: echo, depends_on: [a]}}"
A_LITTLE = 900  # of bytes: the head of an answer and a few events


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "FIRST_PAUSE", 0.01)


class Cutting:
    """A proxy that breaks off every answer after a number of bytes."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        ours, theirs = await asyncio.open_connection("127.0.0.1", self.port)
        asking = asyncio.create_task(self._pass_on(reader, theirs))
        left = A_LITTLE
        while left > 0 and (piece := await ours.read(left)):
            writer.write(piece)
            left -= len(piece)
        asking.cancel()
        for stream_writer in (writer, theirs):
            stream_writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65536):
            writer.write(piece)


@contextlib.asynccontextmanager
async def cut_short(api: ApiClient) -> AsyncIterator[tuple[Cutting, str]]:
    way = Cutting(api.port)
    server = await asyncio.start_server(way.serve, "127.0.0.1", 0)
    try:
        yield way, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


async def ended_job(api: ApiClient) -> tuple[str, list[int]]:
    """A job that has ended, and the numbers of its events."""
    await api.post("/api/v1/workflows", {"source": HELLO})
    async with api.harness.running():
        job_id = await api.submit("hello")
        await api.harness.ended(job_id)
    return job_id, [event["seq"] for event in await api.harness.events(job_id)]


@pytest.mark.parametrize("kind", ["awaited", "waited for"])
async def test_a_stream_that_breaks_again_and_again_is_whole(api: ApiClient, kind: str) -> None:
    job_id, numbers = await ended_job(api)

    def wait() -> list[int]:
        with Client(url) as cograil:
            return [event["seq"] for event in cograil.follow(job_id)]

    async with cut_short(api) as (way, url):
        if kind == "awaited":
            async with AsyncClient(url) as cograil:
                sequence_numbers = [event["seq"] async for event in cograil.follow(job_id)]
        else:
            sequence_numbers = await asyncio.to_thread(wait)
    assert sequence_numbers == numbers
    assert way.connections > 2


async def test_the_feed_of_all_jobs_goes_on_where_it_broke_off(api: ApiClient) -> None:
    await api.post("/api/v1/workflows", {"source": HELLO})
    async with AsyncClient(f"http://127.0.0.1:{api.port}") as whole, api.harness.running():
        beginning = asyncio.ensure_future(anext(begin := whole.follow_all()))
        while not beginning.done():
            job_id = await api.submit("hello")
            await api.harness.ended(job_id)
            await asyncio.wait({beginning}, timeout=0.2)
        await begin.aclose()
        first = await beginning
        async with cut_short(api) as (way, url), AsyncClient(url) as cograil:
            received: list[Any] = [first]
            async with contextlib.aclosing(cograil.follow_all(after=first["place"])) as events:
                while (received[-1]["job_id"], received[-1]["event_type"]) != (job_id, "job_completed"):
                    received.append(await asyncio.wait_for(anext(events), 20))
    assert way.connections > 2
    for followed_id in {event["job_id"] for event in received}:
        seqs = [event["seq"] for event in received if event["job_id"] == followed_id]
        assert seqs == [*range(seqs[0], seqs[0] + len(seqs))]


async def test_client_waits_for_temporary_errors_and_raises_the_others(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, numbers = await ended_job(api)
    async with AsyncClient(f"http://127.0.0.1:{api.port}") as cograil:
        with pytest.raises(ApiError) as unknown:
            await anext(cograil.follow("01a1e50c-7310-7248-8dd1-729d3582eaf2"))
        assert unknown.value.status == 404
        monkeypatch.setattr(event_subscribers, "MAX_STREAMS", 0)
        with pytest.raises(ApiError, match="too_many_streams"):
            await anext(cograil.follow(job_id, patience=0.1))
        waiting = asyncio.ensure_future(anext(events := cograil.follow(job_id)))
        await asyncio.wait({waiting}, timeout=0.1)
        assert not waiting.done()
        monkeypatch.undo()
        assert (await waiting)["seq"] == numbers[0]
        await events.aclose()


async def test_nobody_there_is_said_when_patience_ends() -> None:
    async with AsyncClient("http://127.0.0.1:9", timeout=2) as cograil:
        with pytest.raises(Unreachable, match="does not answer"):
            await anext(cograil.follow_all(patience=0.1))


EVENT = {"seq": 1, "data": {"text": "line\u2028line\x85"}}
STREAM = (
    b"retry: 2000\n\n: ping\nid: 7\n\nevent: job_created\r\nid: 8\r\ndata: %b\r\n\r\nevent: x\nid: 9\nda"
    % (json.dumps(EVENT, ensure_ascii=False).encode())
)


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_events_are_read_in_whatever_pieces_they_come(size: int) -> None:
    following = StreamReader(None, 1.0)
    pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    events = [event for piece in pieces for event in following.take(piece)]
    assert events == [EVENT | {"place": "8"}]
    assert following.start()["last-event-id"] == "8"  # the one that broke off was never heard


def test_the_end_of_a_job_is_the_end_and_that_of_a_server_is_not() -> None:
    following = StreamReader("3", 1.0)
    following.take(b'event: end\nid: 3\ndata: {"reason":"shutdown"}\n\n')
    assert not following.is_over
    following.take(b'event: end\nid: 3\ndata: {"reason":"job_over"}\n\n')
    assert following.is_over


def test_pauses_grow_and_begin_anew_once_something_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    monkeypatch.setattr(sse, "FIRST_PAUSE", 1.0)
    following = StreamReader(None, 1e9, _pause=1.0)
    assert [following.pause(Unreachable("x")) for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    following.take(b": ping\n\n")
    assert following.pause(Unreachable("x")) == 1.0
