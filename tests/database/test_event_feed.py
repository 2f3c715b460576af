"""Following the events of all jobs: none is passed over, however late it commits, and none comes twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.support.harness import Harness

from cograil.http.server.problem_details import Refusal
from cograil.http.streams import event_subscribers as feed_module
from cograil.http.streams.event_subscribers import EventSubscribers
from cograil.store.database import Database
from cograil.store.event_feed import FeedCursor, feed_events, feed_now, parse_feed_cursor
from cograil.verbs.cancel import cancel

WORK = "workflow_id: w\nnodes: {a: {handler: echo}}"
Seen = list[tuple[str, int]]


async def now(harness: Harness) -> FeedCursor:
    async with harness.db.transaction("test") as tx:
        return FeedCursor(await feed_now(tx))


async def follow(harness: Harness, place: FeedCursor, page: int = 1000) -> tuple[Seen, FeedCursor]:
    """All that is new after this place, and the place after it."""
    seen: Seen = []
    place = place.within((await now(harness)).since)
    while True:
        async with harness.db.transaction("test") as tx:
            events = await feed_events(tx, "default", place, page)
        seen += [(event["job_id"], event["seq"]) for event in events]
        if len(events) < page:
            return seen, FeedCursor(place.until)
        place = place.at(events[-1])


async def all_events(harness: Harness) -> Seen:
    return [(str(job), seq) for job, seq in await harness.rows("select job_id, seq from cograil.events")]


async def test_an_event_that_commits_late_is_not_passed_over(harness: Harness) -> None:
    """The earlier transaction, with the lesser number and time, commits after the later one was shown."""
    early, late = await harness.submit(WORK), await harness.submit(WORK)
    begun = await now(harness)
    async with harness.db.transaction("test") as slow:
        await cancel(slow, harness.engine_context, early)
        await harness.cancel(late)
        seen, place = await follow(harness, begun)
        assert {job for job, _ in seen} == {late}
    seen, place = await follow(harness, place)
    assert {job for job, _ in seen} == {early}
    assert (await follow(harness, place))[0] == []


async def test_an_event_that_commits_late_under_a_savepoint_is_not_passed_over(harness: Harness) -> None:
    """Inside a savepoint a row carries the number of that, which no snapshot names."""
    job, other = await harness.submit(WORK), await harness.submit(WORK)
    begun = await now(harness)
    async with harness.db.transaction("test") as slow:
        async with slow.connection.transaction():
            await cancel(slow, harness.engine_context, job)
        await harness.cancel(other)
        _, place = await follow(harness, begun)
    assert {job_id for job_id, _ in (await follow(harness, place))[0]} == {job}


async def test_pages_join_without_gaps_or_repeats(harness: Harness) -> None:
    begun = await now(harness)
    for _ in range(7):
        await harness.submit(WORK)
    seen, _ = await follow(harness, begun, page=3)
    assert seen == sorted(await all_events(harness))


async def test_every_event_comes_once_and_in_order_while_many_write(harness: Harness) -> None:
    place, seen = await now(harness), list[tuple[str, int]]()
    async with harness.running():
        jobs = [asyncio.create_task(harness.submit(WORK)) for _ in range(40)]
        ended = asyncio.gather(*[harness.ended(await job) for job in jobs])
        while not ended.done():
            page_events, place = await follow(harness, place, page=10)
            seen += page_events
        await ended
        page_events, _ = await follow(harness, place)
    seen += page_events
    assert sorted(seen) == sorted(await all_events(harness))
    for job in {job for job, _ in seen}:
        numbers = [seq for event_job, seq in seen if event_job == job]
        assert numbers == list(range(1, len(numbers) + 1))


async def test_a_place_is_written_and_read_again(harness: Harness) -> None:
    await harness.submit(WORK)
    place = (await now(harness)).within("9:12:9,10")
    at = place.at({"job_id": "01a1e50c-7310-7248-8dd1-729d3582eaf2", "seq": 3})
    assert parse_feed_cursor(str(at)) == at
    assert parse_feed_cursor(str(place.earlier)) == FeedCursor(f"{place.low}:{place.low}:")
    assert [parse_feed_cursor(text) for text in ("", "1:2", "1:2: x", "a:2:", "1:2: 3 x 4")] == [None] * 5


async def test_the_feed_reads_by_its_own_index(harness: Harness) -> None:
    """Not along the jobs, which may be a million."""
    await harness.submit(WORK)
    at = await now(harness)
    rows = await harness.rows(
        "explain select job_id from cograil.events where tenant_id = 'default' and xid >= %(low)s",
        low=at.low,
    )
    assert any("xid" in line and "Bitmap Index Scan" in line for (line,) in rows), rows


# -- those who listen -----------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def live(harness: Harness, dsn: str) -> AsyncIterator[EventSubscribers]:
    """The streams of a server of their own."""
    async with Database(dsn, harness.settings.database, role="cograil_server") as db:
        streams = EventSubscribers(db)
        yield streams
        await streams.stop()


async def take(live: EventSubscribers, place: FeedCursor, count: int) -> Seen:
    """The next `count` events from here on, as a stream takes them."""
    seen: Seen = []
    with live.listen("default") as ear:
        while len(seen) < count:
            ear.wakeup.clear()
            events, reached = await live.next_of("default", place)
            seen += [(event["job_id"], event["seq"]) for _, event in events]
            if reached == place:
                await ear.wakeup.wait()
            place = reached
    return seen


async def test_many_listeners_hear_the_same_from_one_look(harness: Harness, live: EventSubscribers) -> None:
    with live.listen("default"):
        begun = await live.now("default")
        ears = [asyncio.create_task(take(live, begun, 4)) for _ in range(5)]
        await asyncio.sleep(0)
        job = await harness.submit(WORK)
        async with asyncio.timeout(10):
            assert await asyncio.gather(*ears) == [[(job, seq) for seq in (1, 2, 3, 4)]] * 5


async def test_a_new_subscriber_does_not_move_the_others_on(harness: Harness, live: EventSubscribers) -> None:
    """They would not be told of what lies between."""
    await live.now("default")
    before = live._feeds["default"].snapshot
    await harness.submit(WORK)
    assert (await live.now("default")).since != before
    assert live._feeds["default"].snapshot == before


async def test_a_subscriber_that_is_far_behind_reads_for_itself(
    harness: Harness, live: EventSubscribers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than is kept for all, in pages that are smaller than what came in one stretch."""
    monkeypatch.setattr(feed_module, "MAX_STRETCH", 2)
    monkeypatch.setattr(feed_module, "PAGE", 3)
    begun = await now(harness)
    for _ in range(5):
        await harness.submit(WORK)
    await live.now("default")
    async with asyncio.timeout(10):
        assert await take(live, begun, 20) == sorted(await all_events(harness))


async def test_the_feed_sends_no_queries_without_subscribers(
    harness: Harness, live: EventSubscribers
) -> None:
    """No task, no session that listens, and none again when the last one has gone."""
    assert not live._tasks
    with live.listen("default"):
        assert len(live._tasks) == 1
    async with asyncio.timeout(10):
        await asyncio.gather(*live._tasks)
    assert not live._tasks


async def test_a_database_that_is_away_is_no_end(
    harness: Harness, live: EventSubscribers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "POLL_SECONDS", 0.05)
    begun = await live.now("default")
    with live.listen("default"):
        ear = asyncio.create_task(take(live, begun, 4))
        await asyncio.sleep(0)
        await harness.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        with contextlib.suppress(Exception):
            await harness.rows("select 1")
        job = await harness.submit(WORK)
        async with asyncio.timeout(20):
            assert {job_id for job_id, _ in await ear} == {job}


async def test_there_is_a_bound_to_those_who_listen(
    live: EventSubscribers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "MAX_STREAMS", 1)
    with live.listen("default"), pytest.raises(Refusal, match="too_many_streams"):
        live.check_capacity()
    live.end()
    with pytest.raises(Refusal, match="503"):
        live.check_capacity()
