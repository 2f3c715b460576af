"""Live events: server-sent events of one job or of all, and a WebSocket for one job.

A stream begins with what is past, if asked for, and goes on with what is committed, each event once and those
of one job in their order. Whoever is cut off comes again with the id of the last event and misses nothing.
Every 15 seconds something is said, so that both sides notice when the other has gone; a caller that takes
nothing for half a minute is dropped, and one whose key has ended too, however much there is to tell.
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
KEY_SECONDS = 1.0  # how soon a stream notices that its key ended, once the door knows it


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that is told: an event, the end of the stream, or that we are still there."""

    place: str
    event: View | None = None
    end: str = ""


Notes = AsyncGenerator[Sequence[Note], None]
Say = Callable[[Note], Awaitable[None]]


class JobFeed(Query):
    """After which number, and which types of event, separated by commas."""

    after: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    types: Annotated[str, Field(max_length=1000)] | None = None


class WholeFeed(Query):
    """After which event, by its id, and which types of event, separated by commas."""

    after: Annotated[str, Field(max_length=2 * MAX_CURSOR)] | None = None
    types: Annotated[str, Field(max_length=1000)] | None = None


@live_events.get(
    "/jobs/{job_id}/events/stream",
    "viewer",
    query=JobFeed,
    is_stream=True,
    responses={200: "events in their order, as they are committed", 204: "the job is over and all was told"},
    headers=("Last-Event-ID",),
)
async def stream_job(call: Call) -> Response:
    """Follow the events of a job, as server-sent events.

    The id of an event is its number; `Last-Event-ID` (or `after`) resumes after it. When the job is over,
    the stream ends with the event `end`.
    """
    asked: JobFeed = call.query
    job_id = await _known_job(call)
    given = call.headers.get("last-event-id")
    after = asked.after or 0 if given is None else _number(given)
    types = _types(asked.types)
    if given is not None and await _is_told(call, job_id, after):
        return Response(status_code=204)  # an EventSource comes again until it hears this
    return EventStream(call, job_notes(call, job_id, after, types))


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
    asked: WholeFeed = call.query
    call.context.subscribers.refuse_more()
    given = call.headers.get("last-event-id", asked.after)
    types = _types(asked.types)
    place = None if given is None else _place(call, given)
    return EventStream(call, all_notes(call, place, types))


@sockets.socket("/ws/jobs/{job_id}", "viewer", query=JobFeed)
@live_events.socket("/ws/jobs/{job_id}", "viewer", query=JobFeed)
async def open_socket(call: Call) -> Response:
    """Follow the events of a job over a WebSocket: one event object in each message."""
    asked: JobFeed = call.query
    job_id = await _known_job(call)
    offered = [name.strip() for name in ",".join(call.headers.getlist(PROTOCOLS)).split(",")]
    chosen = PLAIN_PROTOCOL if PLAIN_PROTOCOL in offered else None  # one of the others may be a key
    return EventSocket(call, job_notes(call, job_id, asked.after or 0, _types(asked.types)), chosen)


# -- what was asked for ---------------------------------------------------------------------------------


async def _known_job(call: Call) -> str:
    call.context.subscribers.refuse_more()
    async with call.transaction("show") as tx:
        job, _ = await find_job(call, tx)
    job_id: str = job["job_id"]
    return job_id


async def _is_told(call: Call, job_id: str, after: int) -> bool:
    events, is_last = await call.context.subscribers.events_of(call.caller.tenant, job_id, after)
    return is_last and not events


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise Refusal(422, "invalid_cursor", "the last event of a job is named by its number")
    return int(text)


def _types(text: str | None) -> frozenset[str]:
    """The types that are wanted; none named means all. Raises Refusal for one that does not exist."""
    types = frozenset() if text is None else frozenset(text.split(","))
    if not types <= set(EVENT_TYPES):
        raise Refusal(422, "invalid_parameter", f"types are some of {', '.join(EVENT_TYPES)}")
    return types


def _place(call: Call, text: str) -> FeedCursor:
    """Where the feed goes on. Raises Refusal for what is no place in it."""
    place = parse_feed_cursor(call.context.cursors.read(text, call.caller.tenant, "feed"))
    if place is None:
        raise Refusal(422, "invalid_cursor", "this is not the id of an event of this feed")
    return place


# -- what is told ---------------------------------------------------------------------------------------


async def job_notes(call: Call, job_id: str, after: int, types: Collection[str]) -> Notes:
    """The events of a job after this number, until it is over."""
    streams, tenant, silence = call.context.subscribers, call.caller.tenant, Silence()
    with streams.listen(tenant, job_id) as subscriber:
        while not streams.is_ending:
            subscriber.wakeup.clear()
            events, is_last = await streams.events_of(tenant, job_id, after)
            after = events[-1]["seq"] if events else after
            wanted = [Note(str(event["seq"]), event) for event in events if _is_wanted(event, types)]
            yield silence.broken_by(wanted, str(after))
            if is_last:
                yield [Note(str(after), end="job_over")]
                return
            if not events:
                await silence.last(subscriber)
    yield [Note(str(after), end="shutdown")]


async def all_notes(call: Call, place: FeedCursor | None, types: Collection[str]) -> Notes:
    """The events of all jobs after this place, or from now on."""
    streams, tenant, silence = call.context.subscribers, call.caller.tenant, Silence()
    with streams.listen(tenant) as subscriber:
        now = await streams.now(tenant)
        place = place or now
        yield [Note(_named(call, place))]
        while not streams.is_ending:
            subscriber.wakeup.clear()
            found, reached = await streams.next_of(tenant, place)
            wanted = [Note(_named(call, at), event) for at, event in found if _is_wanted(event, types)]
            yield silence.broken_by(wanted, _named(call, reached))
            if reached == place:
                await silence.last(subscriber)
            place = reached
    yield [Note(_named(call, place), end="shutdown")]


