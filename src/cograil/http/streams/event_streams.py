"""Live events: server-sent events of one job or of all, and a WebSocket for one job.

A stream starts with past events, if requested, and continues with new ones as they are committed: each event
once, the events of one job in order. A client that reconnects with the id of the last event misses nothing. The
server sends at least a comment every 15 seconds, so that both sides notice a lost connection. A client that
reads nothing for 30 seconds is dropped, and so is one whose key is no longer valid.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Annotated

import orjson
import psycopg
import structlog
from pydantic import Field
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cograil.errors import DatabaseUnavailable
from cograil.http.routes.job_routes import find_job
from cograil.http.server.dispatcher import Call
from cograil.http.server.page_cursors import MAX_CURSOR
from cograil.http.server.problem_details import Refusal
from cograil.http.server.request_parsing import Query
from cograil.http.server.routing import Router
from cograil.http.server.timeouts import wait_for_disconnect
from cograil.http.streams.event_subscribers import Subscriber
from cograil.model.states import EVENT_TYPES
from cograil.store.event_feed import FeedCursor, parse_feed_cursor
from cograil.store.job_queries import View

log = structlog.get_logger("live")
live_events = Router("live events")
sockets = Router("live events", prefix="")

HEARTBEAT_SECONDS = 15.0
SLOW_SECONDS = 30.0
RETRY = b"retry: 2000\n\n"
HEADERS = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}
CLOSE_CODES = {"job_over": 1000, "shutdown": 1001, "unauthenticated": 1008}
PROTOCOLS, PLAIN_PROTOCOL = "sec-websocket-protocol", "cograil.v1"
KEY_SECONDS = 1.0  # interval in which a stream checks its key


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """One message of a stream: an event, the end of the stream, or a heartbeat."""

    cursor: str
    event: View | None = None
    end: str = ""


Messages = AsyncGenerator[Sequence[StreamMessage], None]
SendMessage = Callable[[StreamMessage], Awaitable[None]]


class JobFeed(Query):
    """The number to start after, and the event types, separated by commas."""

    after: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    types: Annotated[str, Field(max_length=1000)] | None = None


class WholeFeed(Query):
    """The id of the event to start after, and the event types, separated by commas."""

    after: Annotated[str, Field(max_length=2 * MAX_CURSOR)] | None = None
    types: Annotated[str, Field(max_length=1000)] | None = None


@live_events.get(
    "/jobs/{job_id}/events/stream",
    "viewer",
    query=JobFeed,
    is_stream=True,
    responses={
        200: "events in their order, as they are committed",
        204: "the job is over and all events were sent",
    },
    headers=("Last-Event-ID",),
)
async def stream_job(call: Call) -> Response:
    """Follow the events of a job, as server-sent events.

    The id of an event is its number; `Last-Event-ID` (or `after`) resumes after it. When the job is over,
    the stream ends with the event `end`.
    """
    query: JobFeed = call.query
    job_id = await _find_job_id(call)
    last_event_id = call.headers.get("last-event-id")
    after = query.after or 0 if last_event_id is None else _number(last_event_id)
    types = _types(query.types)
    if last_event_id is not None and await _has_no_more(call, job_id, after):
        return Response(status_code=204)  # an EventSource reconnects until it gets this
    return EventStream(call, job_messages(call, job_id, after, types))


@live_events.get(
    "/events/stream",
    "viewer",
    query=WholeFeed,
    is_stream=True,
    responses={200: "events as they are committed, those of one job in their order"},
    headers=("Last-Event-ID",),
)
async def stream_all(call: Call) -> Response:
    """Follow the events of all jobs, as server-sent events.

    It begins with what is committed from now on, or after the event that `Last-Event-ID` (or `after`) names,
    at most a day ago.
    """
    query: WholeFeed = call.query
    call.context.subscribers.check_capacity()
    last_event_id = call.headers.get("last-event-id", query.after)
    types = _types(query.types)
    cursor = None if last_event_id is None else _feed_cursor(call, last_event_id)
    return EventStream(call, all_messages(call, cursor, types))


@sockets.socket("/ws/jobs/{job_id}", "viewer", query=JobFeed)
@live_events.socket("/ws/jobs/{job_id}", "viewer", query=JobFeed)
async def open_socket(call: Call) -> Response:
    """Follow the events of a job over a WebSocket: one event object in each message."""
    query: JobFeed = call.query
    job_id = await _find_job_id(call)
    protocols = [name.strip() for name in ",".join(call.headers.getlist(PROTOCOLS)).split(",")]
    protocol = PLAIN_PROTOCOL if PLAIN_PROTOCOL in protocols else None  # one of the others may be a key
    return EventSocket(call, job_messages(call, job_id, query.after or 0, _types(query.types)), protocol)


# -- parameters -----------------------------------------------------------------------------------------


async def _find_job_id(call: Call) -> str:
    call.context.subscribers.check_capacity()
    async with call.transaction("show") as tx:
        job, _ = await find_job(call, tx)
    job_id: str = job["job_id"]
    return job_id


async def _has_no_more(call: Call, job_id: str, after: int) -> bool:
    events, is_last = await call.context.subscribers.events_of(call.caller.tenant, job_id, after)
    return is_last and not events


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise Refusal(422, "invalid_cursor", "the id of an event of a job is its number")
    return int(text)


def _types(text: str | None) -> frozenset[str]:
    """Return the requested event types; none means all. Raises Refusal for an unknown type."""
    types = frozenset() if text is None else frozenset(text.split(","))
    if not types <= set(EVENT_TYPES):
        raise Refusal(422, "invalid_parameter", f"unknown event type; the types are {', '.join(EVENT_TYPES)}")
    return types


def _feed_cursor(call: Call, text: str) -> FeedCursor:
    """Return the position in the feed. Raises Refusal for an id that is not of this feed."""
    cursor = parse_feed_cursor(call.context.cursors.read(text, call.caller.tenant, "feed"))
    if cursor is None:
        raise Refusal(422, "invalid_cursor", "this is not the id of an event of this feed")
    return cursor


# -- messages -------------------------------------------------------------------------------------------


async def job_messages(call: Call, job_id: str, after: int, types: Collection[str]) -> Messages:
    """Yield the events of a job after this number, until it is over."""
    subscribers, tenant, heartbeat = call.context.subscribers, call.caller.tenant, HeartbeatTimer()
    with subscribers.listen(tenant, job_id) as subscriber:
        while not subscribers.is_ending:
            subscriber.wakeup.clear()
            events, is_last = await subscribers.events_of(tenant, job_id, after)
            after = events[-1]["seq"] if events else after
            messages = [
                StreamMessage(str(event["seq"]), event) for event in events if _is_wanted(event, types)
            ]
            yield heartbeat.or_heartbeat(messages, str(after))
            if is_last:
                yield [StreamMessage(str(after), end="job_over")]
                return
            if not events:
                await heartbeat.wait(subscriber)
    yield [StreamMessage(str(after), end="shutdown")]


async def all_messages(call: Call, cursor: FeedCursor | None, types: Collection[str]) -> Messages:
    """Yield the events of all jobs after this cursor, or from now on."""
    subscribers, tenant, heartbeat = call.context.subscribers, call.caller.tenant, HeartbeatTimer()
    with subscribers.listen(tenant) as subscriber:
        now = await subscribers.now(tenant)
        cursor = cursor or now
        yield [StreamMessage(_event_id(call, cursor))]
        while not subscribers.is_ending:
            subscriber.wakeup.clear()
            events, reached = await subscribers.next_of(tenant, cursor)
            messages = [
                StreamMessage(_event_id(call, position), event)
                for position, event in events
                if _is_wanted(event, types)
            ]
            yield heartbeat.or_heartbeat(messages, _event_id(call, reached))
            if reached == cursor:
                await heartbeat.wait(subscriber)
            cursor = reached
    yield [StreamMessage(_event_id(call, cursor), end="shutdown")]


def _is_wanted(event: View, types: Collection[str]) -> bool:
    return not types or event["event_type"] in types


def _event_id(call: Call, cursor: FeedCursor) -> str:
    """Return the event id of a cursor. A cursor with too many open transactions is replaced by an earlier one."""
    bound = (call.caller.tenant, "feed")
    name = call.context.cursors.make(str(cursor), *bound)
    return name if len(name) <= MAX_CURSOR else call.context.cursors.make(str(cursor.earlier), *bound)


class HeartbeatTimer:
    """Decides when a heartbeat is due. Events that the client filters out do not count as activity."""

    def __init__(self) -> None:
        self._until = _now() + HEARTBEAT_SECONDS

    def or_heartbeat(self, messages: list[StreamMessage], cursor: str) -> list[StreamMessage]:
        """Return these messages; without any, a heartbeat if it is due."""
        if not messages and _now() < self._until:
            return []
        self._until = _now() + HEARTBEAT_SECONDS
        return messages or [StreamMessage(cursor)]

    async def wait(self, subscriber: Subscriber) -> None:
        """Wait until there may be an event, or a heartbeat is due."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(subscriber.wakeup.wait(), max(0.0, self._until - _now()))


