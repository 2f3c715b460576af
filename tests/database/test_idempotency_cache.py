"""Answers that age: served fresh, served stale while exactly one refreshes them, computed anew."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab import Lab
from records import AAA, KEY, ONE, answer, begun, decide, existing, give, give_back, pass_time, prune

from cograil.store import idempotency_queries as store
from cograil.verbs import idempotency
from cograil.verbs.idempotency import Attach, New, Replay, Stale, cache

CACHE = cache(60, 30, turn_seconds=10)


async def cached(lab: Lab, value: Any = 1) -> int:
    fence = await begun(lab, CACHE)
    assert await answer(lab, fence, value)
    return fence


async def test_a_fresh_answer_is_replayed(lab: Lab) -> None:
    await cached(lab, {"n": 1})
    await pass_time(lab, 59)
    decision = await decide(lab, CACHE)
    assert isinstance(decision, Replay)
    assert decision.record.answer == {"n": 1}


async def test_a_stale_answer_is_served_and_exactly_one_refreshes_it(lab: Lab) -> None:
    first = await cached(lab, "old")
    await pass_time(lab, 61)
    decisions = await asyncio.gather(*(decide(lab, CACHE) for _ in range(10)))
    stale = [decision for decision in decisions if isinstance(decision, Stale)]
    assert [decision.record.answer for decision in stale] == ["old"] * 10
    (refresher,) = [decision for decision in stale if decision.must_refresh]
    assert refresher.fence is not None
    assert refresher.fence > first
    assert await answer(lab, refresher.fence, "new")
    decision = await decide(lab, CACHE)
    assert isinstance(decision, Replay)
    assert decision.record.answer == "new"


async def test_one_refreshes_though_nobody_takes_the_lock(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    async def no_lock(*_: Any) -> None: ...

    monkeypatch.setattr(store, "lock_key", no_lock)
    await cached(lab)
    await pass_time(lab, 61)
    async with lab.db.transaction("decide") as tx:
        first = await idempotency.decide(tx, KEY, AAA, CACHE)
        second = asyncio.create_task(decide(lab, CACHE))
        await eventually(lambda: lab.rows("select 1 from pg_locks where not granted"))
    assert isinstance(first, Stale)
    assert first.must_refresh
    assert await second == Stale(await existing(lab))


async def test_a_refresher_that_vanished_is_replaced_and_answers_in_vain(lab: Lab) -> None:
    await cached(lab, "old")
    await pass_time(lab, 61)
    first, during = await decide(lab, CACHE), await decide(lab, CACHE)
    assert isinstance(first, Stale)
    assert isinstance(during, Stale)
    assert first.fence is not None
    assert not during.must_refresh
    await pass_time(lab, 11)
    second = await decide(lab, CACHE)
    assert isinstance(second, Stale)
    assert second.fence is not None
    assert second.fence > first.fence
    assert not await answer(lab, first.fence, "late")
    assert await answer(lab, second.fence, "new")


@pytest.mark.parametrize("end", ["the job ends", "given back"])
async def test_a_refresh_that_came_to_nothing_leaves_the_old_answer_and_the_next_tries(
    lab: Lab, end: str
) -> None:
    await cached(lab, "old")
    await pass_time(lab, 61)
    first = await decide(lab, CACHE)
    assert isinstance(first, Stale)
    assert first.fence is not None
    if end == "given back":
        assert await give_back(lab, first.fence)
        assert not await give_back(lab, first.fence)
    else:
        job = await lab.submit(ONE)
        assert await give(lab, first.fence, job)
        await pass_time(lab, 20)
        assert await decide(lab, CACHE) == Stale(await existing(lab)), "the job is at it, whatever the turn"
        await lab.cancel(job)
    second = await decide(lab, CACHE)
    assert isinstance(second, Stale)
    assert second.must_refresh
    assert second.record.answer == "old"


async def test_an_answer_too_old_to_serve_is_computed_anew_by_one(lab: Lab) -> None:
    await cached(lab)
    await pass_time(lab, 91)
    decisions = await asyncio.gather(*(decide(lab, CACHE) for _ in range(5)))
    assert sorted(type(decision).__name__ for decision in decisions) == ["Attach"] * 4 + ["New"]


async def test_who_comes_while_the_refresh_outlives_the_old_answer_attaches(lab: Lab) -> None:
    await cached(lab)
    await pass_time(lab, 85)
    assert isinstance(await decide(lab, CACHE), Stale)
    await pass_time(lab, 6)
    assert isinstance(await decide(lab, CACHE), Attach)
    assert await prune(lab) == 0, "somebody is at it"
    await pass_time(lab, 5)
    assert isinstance(await decide(lab, CACHE), New)
