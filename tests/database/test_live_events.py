"""Live events over HTTP: who may listen, where it goes on, and how it ends."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from tests.conftest import Eventually
from tests.support.api_client import ApiClient
from tests.support.event_streams import open_event_stream, open_websocket

from cograil.http.server import request_limits
from cograil.http.streams import event_streams, websocket
from cograil.model.roles import LADDER, ROLES, Role
from cograil.store.event_feed import FeedCursor

HELLO = "workflow_id: hello\nnodes: {a: {handler: echo}}"
LARGE = """
workflow_id: large
inputs: {text: {type: string}}
nodes:
  ask: {type: approval, approval: {message: "{{ inputs.text }}"}}
"""
FEED = "/api/v1/events/stream"
UNKNOWN = "01a1e50c-7310-7248-8dd1-729d3582eaf2"


@pytest.fixture
async def shop(api: ApiClient) -> ApiClient:
    assert (await api.post("/api/v1/workflows", {"source": HELLO})).status == 201
    return api


@pytest.fixture(autouse=True)
def ended_streams(api: ApiClient) -> Iterator[None]:
    """Nothing waits for a stream when the server stops."""
    yield
    api.context.subscribers.end()


def stream_of(job_id: str) -> str:
    return f"/api/v1/jobs/{job_id}/events/stream"


async def test_a_job_is_followed_to_its_end(shop: ApiClient) -> None:
    job_id = await shop.submit("hello")
    async with open_event_stream(shop.port, stream_of(job_id)) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["x-accel-buffering"] == "no"
        past = await stream.take(4)
        async with shop.harness.running():
            rest = await stream.rest()
    assert [event["seq"] for event in past] == [1, 2, 3, 4]
    assert [event.id for event in rest] == ["5", "6", "7", "7"]
    assert [event.name for event in rest] == ["node_started", "node_completed", "job_completed", "end"]
    assert rest[-1].data == {"reason": "job_over"}
    events = (await shop.get(f"/api/v1/jobs/{job_id}/events")).body["events"]
    assert past + [event.data for event in rest[:-1]] == events


async def test_a_client_that_reconnects_misses_no_event_and_gets_none_twice(shop: ApiClient) -> None:
    async with shop.harness.running():
        job_id = await shop.submit("hello")
        await shop.harness.ended(job_id)
    async with open_event_stream(shop.port, stream_of(job_id), last_event_id="5") as stream:
        assert [event.id for event in await stream.rest()] == ["6", "7", "7"]
    async with open_event_stream(shop.port, stream_of(job_id) + "?after=6") as stream:
        assert [event.id for event in await stream.rest()] == ["7", "7"]
    async with open_event_stream(shop.port, stream_of(job_id), last_event_id="7") as stream:
        assert stream.status == 204


async def test_only_the_types_asked_for_come(shop: ApiClient) -> None:
    async with shop.harness.running():
        job_id = await shop.submit("hello")
        path = stream_of(job_id) + "?types=job_created,job_completed"
        async with open_event_stream(shop.port, path) as stream:
            names = [event.name for event in await stream.rest()]
    assert names == ["job_created", "job_completed", "end"]


async def test_the_feed_begins_now_and_goes_on_where_it_was_left(shop: ApiClient) -> None:
    before = await shop.submit("hello")
    async with open_event_stream(shop.port, FEED) as stream:
        await stream.next()
        first = await shop.submit("hello")
        seen = await stream.take(3)
    second = await shop.submit("hello")
    async with open_event_stream(shop.port, FEED, last_event_id=stream.last_id) as again:
        seen += await again.take(5)
    assert before not in {event["job_id"] for event in seen}
    assert [(event["job_id"], event["seq"]) for event in seen] == [
        (job, seq) for job in (first, second) for seq in (1, 2, 3, 4)
    ]


async def test_a_sign_of_life_moves_the_place_on(shop: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of events that are not wanted nothing is said, and still they need not be looked through again."""
    monkeypatch.setattr(event_streams, "HEARTBEAT_SECONDS", 0.05)
    async with open_event_stream(shop.port, FEED + "?types=job_failed") as stream:
        first = await stream.next()
        await shop.submit("hello")
        async with asyncio.timeout(10):
            while (event := await stream.next()) is not None and event.id == (first and first.id):
                pass
    async with open_event_stream(shop.port, FEED, last_event_id=stream.last_id) as again:
        await again.next()
        job_id = await shop.submit("hello")
        assert {event["job_id"] for event in await again.take(4)} == {job_id}