def _now() -> float:
    return asyncio.get_running_loop().time()


# -- responses ------------------------------------------------------------------------------------------


class EventStream(Response):
    """Messages as server-sent events."""

    def __init__(self, call: Call, messages: Messages) -> None:
        super().__init__(media_type="text/event-stream", headers=HEADERS)
        del self.headers["content-length"]
        self.call = call
        self.messages = messages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

        async def send_text(text: bytes) -> None:
            await send({"type": "http.response.body", "body": text, "more_body": True})

        if scope["method"] != "HEAD":
            await send_text(RETRY)
            writer = StreamWriter(self.call, self.messages, lambda message: send_text(_as_text(message)))
            if not await writer.run(wait_for_disconnect(receive)):
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _as_text(message: StreamMessage) -> bytes:
    if message.end:
        return b"event: end\nid: %b\ndata: %b\n\n" % (
            message.cursor.encode(),
            orjson.dumps({"reason": message.end}),
        )
    if message.event is None:
        return (
            b": ping\nid: %b\n\n" % message.cursor.encode()
        )  # the client stores the id and dispatches no event
    return b"event: %b\nid: %b\ndata: %b\n\n" % (
        message.event["event_type"].encode(),
        message.cursor.encode(),
        _as_json(message.event),
    )


def _as_json(event: View) -> bytes:
    return orjson.dumps(event, option=orjson.OPT_UTC_Z)


