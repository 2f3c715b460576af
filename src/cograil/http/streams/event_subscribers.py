"""The event streams of one process, and the task that polls for all of them.

No events are queued in memory: a stream gets a wakeup and reads the database itself, from its own cursor. So a
slow stream only falls behind, and its cursor is all that it needs to resume, here or at another server.

- The events of one job are numbered without gaps and read by number.
- The events of all jobs have no such number: transactions commit in another order than they begin. A cursor is
  a snapshot, and an event is new if that snapshot did not see it, so no event is missed, however late it
  commits. The events of one job still arrive in order: a transaction that writes a later event waits for
  the earlier one to commit. See docs/explanation/decisions/0014-live-feed.md.

Without subscribers there are no queries. Otherwise notifications trigger a poll, and there is one every
second in case a notification is missed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

import structlog

from cograil.http.server.problem_details import Refusal
from cograil.store import job_queries
from cograil.store.database import Database
from cograil.store.event_feed import FeedCursor, feed_events, feed_now, seqs_of_jobs
from cograil.store.job_queries import View
from cograil.store.listener import Listener
from cograil.store.write_batch import DONE_CHANNEL, NEWS_CHANNEL, TASKS_CHANNEL

log = structlog.get_logger("live")

POLL_SECONDS = 1.0
PAUSE_SECONDS = 0.05  # between two polls, however many notifications arrive
PAUSE_FACTOR = 4  # a long poll is followed by a pause of this multiple of its duration
PAGE = 500
MAX_STRETCHES, MAX_STRETCH = 100, 100
MAX_STREAMS = 1000


@dataclass(eq=False, slots=True)
class Subscriber:
    """One stream. `wakeup` is set when there may be events for it."""

    tenant: str
    job_id: str | None
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Feed:
    """All jobs of one tenant: how far this process has polled, and the last stretches, read once for all streams."""

    tenant: str
    snapshot: str = ""
    stretches: OrderedDict[str, tuple[str, list[View]]] = field(default_factory=OrderedDict)

    def keep(self, since: str, until: str, events: list[View]) -> None:
        """Cache the events between these snapshots, for the streams at the first one."""
        self.stretches[since] = (until, events)
        while len(self.stretches) > MAX_STRETCHES:
            self.stretches.popitem(last=False)


class EventSubscribers:
    """The streams of one process."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._subscribers: set[Subscriber] = set()
        self._feeds: dict[str, Feed] = {}
        self._seqs: dict[str, int] = {}
        self._has_news = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_ending = False

    @contextlib.contextmanager
    def listen(self, tenant: str, job_id: str | None = None) -> Iterator[Subscriber]:
        """Subscribe to one job, or to all. Raises Refusal when there are too many streams, or the server stops."""
        self.check_capacity()
        subscriber = Subscriber(tenant, job_id)
        self._subscribers.add(subscriber)
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll_while_subscribed(), name="live")
            self._tasks.add(self._poller)
            self._poller.add_done_callback(self._tasks.discard)
        try:
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)
            self._has_news.set()

    def check_capacity(self) -> None:
        """Raise Refusal when there are too many streams, or the server stops."""
        if self.is_ending or len(self._subscribers) >= MAX_STREAMS:
            raise Refusal(
                503,
                "too_many_streams",
                "the server has too many open streams; retry later",
                headers={"Retry-After": "5"},
            )

    def end(self) -> None:
        """End all streams and accept no new ones."""
        self.is_ending = True
        self._has_news.set()
        for subscriber in self._subscribers:
            subscriber.wakeup.set()

    async def stop(self) -> None:
        """End all streams and stop polling."""
        self.end()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- reading --------------------------------------------------------------------------------------

    async def events_of(self, tenant: str, job_id: str, after: int) -> tuple[list[View], bool]:
        """Return the next events of a job, and whether they are its last ones."""
        async with self._db.transaction("watch", tenant=tenant) as tx:
            last, is_over = (await seqs_of_jobs(tx, tenant, [job_id])).get(job_id, (0, True))
            events = await job_queries.list_events(tx, job_id, tenant=tenant, after=after, limit=PAGE)
        reached = events[-1]["seq"] if events else after
        return events, is_over and reached >= last

    async def now(self, tenant: str) -> FeedCursor:
        """Return the cursor of the end of the feed of this tenant: later commits are new."""
        async with self._db.transaction("watch", tenant=tenant) as tx:
            snapshot = await feed_now(tx)
        feed = self._feeds.setdefault(tenant, Feed(tenant))
        feed.snapshot = feed.snapshot or snapshot  # only a poll advances it, because a poll wakes the streams
        return FeedCursor(snapshot)

    async def next_of(
        self, tenant: str, cursor: FeedCursor
    ) -> tuple[list[tuple[FeedCursor, View]], FeedCursor]:
        """Return the next events after this cursor, each with its own, and the cursor after them (the same if none)."""
        feed = self._feeds.setdefault(tenant, Feed(tenant))
        stretch = None if cursor.until else feed.stretches.get(cursor.since)
        if stretch is not None:
            until, events = stretch
            span = cursor.within(until)
            return [(span.at(event), event) for event in events], FeedCursor(until)
        if not cursor.until and not cursor.is_before(feed.snapshot):
            return [], cursor
        return await self._read(tenant, cursor.within(feed.snapshot))

    async def _read(
        self, tenant: str, cursor: FeedCursor
    ) -> tuple[list[tuple[FeedCursor, View]], FeedCursor]:
        """Read a page of events. After the last page a stream is at a snapshot that is cached here."""
        async with self._db.transaction("watch", tenant=tenant) as tx:
            events = await feed_events(tx, tenant, cursor, PAGE)
        events_at = [(cursor.at(event), event) for event in events]
        return events_at, events_at[-1][0] if len(events_at) == PAGE else FeedCursor(cursor.until)

    # -- polling --------------------------------------------------------------------------------------

    async def _poll_while_subscribed(self) -> None:
        """Poll as long as there are subscribers."""
        listener = Listener(self._db.direct, [DONE_CHANNEL, TASKS_CHANNEL, NEWS_CHANNEL], self._on_notify)
        try:
            await listener.start()
            while self._subscribers and not self.is_ending:
                await asyncio.sleep(await self._timed_poll())
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._has_news.wait(), POLL_SECONDS)
                self._has_news.clear()
            self._forget()
        finally:
            await listener.stop()

    def _forget(self) -> None:
        """Reset the state for the next subscriber. Has no await, so that none can arrive in between."""
        self._poller = None
        self._feeds.clear()
        self._seqs.clear()

    def _on_notify(self, channel: str, payload: str) -> None:
        self._has_news.set()

    async def _timed_poll(self) -> float:
        """Poll and log errors. Returns the seconds to pause."""
        clock = asyncio.get_running_loop().time
        started_at = clock()
        try:
            await self._poll()
        except Exception as error:  # streams miss nothing: the next poll reads the events
            log.warning("polling for events failed", error=repr(error))
            return POLL_SECONDS
        return max(PAUSE_SECONDS, PAUSE_FACTOR * (clock() - started_at))

    async def _poll(self) -> None:
        seqs: dict[str, int] = {}
        for tenant in {subscriber.tenant for subscriber in self._subscribers}:
            subscribers = [subscriber for subscriber in self._subscribers if subscriber.tenant == tenant]
            if any(subscriber.job_id is None for subscriber in subscribers):
                await self._poll_all(tenant, subscribers)
            if any(subscriber.job_id is not None for subscriber in subscribers):
                seqs |= await self._poll_jobs(tenant, subscribers)
        self._seqs = seqs

    async def _poll_all(self, tenant: str, subscribers: list[Subscriber]) -> None:
        feed = self._feeds.setdefault(tenant, Feed(tenant))
        async with self._db.transaction("watch", tenant=tenant) as tx:
            until = await feed_now(tx)
            if until == feed.snapshot:
                return
            events = None
            if feed.snapshot:
                events = await feed_events(tx, tenant, FeedCursor(feed.snapshot, until), MAX_STRETCH)
        if events is not None and len(events) < MAX_STRETCH:  # else each stream reads its own pages
            feed.keep(feed.snapshot, until, events)
        feed.snapshot = until
        if events or events is None:
            _wake(subscriber for subscriber in subscribers if subscriber.job_id is None)

    async def _poll_jobs(self, tenant: str, subscribers: list[Subscriber]) -> dict[str, int]:
        jobs = {subscriber.job_id for subscriber in subscribers if subscriber.job_id is not None}
        async with self._db.transaction("watch", tenant=tenant) as tx:
            seqs = await seqs_of_jobs(tx, tenant, jobs)
        moved = {job for job in jobs if job not in seqs or seqs[job][0] != self._seqs.get(job)}
        _wake(subscriber for subscriber in subscribers if subscriber.job_id in moved)
        return {job: seq for job, (seq, _) in seqs.items()}


def _wake(subscribers: Iterator[Subscriber]) -> None:
    for subscriber in subscribers:
        subscriber.wakeup.set()
