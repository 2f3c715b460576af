"""Named slots: at most `limit` holders at once, counted from leased rows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.harness import Harness

from cograil.errors import AlreadyTerminal, InvalidInput, JobNotFound
from cograil.model.ids import new_id
from cograil.verbs import slots
from cograil.verbs.slots import Full, Slot, SlotHolder

ONE = "workflow_id: w\nnodes:\n  a: {handler: echo}\n"
EXPIRE = """update cograil.slots set lease_until = clock_timestamp() - interval '1 s'
            where name = %(name)s and number = %(number)s"""
HEARTBEATD = b"update cograil.slots set lease_until = clock_timestamp() + interval '60 s' where number = 2"


async def take(harness: Harness, limit: int, holder: str = "me", name: str = "n", **more: Any) -> Slot | Full:
    async with harness.db.transaction("slots") as tx:
        return await slots.take(tx, name, limit, holder, more.pop("seconds", 60), **more)


async def taken(harness: Harness, limit: int, **more: Any) -> Slot:
    """A slot that was free."""
    got = await take(harness, limit, **more)
    assert isinstance(got, Slot)
    return got


async def heartbeat(harness: Harness, slot: Slot, name: str = "n", seconds: float = 60) -> bool:
    async with harness.db.single("slots") as tx:
        return await slots.heartbeat(tx, name, slot, seconds)


async def release(harness: Harness, slot: Slot, name: str = "n") -> bool:
    async with harness.db.single("slots") as tx:
        return await slots.release(tx, name, slot)


async def give(harness: Harness, slot: Slot, job_id: str, name: str = "n") -> bool:
    async with harness.db.transaction("slots") as tx:
        return await slots.give(tx, name, slot, job_id)


async def holders(harness: Harness, name: str = "n", **more: Any) -> tuple[SlotHolder, ...]:
    async with harness.db.single("slots") as tx:
        return await slots.holders(tx, name, **more)


async def expire(harness: Harness, slot: Slot, name: str = "n") -> None:
    await harness.rows(EXPIRE, name=name, number=slot.number)


async def test_slots_are_given_out_up_to_the_limit_and_the_next_learns_the_holders(harness: Harness) -> None:
    job = await harness.submit(ONE)
    assert [
        await take(harness, 3, "a"),
        await take(harness, 3, "a"),
        await take(harness, 3, "b", job_id=job),
    ] == [
        Slot(1, 1),
        Slot(2, 1),
        Slot(3, 1),
    ]
    full = await take(harness, 3, "c")
    assert isinstance(full, Full)
    assert [(slot.number, slot.holder, slot.job_id) for slot in full.holders] == [
        (1, "a", None),
        (2, "a", None),
        (3, "b", job),
    ]
    assert await holders(harness) == full.holders


async def test_a_limit_of_nothing_gives_out_nothing(harness: Harness) -> None:
    assert await take(harness, 0) == Full(())


async def test_a_released_slot_is_free_with_a_higher_fence(harness: Harness) -> None:
    first = await taken(harness, 1)
    assert await release(harness, first)
    assert not await release(harness, first)
    assert not await heartbeat(harness, first)
    assert await taken(harness, 1) == Slot(1, first.fence + 1)
    assert not await release(harness, first)


async def test_a_slot_whose_time_is_over_is_free_and_its_holder_is_told(harness: Harness) -> None:
    first = await taken(harness, 1)
    await expire(harness, first)
    assert not await heartbeat(harness, first), "over is over"
    assert await holders(harness) == ()
    assert await taken(harness, 1) == Slot(1, first.fence + 1)
    assert not await heartbeat(harness, first)


async def test_a_heartbeat_keeps_a_slot(harness: Harness) -> None:
    slot = await taken(harness, 1, seconds=5)
    assert await heartbeat(harness, slot, seconds=3600)
    query = "select extract(epoch from lease_until - clock_timestamp())::float8 from cograil.slots"
    assert 3590 < (await harness.rows(query))[0][0] <= 3600


async def test_a_lowered_limit_gives_out_nothing_until_enough_have_left(harness: Harness) -> None:
    """Low numbers that are free do not help while too many have higher ones."""
    got = [await taken(harness, 4) for _ in range(4)]
    await release(harness, got[0])
    assert isinstance(await take(harness, 2), Full), "three are held"
    await release(harness, got[1])
    assert isinstance(await take(harness, 2), Full), "two are held, under numbers above the limit"
    await expire(harness, got[2])
    assert await taken(harness, 2) == Slot(1, 2)
    assert isinstance(await take(harness, 2), Full)


async def test_a_raised_limit_gives_out_more(harness: Harness) -> None:
    await taken(harness, 1)
    assert isinstance(await take(harness, 1), Full)
    assert (await taken(harness, 2)).number == 2


async def test_a_job_holds_its_slot_while_it_lives(harness: Harness) -> None:
    job = await harness.submit(ONE)
    slot = await taken(harness, 1, seconds=0, job_id=job)
    assert isinstance(await take(harness, 1), Full)
    assert await heartbeat(harness, slot)
    await harness.cancel(job)
    assert not await heartbeat(harness, slot)
    assert await taken(harness, 1) == Slot(1, 2)


async def test_a_slot_is_given_to_the_job_that_was_submitted_for_it(harness: Harness) -> None:
    slot, job = await taken(harness, 1), await harness.submit(ONE)
    assert await give(harness, slot, job)
    ((_, _, _, job_id, lease_until),) = [
        (slot.number, slot.fence, slot.holder, slot.job_id, slot.lease_until)
        for slot in await holders(harness)
    ]
    assert (job_id, lease_until) == (job, None)
    await harness.cancel(job)
    assert await holders(harness) == ()
    assert not await give(harness, slot, await harness.submit(ONE))


async def test_a_job_that_has_ended_or_never_was_cannot_hold_one(harness: Harness) -> None:
    job = await harness.submit(ONE)
    await harness.cancel(job)
    with pytest.raises(AlreadyTerminal):
        await take(harness, 1, job_id=job)
    with pytest.raises(JobNotFound):
        await take(harness, 1, job_id=new_id())


async def test_names_and_tenants_have_slots_of_their_own(harness: Harness) -> None:
    await taken(harness, 1)
    await taken(harness, 1, name="other")
    await taken(harness, 1, tenant="other")
    assert len(await holders(harness)) == 1


# -- at once ----------------------------------------------------------------------------------------------


async def test_ten_concurrent_takes_get_as_many_slots_as_the_limit(harness: Harness) -> None:
    got = await asyncio.gather(*(take(harness, 3, str(number)) for number in range(10)))
    assert sorted(slot.number for slot in got if isinstance(slot, Slot)) == [1, 2, 3]
    for slot in got:
        if isinstance(slot, Slot):
            await expire(harness, slot)
    again = await asyncio.gather(*(take(harness, 3, str(number)) for number in range(10)))
    assert sorted(slot.fence for slot in again if isinstance(slot, Slot)) == [2, 2, 2]


async def test_a_refused_take_knows_the_job_that_was_submitted_meanwhile(
    harness: Harness, eventually: Any
) -> None:
    """Seen with the eyes of before the wait, that job would not exist and its slot would be free."""
    await release(harness, await taken(harness, 1))
    async with harness.db.transaction("slots") as tx:
        got = await slots.take(tx, "n", 1, "one", 60)
        assert isinstance(got, Slot)
        waiting = asyncio.create_task(take(harness, 1, "two"))
        await eventually(lambda: harness.rows("select 1 from pg_locks where not granted"))
        job = await harness.submit(ONE)
        assert await slots.give(tx, "n", got, job)
    full = await waiting
    assert isinstance(full, Full)
    assert [holder.job_id for holder in full.holders] == [job]


async def test_a_slot_is_given_under_the_lock_of_its_name(harness: Harness, eventually: Any) -> None:
    slot, job = await taken(harness, 1), await harness.submit(ONE)
    async with harness.db.transaction("slots") as tx:
        assert isinstance(await slots.take(tx, "n", 1, "two", 60), Full)
        giving = asyncio.create_task(give(harness, slot, job))
        await eventually(lambda: harness.rows("select 1 from pg_locks where not granted"))
        assert not giving.done()
    assert await giving


async def test_a_heartbeat_that_is_being_committed_counts_though_the_limit_was_lowered(
    harness: Harness, eventually: Any
) -> None:
    """The heartbeat came in time; who counts meanwhile and sees a slot that is over must wait for it."""
    first, second = await taken(harness, 2), await taken(harness, 2)
    await release(harness, first)
    await expire(harness, second)
    async with harness.db.transaction("slots") as tx:
        await tx.connection.execute(HEARTBEATD)
        waiting = asyncio.create_task(take(harness, 1))
        await eventually(lambda: harness.rows("select 1 from pg_locks where not granted"))
    assert isinstance(await waiting, Full)


async def test_nobody_waits_for_one_who_takes_or_was_refused_but_the_next_to_ask(harness: Harness) -> None:
    slot = await taken(harness, 1)
    async with harness.db.transaction("slots") as tx:
        assert isinstance(await slots.take(tx, "n", 1, "two", 60), Full)
        assert isinstance(await slots.take(tx, "n", 2, "two", 60), Slot)
        assert await asyncio.wait_for(heartbeat(harness, slot), 5)
        assert await asyncio.wait_for(release(harness, slot), 5)


async def test_slots_taken_in_the_order_of_their_names_do_not_deadlock(harness: Harness) -> None:
    async def take_all(holder: str) -> int:
        async with harness.db.transaction("slots") as tx:
            got = [await slots.take(tx, name, 2, holder, 60) for name in "abcdef"]
            return sum(isinstance(slot, Slot) for slot in got)

    assert sorted(await asyncio.gather(*(take_all(str(n)) for n in range(8)))) == [0] * 6 + [6, 6]


@pytest.mark.parametrize("name", ["", "x" * 513, "nul\0"])
async def test_a_name_that_cannot_be_one_is_refused(harness: Harness, name: str) -> None:
    with pytest.raises(InvalidInput, match="name must have"):
        await take(harness, 1, name=name)


async def test_a_slot_is_not_taken_outside_a_transaction(harness: Harness) -> None:
    async with harness.db.single("slots") as tx:
        with pytest.raises(RuntimeError, match="in a transaction"):
            await slots.take(tx, "n", 1, "me", 60)
