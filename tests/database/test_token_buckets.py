"""Token buckets: a capacity and a rate per second, by the clock of the database."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from tests.support.harness import Harness

from cograil.errors import InvalidInput
from cograil.verbs import buckets

SLOW = 0.001  # per second: next to nothing flows in during a test


async def take(
    harness: Harness, capacity: float, per_second: float, amount: float = 1, *, name: str = "n", **more: Any
) -> float:
    async with harness.db.single("bucket") as tx:
        return await buckets.take(tx, name, capacity, per_second, amount, **more)


async def pass_time(harness: Harness, seconds: float) -> None:
    await harness.rows(
        "update cograil.buckets set refilled_at = refilled_at - %(s)s * interval '1 second'", s=seconds
    )


async def test_a_new_bucket_is_full_and_an_empty_one_says_how_long_to_wait(harness: Harness) -> None:
    assert [await take(harness, 3, SLOW) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert 990 < await take(harness, 3, SLOW) <= 1000
    assert 1980 < await take(harness, 3, SLOW, 2) <= 2000


async def test_a_caller_that_waits_the_given_time_is_granted(harness: Harness) -> None:
    await take(harness, 1, SLOW)
    wait = await take(harness, 1, SLOW)
    await pass_time(harness, wait - 2)
    assert 0 < await take(harness, 1, SLOW) <= 2
    await pass_time(harness, 2)
    assert await take(harness, 1, SLOW) == 0.0


async def test_a_refusal_takes_nothing(harness: Harness) -> None:
    await take(harness, 5, SLOW, 4)
    for _ in range(3):
        assert await take(harness, 5, SLOW, 2) > 0
    assert await take(harness, 5, SLOW, 1) == 0.0


async def test_a_bucket_never_holds_more_than_its_capacity(harness: Harness) -> None:
    await take(harness, 2, SLOW)
    await pass_time(harness, 1_000_000)
    assert [await take(harness, 2, SLOW) for _ in range(2)] == [0.0, 0.0]
    assert await take(harness, 2, SLOW) > 0


async def test_refilled_tokens_are_kept_to_the_fraction(harness: Harness) -> None:
    await take(harness, 1, SLOW)
    for _ in range(4):
        await pass_time(harness, 200)
        assert await take(harness, 1, SLOW) > 0
    await pass_time(harness, 200.1)
    assert await take(harness, 1, SLOW) == 0.0


async def test_capacity_and_rate_are_those_of_the_call(harness: Harness) -> None:
    await take(harness, 10, SLOW)
    assert await take(harness, 2, SLOW, 2) == 0.0, "nine were there, two fit"
    assert await take(harness, 10, SLOW) > 0
    assert await take(harness, 10, 10) <= 0.1


async def test_a_clock_that_was_set_back_takes_nothing_away_and_stops_nothing(harness: Harness) -> None:
    await take(harness, 2, SLOW)
    await pass_time(harness, -3600)
    assert await take(harness, 2, SLOW) == 0.0
    await pass_time(harness, 1001)
    assert await take(harness, 2, SLOW) == 0.0


async def test_ten_concurrent_takes_are_granted_as_many_tokens_as_there_are(harness: Harness) -> None:
    """The others are told a time, never nothing: they must not see what was there before their wait."""
    waits = await asyncio.gather(*(take(harness, 4, SLOW) for _ in range(10)))
    assert sorted(waits)[:4] == [0.0] * 4
    assert all(wait > 900 for wait in sorted(waits)[4:])


async def test_a_take_that_waited_for_the_row_is_decided_by_the_current_tokens(
    harness: Harness, eventually: Any
) -> None:
    await take(harness, 2, SLOW)
    async with harness.db.transaction("bucket") as tx:
        assert await buckets.take(tx, "n", 2, SLOW) == 0.0
        waiting = asyncio.create_task(take(harness, 2, SLOW))
        await eventually(lambda: harness.rows("select 1 from pg_locks where not granted"))
    assert await waiting > 900


async def test_the_clock_is_not_that_of_when_the_transaction_began(harness: Harness) -> None:
    """Who waited for the row would else set the clock of the bucket back, and the next get tokens twice."""
    await take(harness, 2, SLOW)
    async with harness.db.transaction("bucket") as tx:
        await buckets.take(tx, "n", 2, SLOW)
        query = b"select refilled_at > now() from cograil.buckets"
        assert await (await tx.connection.execute(query)).fetchone() == (True,)


async def test_a_rolled_back_take_takes_no_tokens(harness: Harness) -> None:
    await take(harness, 2, SLOW)
    with contextlib.suppress(KeyError):
        async with harness.db.transaction("bucket") as tx:
            assert await buckets.take(tx, "n", 2, SLOW) == 0.0
            raise KeyError
    assert await take(harness, 2, SLOW) == 0.0


async def test_buckets_taken_in_the_order_of_their_names_do_not_deadlock(harness: Harness) -> None:
    async def take_all() -> list[float]:
        async with harness.db.transaction("bucket") as tx:
            return [await buckets.take(tx, name, 5, SLOW) for name in "abcdef"]

    waits = await asyncio.gather(*(take_all() for _ in range(8)))
    assert sum(wait == 0.0 for taken in waits for wait in taken) == 5 * 6


async def seconds_until_full(harness: Harness) -> float:
    query = "select extract(epoch from full_at - clock_timestamp())::float8 from cograil.buckets"
    return float((await harness.rows(query))[0][0])


async def prune(harness: Harness) -> int:
    async with harness.db.single("bucket") as tx:
        return await buckets.prune(tx)


async def test_a_bucket_knows_when_it_is_full_again_by_the_largest_capacity_it_was_asked_with(
    harness: Harness,
) -> None:
    await take(harness, 3, SLOW)
    assert await seconds_until_full(harness) == pytest.approx(1000, abs=10)
    await take(harness, 3, SLOW)
    assert await seconds_until_full(harness) == pytest.approx(2000, abs=10)
    assert await take(harness, 3, SLOW, 2) > 0, "who is refused delays nothing"
    assert await seconds_until_full(harness) == pytest.approx(2000, abs=10)
    await take(harness, 10, SLOW)
    assert await seconds_until_full(harness) == pytest.approx(10_000, abs=10)
    await take(harness, 1, SLOW)
    assert await seconds_until_full(harness) == pytest.approx(10_000, abs=10), (
        "it was empty: nothing was taken"
    )


async def test_a_take_with_a_small_capacity_delays_takes_with_a_large_one(harness: Harness) -> None:
    await take(harness, 10, SLOW, 5)
    await take(harness, 1, SLOW)
    assert await seconds_until_full(harness) == pytest.approx(6000, abs=10)


async def test_only_a_bucket_that_is_full_again_is_removed(harness: Harness) -> None:
    await take(harness, 3, SLOW)
    assert await prune(harness) == 0
    await harness.rows("update cograil.buckets set full_at = now()")
    async with harness.db.transaction("bucket") as tx:
        await buckets.take(tx, "n", 3, SLOW)
        assert await prune(harness) == 0, "somebody takes at this moment"
    await harness.rows("update cograil.buckets set full_at = now()")
    assert await prune(harness) == 1
    assert [await take(harness, 3, SLOW) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert await take(harness, 3, SLOW) > 0


async def test_a_take_that_waits_while_a_bucket_is_removed_takes_from_a_new_one(
    harness: Harness, eventually: Any
) -> None:
    await take(harness, 1, SLOW)
    async with harness.db.transaction("bucket") as tx:
        await tx.connection.execute("update cograil.buckets set full_at = now()")
        assert await buckets.prune(tx) == 1
        waiting = asyncio.create_task(take(harness, 1, SLOW))
        await eventually(lambda: harness.rows("select 1 from pg_locks where not granted"))
    assert await waiting == 0.0
    assert await take(harness, 1, SLOW) > 0


async def test_a_rate_that_fills_nothing_in_a_lifetime_is_no_error(harness: Harness) -> None:
    assert await take(harness, 1e6, 1e-12, 5) == 0.0
    assert await take(harness, 1e6, 1e-12, 5) == 0.0
    assert await prune(harness) == 0


async def test_names_and_tenants_have_buckets_of_their_own(harness: Harness) -> None:
    assert [await take(harness, 1, SLOW), await take(harness, 1, SLOW, name="o")] == [0.0, 0.0]
    assert await take(harness, 1, SLOW, tenant="o") == 0.0


@pytest.mark.parametrize(
    ("capacity", "per_second", "amount"),
    [(1, 1, 2), (1, 1, 0), (1, 1, -1), (1, 0, 1), (0, 1, 1), (1, float("nan"), 1), (float("nan"), 1, 1)],
)
async def test_a_take_above_the_capacity_is_refused(
    harness: Harness, capacity: float, per_second: float, amount: float
) -> None:
    with pytest.raises(ValueError, match="cannot take"):
        await take(harness, capacity, per_second, amount)


async def test_a_name_that_cannot_be_one_is_refused(harness: Harness) -> None:
    with pytest.raises(InvalidInput, match="name must have"):
        await take(harness, 1, 1, name="")
