"""How much a relay takes on for each origin."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from cograil.delivery import origin_limits as module
from cograil.delivery.origin_limits import AHEAD, MAX_HELD, UNPROVEN, OriginLimits


def proven(concurrency: int, per_origin: int, *origins: str) -> OriginLimits:
    """OriginLimits to origins that have taken something."""
    lanes = OriginLimits(concurrency, per_origin)
    for origin in origins:
        lanes.note(origin, is_delivered=True)
    return lanes


def free(lanes: OriginLimits, troubled: Mapping[str, int] | None = None) -> dict[str, int]:
    return {lane.origin: lane.free for lane in lanes.room(troubled or {}).lanes}


async def most_at_once(lanes: OriginLimits, *origins: str) -> int:
    """How many of these were under way at the same time."""
    under_way, most = 0, 0

    async def go(origin: str) -> None:
        nonlocal under_way, most
        async with lanes.slot(origin) as has_slot:
            assert has_slot
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1

    await asyncio.gather(*[go(origin) for origin in origins])
    return most


async def test_deliveries_are_bounded_per_origin_and_in_all() -> None:
    assert await most_at_once(proven(64, 3, "a"), *["a"] * 20) == 3
    assert await most_at_once(proven(64, 3, "a", "b"), *["a"] * 20, *["b"] * 20) == 6
    assert await most_at_once(proven(5, 3, "a", "b"), *["a"] * 20, *["b"] * 20) == 5


async def test_half_of_the_places_is_for_those_that_have_taken_something() -> None:
    assert await most_at_once(OriginLimits(8, 3), *[f"new {number}" for number in range(20)]) == 4


def test_an_origin_that_accepts_gets_more_and_one_that_does_not_gets_the_least() -> None:
    lanes = OriginLimits(64, 2)
    assert free(lanes) == {}
    for _ in range(100):
        lanes.note("a", is_delivered=True)
    assert free(lanes) == {"a": 2 * AHEAD}
    lanes.add("t", "a")
    lanes.add("t", "b")
    assert free(lanes) == {"a": 2 * AHEAD - 1, "b": UNPROVEN - 1}
    assert free(lanes, {"a": 0, "c": 1}) == {"a": 0, "b": UNPROVEN - 1, "c": 1}
    lanes.note("a", is_delivered=False)
    assert free(lanes)["a"] == UNPROVEN - 1
    lanes.remove("t", "a")
    lanes.remove("t", "b")
    assert free(lanes) == {}


def test_no_more_is_claimed_than_can_be_held() -> None:
    lanes = OriginLimits(2, 2)
    for number in range(2 * MAX_HELD):
        lanes.add("t", f"origin {number}")
    assert lanes.capacity() == lanes.room({}).limit == 0
    lanes.remove("t", "origin 0")
    assert lanes.capacity() == lanes.room({}).limit == 1


def test_however_much_one_tenant_has_there_is_room_for_another() -> None:
    lanes = OriginLimits(16, 4)
    for number in range(1000):
        tenants = lanes.room({}).tenants
        if tenants and not tenants[0].fresh:
            break
        lanes.add("greedy", f"silent {number}")
    assert 0 < lanes.room({}).fresh <= lanes.room({}).most_fresh, "others may try their receivers"
    for origin in ("silent 0", "silent 1"):
        lanes.note(origin, is_delivered=True)
    while lanes.room({}).tenants[0].room:
        lanes.add("greedy", "silent 0")
    assert lanes.room({}).room > 0
    assert lanes.capacity() >= MAX_HELD * 16 // 2


async def test_an_origin_that_does_not_answer_soon_gives_its_place_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And what waits behind it goes back, so that nothing is held for it."""
    monkeypatch.setattr(module, "SLOW_SECONDS", 0.05)
    lanes, end = proven(2, 1, "a", "b"), asyncio.Event()
    turns: list[tuple[str, bool]] = []

    async def go(origin: str) -> None:
        lanes.add("t", origin)
        async with lanes.slot(origin) as has_slot:
            turns.append((origin, has_slot))
            if has_slot:
                await end.wait()
        lanes.remove("t", origin)

    stuck = [asyncio.create_task(go(origin)) for origin in ("a", "b", "a", "b")]
    async with asyncio.timeout(5):
        _, pending = await asyncio.wait(stuck, return_when=asyncio.ALL_COMPLETED, timeout=0.5)
        assert sorted(turns) == [("a", False), ("a", True), ("b", False), ("b", True)]
        assert len(pending) == 2
        lanes.note("c", is_delivered=True)
        assert await most_at_once(lanes, "c", "d") == 2, "though two are still under way"
    assert free(lanes)["a"] == UNPROVEN - 1
    end.set()
    await asyncio.gather(*stuck)
    assert free(lanes) == {"c": 2}