@pytest.mark.parametrize("path", ["JOB", FEED])
async def test_however_much_happens_that_nobody_asked_for_signs_of_life_come(
    shop: ApiClient, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Else a proxy would take it for dead, and who comes again would have to look through all of it."""
    monkeypatch.setattr(event_streams, "HEARTBEAT_SECONDS", 0.05)
    job_id, numbers = await shop.submit("hello"), count(5)

    async def events_of(*_: object) -> tuple[list[dict[str, Any]], bool]:
        await asyncio.sleep(0.001)
        return [{"event_type": "node_started", "job_id": job_id, "seq": next(numbers)}], False

    async def next_of(
        tenant: str, place: FeedCursor
    ) -> tuple[list[tuple[FeedCursor, dict[str, Any]]], FeedCursor]:
        ((event,), _), after = await events_of(), FeedCursor(f"9:{9 + next(numbers)}:")
        return [(after, event)], after

    monkeypatch.setattr(shop.context.subscribers, "events_of", events_of)
    monkeypatch.setattr(shop.context.subscribers, "next_of", next_of)
    stream_path = path.replace("JOB", stream_of(job_id)) + "?types=job_failed"
    async with open_event_stream(shop.port, stream_path) as stream, asyncio.timeout(10):
        signs = [event.id for _ in range(4) if (event := await stream.next()) is not None]
    assert len(set(signs)) == 4  # each a place further on


@pytest.mark.parametrize(
    ("path", "headers", "status", "code"),
    [
        (stream_of(UNKNOWN), {}, 404, "not_found"),
        (FEED + "?types=nonsense", {}, 422, "invalid_parameter"),
        (FEED, {"last_event_id": "nonsense"}, 422, "invalid_cursor"),
        (FEED + "?after=1:1:", {}, 422, "invalid_cursor"),
        (FEED + "?limit=1", {}, 422, "unknown_parameter"),
        ("JOB", {"last_event_id": "x"}, 422, "invalid_cursor"),
        ("JOB?after=-1", {}, 422, "invalid_parameter"),
    ],
)
async def test_a_wrong_request_is_refused_before_anything_is_told(
    shop: ApiClient, path: str, headers: dict[str, str], status: int, code: str
) -> None:
    path = path.replace("JOB", stream_of(await shop.submit("hello")))
    answer = await shop.get(path, headers={name.replace("_", "-"): text for name, text in headers.items()})
    assert (answer.status, answer.code) == (status, code)


async def test_nobody_hears_of_another_tenant(shop: ApiClient) -> None:
    acme, globex = await shop.make_key("admin", "acme"), await shop.make_key("viewer", "globex")
    await shop.post("/api/v1/workflows", {"source": HELLO}, key=acme)
    async with (
        open_event_stream(shop.port, FEED, key=acme) as own,
        open_event_stream(shop.port, FEED, key=globex) as foreign,
    ):
        await own.next()
        await foreign.next()
        job_id = (await shop.post("/api/v1/jobs", {"workflow_id": "hello"}, key=acme)).body["job_id"]
        assert {event["job_id"] for event in await own.take(4)} == {job_id}
        answer = await shop.get(stream_of(job_id), key=globex)
        assert (answer.status, answer.code) == (404, "not_found")
        answer = await shop.get(FEED, key=globex, headers={"last-event-id": own.last_id})
        assert answer.code == "invalid_cursor"
        shop.context.subscribers.end()
        assert [event.name for event in await foreign.rest()] == ["end"]


async def test_a_revoked_key_hears_no_more(shop: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "KEY_SECONDS", 0.05)
    monkeypatch.setattr("cograil.http.auth.authentication.KNOWN_SECONDS", 0.0)
    key = await shop.make_key("viewer")
    async with open_event_stream(shop.port, FEED, key=key) as stream:
        assert stream.status == 200
        await shop.harness.rows("update cograil.keys set revoked_at = now()")
        assert [event.data for event in await stream.rest()] == [{"reason": "unauthenticated"}]


async def test_a_revoked_key_hears_no_more_however_much_there_is_to_tell(
    shop: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream is never quiet, so a look at quiet times would never come."""
    monkeypatch.setattr(event_streams, "KEY_SECONDS", 0.05)
    monkeypatch.setattr("cograil.http.auth.authentication.KNOWN_SECONDS", 0.0)
    key, other = await shop.make_key("viewer"), await shop.make_key("submitter")
    job_id = (await shop.post("/api/v1/jobs", {"workflow_id": "hello"}, key=other)).body["job_id"]

    async def go_on() -> None:
        while True:
            await shop.post("/api/v1/jobs", {"workflow_id": "hello"}, key=other)

    busy = asyncio.create_task(go_on())
    try:
        async with (
            open_event_stream(shop.port, FEED, key=key) as stream,
            open_websocket(shop.port, f"/ws/jobs/{job_id}", key=key) as socket,
        ):
            await stream.take(8)
            await shop.harness.rows(
                f"update cograil.keys set revoked_at = now() where id = '{key.split('_')[1]}'"
            )
            rest = await stream.rest(10)
            assert (rest[-1].name, rest[-1].data) == ("end", {"reason": "unauthenticated"})
            assert (await socket.messages(10))[1:] == (1008, "unauthenticated")
    finally:
        busy.cancel()
        await asyncio.gather(busy, return_exceptions=True)
    # What was told last is where it goes on: nothing was passed over.
    received = [event.data for event in rest[:-1]]
    await shop.post("/api/v1/jobs", {"workflow_id": "hello"}, key=other)
    async with open_event_stream(shop.port, FEED, key=other, last_event_id=rest[-1].id) as again:
        following = (await again.take(1))[0]
    assert (following["job_id"], following["seq"]) not in {
        (event["job_id"], event["seq"]) for event in received
    }


async def test_a_reader_that_takes_nothing_is_dropped_and_can_go_on(
    shop: ApiClient, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(event_streams, "SLOW_SECONDS", 0.2)
    text = "x" * 200_000
    assert (await shop.post("/api/v1/workflows", {"source": LARGE})).status == 201
    async with open_event_stream(shop.port, FEED) as stream:
        await stream.next()
        for _ in range(40):
            await shop.submit("large", input_params={"text": text})
        await eventually(lambda: not shop.context.subscribers._subscribers, 20)
    async with open_event_stream(shop.port, FEED, last_event_id=stream.last_id) as again:
        jobs: set[str] = set()
        while len(jobs) < 40:
            jobs |= {event["job_id"] for event in await again.take(1)}


async def test_a_stream_that_breaks_off_says_so_and_can_go_on(
    shop: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await shop.submit("hello")

    async def fail(*_: object) -> None:
        raise OSError("the database is away")

    async with open_event_stream(shop.port, stream_of(job_id)) as stream:
        await stream.take(4)
        with monkeypatch.context() as patch:
            patch.setattr(shop.context.subscribers, "events_of", fail)
            async with shop.harness.running():
                rest = await stream.rest()
    assert [(event.id, event.data) for event in rest] == [("4", {"reason": "unavailable"})]
    async with (
        open_event_stream(shop.port, stream_of(job_id), last_event_id="4") as stream,
        shop.harness.running(),
    ):
        assert [event.id for event in await stream.rest()] == ["5", "6", "7", "7"]


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_that_may_read_jobs_may_follow_their_events(shop: ApiClient, role: Role) -> None:
    job_id = await shop.submit("hello")
    key = await shop.make_key(role)
    for path in (FEED, stream_of(job_id)):
        async with open_event_stream(shop.port, path, key=key) as stream:
            assert (stream.status == 200) == (role in LADDER), role
            assert stream.status in (200, 403)


async def test_head_has_no_body(shop: ApiClient) -> None:
    answer = await shop.call("HEAD", FEED)
    assert (answer.status, answer.raw) == (200, b"")


# -- WebSocket ------------------------------------------------------------------------------------------


async def test_a_socket_tells_the_events_of_a_job(shop: ApiClient) -> None:
    job_id = await shop.submit("hello")
    async with open_websocket(shop.port, f"/ws/jobs/{job_id}?after=2") as socket:
        assert socket.status == 101
        async with shop.harness.running():
            events, code, reason = await socket.messages()
    assert [event["seq"] for event in events] == [3, 4, 5, 6, 7]
    assert (code, reason) == (1000, "job_over")
    assert events == (await shop.get(f"/api/v1/jobs/{job_id}/events?after=2")).body["events"]


async def test_the_handshake_proves_that_we_read_the_key(shop: ApiClient) -> None:
    key = base64.b64encode(b"0123456789abcdef").decode()
    job_id = await shop.submit("hello")
    async with open_websocket(shop.port, f"/api/v1/ws/jobs/{job_id}", sec_websocket_key=key) as socket:
        expected = hashlib.sha1(key.encode() + websocket.GUID).digest()
        assert socket.headers["sec-websocket-accept"] == base64.b64encode(expected).decode()


async def test_a_browser_names_its_key_as_a_protocol(shop: ApiClient) -> None:
    job_id = await shop.submit("hello")
    key = await shop.make_key("viewer")
    path = f"/ws/jobs/{job_id}"
    offered = f"cograil.v1, cograil.key.{key}"
    async with open_websocket(
        shop.port, path, sec_websocket_protocol=offered, origin="http://elsewhere"
    ) as socket:
        assert (socket.status, socket.headers["sec-websocket-protocol"]) == (101, "cograil.v1")
    # P22: a key that is all that was offered is not told back; nor is anything else that might be one.
    for alone in (f"cograil.key.{key}", f"other, cograil.key.{key}"):
        async with open_websocket(shop.port, path, sec_websocket_protocol=alone) as socket:
            assert (socket.status, "sec-websocket-protocol" in socket.headers) == (101, False)
            assert key not in str(socket.headers)
    async with open_websocket(shop.port, path, key=key) as socket:
        assert socket.status == 101
    for headers in ({}, {"sec_websocket_protocol": "cograil.key.cog_a_b"}):
        async with open_websocket(shop.port, path, **headers) as socket:
            assert socket.status == 401
    async with open_websocket(shop.port, path, key=await shop.make_key("worker")) as socket:
        assert socket.status == 403
    async with open_websocket(shop.port, path, key=await shop.make_key("viewer", "globex")) as socket:
        assert socket.status == 404
        assert b"not_found" in await socket.reader.read()


async def test_a_page_of_another_site_may_not_look_in_without_a_key(shop: ApiClient) -> None:
    path = f"/ws/jobs/{await shop.submit('hello')}"
    async with open_websocket(shop.port, path, origin="http://elsewhere.example") as socket:
        assert socket.status == 403
    async with open_websocket(shop.port, path, origin="http://localhost") as socket:
        assert socket.status == 101


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec_websocket_version": "8"}, 426),
        ({"sec_websocket_key": "short"}, 426),
        ({"sec_websocket_key": "not base64 at all !!"}, 426),
    ],
)
async def test_a_wrong_handshake_is_refused(shop: ApiClient, headers: dict[str, str], status: int) -> None:
    async with open_websocket(shop.port, f"/ws/jobs/{await shop.submit('hello')}", **headers) as socket:
        assert socket.status == status


async def test_other_routes_are_no_sockets_and_sockets_no_routes(shop: ApiClient) -> None:
    async with open_websocket(shop.port, "/api/v1/jobs") as socket:
        assert socket.status == 405
    async with open_websocket(shop.port, "/ws/nothing") as socket:
        assert socket.status == 404
    assert (await shop.get(f"/ws/jobs/{UNKNOWN}")).status == 405


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x81\x05hello", 1002),  # not masked
        (b"\xc1\x80\0\0\0\0", 1002),  # an extension nobody agreed on
        (b"\x89\xfe\0\x7e", 1002),  # a ping that is too long
        (b"\x09\x80\0\0\0\0", 1002),  # a ping in pieces
        (b"\x82\xff" + b"\xff" * 8, 1009),
        (b"\x82\xfe\xff\xff", 1009),
        (b"\x88\x80\0\0\0\0", 1000),
    ],
)
async def test_an_invalid_frame_ends_the_socket(shop: ApiClient, frame: bytes, code: int) -> None:
    async with open_websocket(shop.port, f"/ws/jobs/{await shop.submit('hello')}?after=4") as socket:
        socket.writer.write(frame)
        assert (await socket.messages())[:2] == ([], code)


