"""Who listens in this process, and the one task that looks for all of them.

Nothing is kept in memory that a stream could outgrow: a stream is told that there is something, and reads
it from the database itself, from its own place on. So a slow one is behind and nothing else, and a place
is all that it needs to go on later, here or at another server.

- Of one job: events are numbered without gaps and read by their numbers.
- Of all jobs there is no such number, for transactions commit in another order than they begin. A place is
  a snapshot, and what is new is what that snapshot did not see: nothing is passed over, however late it
  commits. The numbers of one job still come in their order, for whoever wrote the later one had waited for
  the earlier one to be committed. docs/explanation/decisions/0014-live-feed.md tells more.

While nobody listens, nothing is asked. Else a notice of anything that moved is a hint to look, and there is
a look every second in case none came.
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

LOOK_SECONDS = 1.0
PAUSE_SECONDS = 0.05  # between two looks, however many hints there are
LEISURE = 4  # a look that took long is followed by a pause of so many times its length
PAGE = 500
MAX_STRETCHES, MAX_STRETCH = 100, 100
MAX_STREAMS = 1000


@dataclass(eq=False, slots=True)
class Subscriber:
    """One stream. `wakeup` rings when there may be something for it."""

    tenant: str
    job_id: str | None
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Feed:
    """All jobs of one tenant: how far this process has looked, and the last stretches, read once for all."""

    tenant: str
    place: str = ""
    stretches: OrderedDict[str, tuple[str, list[View]]] = field(default_factory=OrderedDict)

    def keep(self, since: str, until: str, events: list[View]) -> None:
        """What lies between these snapshots, for whoever is at the first one."""
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
        self._hint = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_ending = False

    @contextlib.contextmanager
    def listen(self, tenant: str, job_id: str | None = None) -> Iterator[Subscriber]:
        """Be told of one job, or of all. Raises Refusal when too many listen, or we are about to stop."""
        self.refuse_more()
        subscriber = Subscriber(tenant, job_id)
        self._subscribers.add(subscriber)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_while_heard(), name="live")
            self._tasks.add(self._looking)
            self._looking.add_done_callback(self._tasks.discard)
        try:
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)
            self._hint.set()

    def refuse_more(self) -> None:
        """Raises Refusal when too many listen, or we are about to stop."""
        if self.is_ending or len(self._subscribers) >= MAX_STREAMS:
            raise Refusal(503, "too_many_streams", "no more streams here now", headers={"Retry-After": "5"})

    def end(self) -> None:
        """Every stream says good-bye, and no new one begins."""
        self.is_ending = True
        self._hint.set()
        for subscriber in self._subscribers:
            subscriber.wakeup.set()

    async def stop(self) -> None:
        """Look no more."""
        self.end()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- reading --------------------------------------------------------------------------------------

    async def events_of(self, tenant: str, job_id: str, after: int) -> tuple[list[View], bool]:
        """The next events of a job, and whether those are all that it will ever have."""
        async with self._db.transaction("watch", tenant=tenant) as tx:
            last, is_over = (await seqs_of_jobs(tx, tenant, [job_id])).get(job_id, (0, True))
            events = await job_queries.list_events(tx, job_id, tenant=tenant, after=after, limit=PAGE)
        reached = events[-1]["seq"] if events else after
        return events, is_over and reached >= last

    async def now(self, tenant: str) -> FeedCursor:
        """Where the feed of this tenant is now; whatever commits from here on is new."""
        async with self._db.transaction("watch", tenant=tenant) as tx:
            snapshot = await feed_now(tx)
        feed = self._feeds.setdefault(tenant, Feed(tenant))
        feed.place = feed.place or snapshot  # only a look moves it on, for a look tells those who listen
        return FeedCursor(snapshot)

    async def next_of(
        self, tenant: str, place: FeedCursor
    ) -> tuple[list[tuple[FeedCursor, View]], FeedCursor]:
        """The next events after this place, each with its own, and the place after them. The same: none."""
        feed = self._feeds.setdefault(tenant, Feed(tenant))
        known = None if place.until else feed.stretches.get(place.since)
        if known is not None:
            until, events = known
            way = place.within(until)
            return [(way.at(event), event) for event in events], FeedCursor(until)
        if not place.until and not place.is_before(feed.place):
            return [], place
        return await self._read(tenant, place.within(feed.place))

    async def _read(self, tenant: str, place: FeedCursor) -> tuple[list[tuple[FeedCursor, View]], FeedCursor]:
        """A page of them; at its end all of a tenant's streams are at a place that is known here."""
        async with self._db.transaction("watch", tenant=tenant) as tx:
            events = await feed_events(tx, tenant, place, PAGE)
        found = [(place.at(event), event) for event in events]
        return found, found[-1][0] if len(found) == PAGE else FeedCursor(place.until)

    # -- looking --------------------------------------------------------------------------------------

    async def _look_while_heard(self) -> None:
        """Look as long as somebody listens."""
        listener = Listener(self._db.direct, [DONE_CHANNEL, TASKS_CHANNEL, NEWS_CHANNEL], self._hear)
        try:
            await listener.start()
            while self._subscribers and not self.is_ending:
                await asyncio.sleep(await self._timed_look())
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._hint.wait(), LOOK_SECONDS)
                self._hint.clear()
            self._forget()
        finally:
            await listener.stop()

    def _forget(self) -> None:
        """Whoever comes next begins anew; without an await, so that nobody comes in between."""
        self._looking = None
        self._feeds.clear()
        self._seqs.clear()

    def _hear(self, channel: str, payload: str) -> None:
        self._hint.set()

    async def _timed_look(self) -> float:
        """Look, whatever comes of it. How long to rest."""
        clock = asyncio.get_running_loop().time
        begun = clock()
        try:
            await self._look()
        except Exception as error:  # a database that is away comes back, and nothing is missed by that
            log.warning("cannot look for events", error=repr(error))
            return LOOK_SECONDS
        return max(PAUSE_SECONDS, LEISURE * (clock() - begun))

    async def _look(self) -> None:
        seqs: dict[str, int] = {}
        for tenant in {subscriber.tenant for subscriber in self._subscribers}:
            subscribers = [subscriber for subscriber in self._subscribers if subscriber.tenant == tenant]
            if any(subscriber.job_id is None for subscriber in subscribers):
                await self._look_at_all(tenant, subscribers)
            if any(subscriber.job_id is not None for subscriber in subscribers):
                seqs |= await self._look_at_jobs(tenant, subscribers)
        self._seqs = seqs

    async def _look_at_all(self, tenant: str, subscribers: list[Subscriber]) -> None:
        feed = self._feeds.setdefault(tenant, Feed(tenant))
        async with self._db.transaction("watch", tenant=tenant) as tx:
            until = await feed_now(tx)
            if until == feed.place:
                return
            events = None
            if feed.place:
                events = await feed_events(tx, tenant, FeedCursor(feed.place, until), MAX_STRETCH)
        if events is not None and len(events) < MAX_STRETCH:  # else each reads for itself, by pages
            feed.keep(feed.place, until, events)
        feed.place = until
        if events or events is None:
            _ring(subscriber for subscriber in subscribers if subscriber.job_id is None)

    async def _look_at_jobs(self, tenant: str, subscribers: list[Subscriber]) -> dict[str, int]:
        jobs = {subscriber.job_id for subscriber in subscribers if subscriber.job_id is not None}
        async with self._db.transaction("watch", tenant=tenant) as tx:
            found = await seqs_of_jobs(tx, tenant, jobs)
        moved = {job for job in jobs if job not in found or found[job][0] != self._seqs.get(job)}
        _ring(subscriber for subscriber in subscribers if subscriber.job_id in moved)
        return {job: seq for job, (seq, _) in found.items()}


def _ring(subscribers: Iterator[Subscriber]) -> None:
    for subscriber in subscribers:
        subscriber.wakeup.set()