def _is_wanted(event: View, types: Collection[str]) -> bool:
    return not types or event["event_type"] in types


def _named(call: Call, place: FeedCursor) -> str:
    """The id of a place. It names what was in progress; where that is too much, a place a little earlier."""
    bound = (call.caller.tenant, "feed")
    name = call.context.cursors.make(str(place), *bound)
    return name if len(name) <= MAX_CURSOR else call.context.cursors.make(str(place.earlier), *bound)


class Silence:
    """How long a stream has said nothing. Events that its caller does not want are no sign of life."""

    def __init__(self) -> None:
        self._until = _now() + HEARTBEAT_SECONDS

    def broken_by(self, notes: list[Note], place: str) -> list[Note]:
        """These; without any, where we are, if it is time to say that we are still there."""
        if not notes and _now() < self._until:
            return []
        self._until = _now() + HEARTBEAT_SECONDS
        return notes or [Note(place)]

    async def last(self, subscriber: Subscriber) -> None:
        """Wait until there may be something to tell, or it is time to say anything."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(subscriber.wakeup.wait(), max(0.0, self._until - _now()))


def _now() -> float:
    return asyncio.get_running_loop().time()


# -- how it is told -------------------------------------------------------------------------------------


class EventStream(Response):
    """Notes as server-sent events."""

    def __init__(self, call: Call, notes: Notes) -> None:
        super().__init__(media_type="text/event-stream", headers=HEADERS)
        del self.headers["content-length"]
        self.call = call
        self.notes = notes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

        async def say(text: bytes) -> None:
            await send({"type": "http.response.body", "body": text, "more_body": True})

        if scope["method"] != "HEAD":
            await say(RETRY)
            teller = Teller(self.call, self.notes, lambda note: say(_as_text(note)))
            if not await teller.tell(wait_for_disconnect(receive)):
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _as_text(note: Note) -> bytes:
    if note.end:
        return b"event: end\nid: %b\ndata: %b\n\n" % (note.place.encode(), orjson.dumps({"reason": note.end}))
    if note.event is None:
        return b": ping\nid: %b\n\n" % note.place.encode()  # an id alone is kept and no event
    return b"event: %b\nid: %b\ndata: %b\n\n" % (
        note.event["event_type"].encode(),
        note.place.encode(),
        _as_json(note.event),
    )


def _as_json(event: View) -> bytes:
    return orjson.dumps(event, option=orjson.OPT_UTC_Z)


class EventSocket(Response):
    """Notes as messages of a WebSocket; that we are still there is said by the protocol itself."""

    def __init__(self, call: Call, notes: Notes, protocol: str | None) -> None:
        super().__init__()
        self.call = call
        self.notes = notes
        self.protocol = protocol

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # that somebody wants to connect
        await send({"type": "websocket.accept", "subprotocol": self.protocol, "headers": []})

        async def say(note: Note) -> None:
            if note.end:
                code = CLOSE_CODES.get(note.end, 1011)
                await send({"type": "websocket.close", "code": code, "reason": note.end})
            elif note.event is not None:
                await send({"type": "websocket.send", "text": _as_json(note.event).decode()})

        await Teller(self.call, self.notes, say).tell(wait_for_disconnect(receive, "websocket.disconnect"))


class Teller:
    """Tells one caller, as long as it is there and its key is good."""

    def __init__(self, call: Call, notes: Notes, say: Say) -> None:
        self._call = call
        self._notes = notes
        self._say = say
        self._place = ""

    async def tell(self, gone: Awaitable[None]) -> bool:
        """Say all of it. Whether the last word was taken."""
        leaving, saying = asyncio.ensure_future(gone), asyncio.create_task(self._say_all())
        shutting = asyncio.create_task(self._until_unknown())
        tasks = (leaving, saying, shutting)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if saying.done():
                await saying
            elif shutting.done():
                await self._end(saying)
            return not leaving.done()
        except TimeoutError:
            log.info("a stream was dropped, for its reader is too slow")
            return False
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._notes.aclose()

    async def _until_unknown(self) -> None:
        """Until the caller may not listen any more. The database may be away: then nothing is told anyway."""
        while True:
            await asyncio.sleep(KEY_SECONDS)
            with contextlib.suppress(psycopg.Error, DatabaseUnavailable):
                try:
                    caller = await self._call.context.keys.caller(self._call.headers, self._call.address)
                except Refusal:
                    return
                if caller != self._call.caller:
                    return

    async def _end(self, saying: asyncio.Task[None]) -> None:
        saying.cancel()
        await asyncio.gather(saying, return_exceptions=True)
        await self._say_one(Note(self._place, end="unauthenticated"))

    async def _say_all(self) -> None:
        """Raises TimeoutError when the caller takes too long to take it.

        What goes wrong on our side ends the stream too: whoever comes again goes on after the last event.
        """
        try:
            async for some in self._notes:
                for note in some:
                    await self._say_one(note)
                    if note.end:
                        return
        except TimeoutError:
            raise
        except Exception:
            log.exception("a stream broke off")
            await self._say_one(Note(self._place, end="unavailable"))

    async def _say_one(self, note: Note) -> None:
        async with asyncio.timeout(SLOW_SECONDS):
            await self._say(note)
        self._place = note.place  # not before: who goes on from there has heard it