async def test_a_ping_is_answered_and_what_is_said_is_passed_over(shop: ApiClient) -> None:
    async with open_websocket(shop.port, f"/ws/jobs/{await shop.submit('hello')}?after=4") as socket:
        for _ in range(100):
            socket.send(0x1, b"hello" * 100)
        socket.send(0x9, b"there?")
        async with asyncio.timeout(10):
            assert await socket.frame() == (0xA, b"there?")


async def test_a_caller_that_does_not_answer_is_gone(
    shop: ApiClient, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(websocket, "PING_SECONDS", 0.05)
    async with open_websocket(shop.port, f"/ws/jobs/{await shop.submit('hello')}?after=4") as socket:
        async with asyncio.timeout(10):
            assert await socket.frame() == (0x9, b"")
            assert await socket.messages() == ([], 1011, "no answer to a ping")
        await eventually(lambda: not shop.context.subscribers._subscribers)


async def test_a_quiet_job_keeps_its_socket(shop: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time in which a request must come does not count once the connection is a socket."""
    monkeypatch.setattr(request_limits, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(websocket, "PING_SECONDS", 0.15)
    async with open_websocket(shop.port, f"/ws/jobs/{await shop.submit('hello')}?after=4") as socket:
        async with asyncio.timeout(20):
            for _ in range(6):  # four times as long as a request may take
                assert await socket.frame() == (0x9, b"")
                socket.send(0xA, b"")
        monkeypatch.setattr(websocket, "PING_SECONDS", 15.0)
        async with shop.harness.running():
            events, code, reason = await socket.messages()
    assert ([event["seq"] for event in events], code, reason) == ([5, 6, 7], 1000, "job_over")


async def test_a_flood_of_frames_ends_the_socket(shop: ApiClient) -> None:
    async with open_websocket(shop.port, f"/ws/jobs/{await shop.submit('hello')}?after=4") as socket:
        for _ in range(websocket.MAX_FRAMES + 1):
            socket.send(0x9, b"x")
        assert await socket.messages() == ([], 1008, "too many frames")


async def test_pings_of_a_caller_that_never_reads_are_not_kept(
    shop: ApiClient, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr(websocket, "MAX_FRAMES", 10**9)
    monkeypatch.setattr(request_limits, "WRITE_SECONDS", 1.0)
    monkeypatch.setattr(websocket, "LINGER_SECONDS", 0.2)
    transports, accept = [], websocket.WebSocketProtocol._accept
    largest, sent = 0, 0

    def noting(self: websocket.WebSocketProtocol, protocol: str | None) -> None:
        transports.append(self.transport)
        accept(self, protocol)

    monkeypatch.setattr(websocket.WebSocketProtocol, "_accept", noting)
    pings = b"".join(b"\x89\xfd\0\0\0\0" + b"x" * 125 for _ in range(500))  # each wants as much as it brings
    async with open_websocket(shop.port, f"/ws/jobs/{await shop.submit('hello')}?after=4") as socket:
        async with asyncio.timeout(30):
            with contextlib.suppress(ConnectionError):
                while not transports[0].is_closing():
                    socket.writer.write(pings)
                    sent += len(pings)
                    largest = max(largest, transports[0].get_write_buffer_size())
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(socket.writer.drain(), 0.05)
        await eventually(lambda: not shop.context.subscribers._subscribers)
    assert sent > 1_000_000
    assert largest < 1_000_000


async def test_a_socket_is_told_of_the_end(shop: ApiClient) -> None:
    async with open_websocket(shop.port, f"/ws/jobs/{await shop.submit('hello')}?after=4") as socket:
        shop.context.subscribers.end()
        assert await socket.messages() == ([], 1001, "shutdown")
