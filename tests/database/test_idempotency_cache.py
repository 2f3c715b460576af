"""Answers that age: served fresh, served stale while exactly one refreshes them, computed anew."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.harness import Harness
from tests.support.idempotency_records import (
    AAA,
    KEY,
    ONE,
    begin_turn,
    decide,
    give_back,
    give_to_job,
    load_record,
    pass_time,
    prune,
    store_answer,
)

from cograil.store import idempotency_queries as store
from cograil.verbs import idempotency
from cograil.verbs.idempotency import Attach, New, Replay, Stale, cache

CACHE = cache(60, 30, turn_seconds=10)


async def cached(harness: Harness, value: Any = 1) -> int:
    fence = await begin_turn(harness, CACHE)
    assert await store_answer(harness, fence, value)
    return fence


async def test_a_fresh_answer_is_replayed(harness: Harness) -> None:
    await cached(harness, {"n": 1})
    await pass_time(harness, 59)
    decision = await decide(harness, CACHE)
    assert isinstance(decision, Replay)
    assert decision.record.answer == {"n": 1}


async def test_a_stale_answer_is_served_and_exactly_one_refreshes_it(harness: Harness) -> None:
    first = await cached(harness, "old")
    await pass_time(harness, 61)
    decisions = await asyncio.gather(*(decide(harness, CACHE) for _ in range(10)))
    stale = [decision for decision in decisions if isinstance(decision, Stale)]
    assert [decision.record.answer for decision in stale] == ["old"] * 10
    (refresher,) = [decision for decision in stale if decision.must_refresh]
    assert refresher.fence is not None
    assert refresher.fence > first
    assert await store_answer(harness, refresher.fence, "new")
    decision = await decide(harness, CACHE)
    assert isinstance(decision, Replay)
    assert decision.record.answer == "new"


async def test_one_caller_refreshes_though_nobody_takes_the_lock(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    async def no_lock(*_: Any) -> None: ...

    monkeypatch.setattr(store, "lock_key", no_lock)
    await cached(harness)
    await pass_time(harness, 61)
    async with harness.db.transaction("decide") as tx:
        first = await idempotency.decide(tx, KEY, AAA, CACHE)
        second = asyncio.create_task(decide(harness, CACHE))
        await eventually(lambda: harness.rows("select 1 from pg_locks where not granted"))
    assert isinstance(first, Stale)
    assert first.must_refresh
    assert await second == Stale(await load_record(harness))


async def test_a_refresher_that_vanished_is_replaced_and_answers_in_vain(harness: Harness) -> None:
    await cached(harness, "old")
    await pass_time(harness, 61)
    first, during = await decide(harness, CACHE), await decide(harness, CACHE)
    assert isinstance(first, Stale)
    assert isinstance(during, Stale)
    assert first.fence is not None
    assert not during.must_refresh
    await pass_time(harness, 11)
    second = await decide(harness, CACHE)
    assert isinstance(second, Stale)
    assert second.fence is not None
    assert second.fence > first.fence
    assert not await store_answer(harness, first.fence, "late")
    assert await store_answer(harness, second.fence, "new")


@pytest.mark.parametrize("end", ["the job ends", "given back"])
async def test_a_refresh_that_came_to_nothing_leaves_the_old_answer_and_the_next_tries(
    harness: Harness, end: str
) -> None:
    await cached(harness, "old")
    await pass_time(harness, 61)
    first = await decide(harness, CACHE)
    assert isinstance(first, Stale)
    assert first.fence is not None
    if end == "given back":
        assert await give_back(harness, first.fence)
        assert not await give_back(harness, first.fence)
    else:
        job = await harness.submit(ONE)
        assert await give_to_job(harness, first.fence, job)
        await pass_time(harness, 20)
        assert await decide(harness, CACHE) == Stale(await load_record(harness)), (
            "the job is at it, whatever the turn"
        )
        await harness.cancel(job)
    second = await decide(harness, CACHE)
    assert isinstance(second, Stale)
    assert second.must_refresh
    assert second.record.answer == "old"


async def test_an_answer_too_old_to_serve_is_computed_anew_by_one(harness: Harness) -> None:
    await cached(harness)
    await pass_time(harness, 91)
    decisions = await asyncio.gather(*(decide(harness, CACHE) for _ in range(5)))
    assert sorted(type(decision).__name__ for decision in decisions) == ["Attach"] * 4 + ["New"]


async def test_a_caller_attaches_while_the_refresh_outlives_the_old_answer(harness: Harness) -> None:
    await cached(harness)
    await pass_time(harness, 85)
    assert isinstance(await decide(harness, CACHE), Stale)
    await pass_time(harness, 6)
    assert isinstance(await decide(harness, CACHE), Attach)
    assert await prune(harness) == 0, "somebody is at it"
    await pass_time(harness, 5)
    assert isinstance(await decide(harness, CACHE), New)