class EventSocket(Response):
    """Messages over a WebSocket; its protocol has its own heartbeat."""

    def __init__(self, call: Call, messages: Messages, protocol: str | None) -> None:
        super().__init__()
        self.call = call
        self.messages = messages
        self.protocol = protocol

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # the connect message
        await send({"type": "websocket.accept", "subprotocol": self.protocol, "headers": []})

        async def send_message(message: StreamMessage) -> None:
            if message.end:
                code = CLOSE_CODES.get(message.end, 1011)
                await send({"type": "websocket.close", "code": code, "reason": message.end})
            elif message.event is not None:
                await send({"type": "websocket.send", "text": _as_json(message.event).decode()})

        await StreamWriter(self.call, self.messages, send_message).run(
            wait_for_disconnect(receive, "websocket.disconnect")
        )


class StreamWriter:
    """Sends messages to one client, as long as it is connected and its key is valid."""

    def __init__(self, call: Call, messages: Messages, send: SendMessage) -> None:
        self._call = call
        self._messages = messages
        self._send = send
        self._cursor = ""

    async def run(self, disconnected: Awaitable[None]) -> bool:
        """Send all messages. Returns whether the client is still connected at the end."""
        leaving, sending = asyncio.ensure_future(disconnected), asyncio.create_task(self._send_all())
        key_ended = asyncio.create_task(self._wait_for_key_end())
        tasks = (leaving, sending, key_ended)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                await sending
            elif key_ended.done():
                await self._end(sending)
            return not leaving.done()
        except TimeoutError:
            log.info("a stream was dropped: the client reads too slowly")
            return False
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._messages.aclose()

    async def _wait_for_key_end(self) -> None:
        """Return when the key of the caller is no longer valid. Database errors are ignored: no events come then."""
        while True:
            await asyncio.sleep(KEY_SECONDS)
            with contextlib.suppress(psycopg.Error, DatabaseUnavailable):
                try:
                    caller = await self._call.context.keys.caller(self._call.headers, self._call.address)
                except Refusal:
                    return
                if caller != self._call.caller:
                    return

    async def _end(self, sending: asyncio.Task[None]) -> None:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await self._send_one(StreamMessage(self._cursor, end="unauthenticated"))

    async def _send_all(self) -> None:
        """Send all messages. Raises TimeoutError when the client reads too slowly.

        Any other error ends the stream: a client that reconnects resumes after the last event.
        """
        try:
            async for messages in self._messages:
                for message in messages:
                    await self._send_one(message)
                    if message.end:
                        return
        except TimeoutError:
            raise
        except Exception:
            log.exception("a stream failed")
            await self._send_one(StreamMessage(self._cursor, end="unavailable"))

    async def _send_one(self, message: StreamMessage) -> None:
        async with asyncio.timeout(SLOW_SECONDS):
            await self._send(message)
        self._cursor = message.cursor  # only after it was sent: the client resumes from here
