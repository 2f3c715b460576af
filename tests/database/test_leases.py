"""Named leases: one holder at a time, fences that only grow, jobs that hold one while they live."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from tests.support.harness import Harness

from cograil.errors import AlreadyTerminal, InvalidInput, JobNotFound
from cograil.model.ids import new_id
from cograil.verbs import leases
from cograil.verbs.leases import Acquired, Taken

ONE = "workflow_id: w\nnodes:\n  a: {handler: echo}\n"
EXPIRE = "update cograil.leases set lease_until = clock_timestamp() - interval '1 s' where name = %(name)s"
HEARTBEATD = b"update cograil.leases set lease_until = clock_timestamp() + interval '60 s' where name = 'n'"


async def acquire(harness: Harness, name: str = "n", holder: str = "me", **more: Any) -> Acquired | Taken:
    async with harness.db.transaction("lease") as tx:
        return await leases.acquire(tx, name, holder, more.pop("seconds", 60), **more)


async def acquired(harness: Harness, name: str = "n", holder: str = "me", **more: Any) -> int:
    """The fence of a lease that was free."""
    got = await acquire(harness, name, holder, **more)
    assert isinstance(got, Acquired)
    return got.fence


async def heartbeat(harness: Harness, fence: int, name: str = "n", seconds: float = 60, **more: Any) -> bool:
    async with harness.db.single("lease") as tx:
        return await leases.heartbeat(tx, name, fence, seconds, **more)


async def release(harness: Harness, fence: int, name: str = "n", **more: Any) -> bool:
    async with harness.db.single("lease") as tx:
        return await leases.release(tx, name, fence, **more)


async def check(harness: Harness, fence: int, name: str = "n", **more: Any) -> bool:
    async with harness.db.transaction("lease") as tx:
        return await leases.check(tx, name, fence, **more)


async def give(harness: Harness, fence: int, job_id: str, name: str = "n") -> bool:
    async with harness.db.transaction("lease") as tx:
        return await leases.give(tx, name, fence, job_id)


async def find(harness: Harness, name: str = "n", **more: Any) -> Taken | None:
    async with harness.db.single("lease") as tx:
        return await leases.find(tx, name, **more)


# -- the tests of seed 002, section 12.9 ------------------------------------------------------------------


async def test_a_lease_has_one_holder_and_the_next_after_its_release(harness: Harness) -> None:
    first = await acquired(harness, holder="one")
    taken = await acquire(harness, holder="two")
    assert isinstance(taken, Taken)
    assert (taken.holder, taken.job_id, taken.fence) == ("one", None, first)
    assert taken.lease_until is not None
    assert await release(harness, first)
    assert await acquired(harness, holder="two") > first


async def test_a_lease_that_is_over_can_be_taken_with_a_higher_fence(harness: Harness) -> None:
    first = await acquired(harness, holder="one")
    await harness.rows(EXPIRE, name="n")
    assert await acquired(harness, holder="two") > first


async def test_only_the_lease_holder_of_two_with_the_same_state_can_go_on(harness: Harness) -> None:
    """The seed compares versions; here the fence is the version."""
    old = await acquired(harness, holder="one")
    await harness.rows(EXPIRE, name="n")
    new = await acquired(harness, holder="two")
    assert not await heartbeat(harness, old)
    assert not await check(harness, old)
    assert not await release(harness, old)
    assert await heartbeat(harness, new)
    assert await check(harness, new)


# -- at once ----------------------------------------------------------------------------------------------


async def test_one_of_ten_concurrent_acquires_gets_the_lease(harness: Harness) -> None:
    got = await asyncio.gather(*(acquire(harness, holder=str(number)) for number in range(10)))
    winners = [str(number) for number, lease in enumerate(got) if isinstance(lease, Acquired)]
    assert len(winners) == 1
    assert {lease.holder for lease in got if isinstance(lease, Taken)} == set(winners)


async def test_one_of_ten_concurrent_takeovers_gets_the_lease(harness: Harness) -> None:
    first = await acquired(harness)
    await harness.rows(EXPIRE, name="n")
    got = await asyncio.gather(*(acquire(harness, holder=str(number)) for number in range(10)))
    assert [lease.fence for lease in got if isinstance(lease, Acquired)] == [first + 1]


async def test_a_caller_that_waited_for_a_rolled_back_acquire_gets_the_lease(
    harness: Harness, eventually: Any
) -> None:
    with contextlib.suppress(KeyError):
        async with harness.db.transaction("lease") as tx:
            await leases.acquire(tx, "n", "one", 60)
            waiting = asyncio.create_task(acquire(harness, holder="two"))
            await eventually(lambda: harness.rows("select 1 from pg_locks where not granted"))
            raise KeyError
    assert isinstance(await waiting, Acquired)


async def test_a_refused_acquire_knows_the_job_that_was_submitted_meanwhile(
    harness: Harness, eventually: Any
) -> None:
    """Seen with the eyes of before the wait, that job would not exist and its lease would be free."""
    fence = await acquired(harness, holder="one")
    await release(harness, fence)
    async with harness.db.transaction("lease") as tx:
        got = await leases.acquire(tx, "n", "one", 60)
        assert isinstance(got, Acquired)
        waiting = asyncio.create_task(acquire(harness, holder="two"))
        await eventually(lambda: harness.rows("select 1 from pg_locks where not granted"))
        job = await harness.submit(ONE)
        assert await leases.give(tx, "n", got.fence, job)
    taken = await waiting
    assert isinstance(taken, Taken)
    assert taken.job_id == job


async def test_a_lease_is_given_under_the_lock_of_its_name(harness: Harness, eventually: Any) -> None:
    """Else a caller that is just acquiring could meet a job that it cannot see yet, and take it for ended."""
    fence, job = await acquired(harness), await harness.submit(ONE)
    async with harness.db.transaction("lease") as tx:
        assert isinstance(await leases.acquire(tx, "n", "two", 60), Taken)
        giving = asyncio.create_task(give(harness, fence, job))
        await eventually(lambda: harness.rows("select 1 from pg_locks where not granted"))
        assert not giving.done()
    assert await giving


async def test_nobody_waits_for_one_who_was_refused_but_the_next_to_ask(harness: Harness) -> None:
    """He may keep his transaction open for long: the holder's heartbeat must not wait for it."""
    fence = await acquired(harness, holder="one")
    async with harness.db.transaction("lease") as tx:
        assert isinstance(await leases.acquire(tx, "n", "two", 60), Taken)
        assert await asyncio.wait_for(heartbeat(harness, fence), 5)
        assert await asyncio.wait_for(check(harness, fence), 5)
        assert await asyncio.wait_for(release(harness, fence), 5)


async def test_a_holder_can_heartbeat_while_it_writes_under_the_lease(harness: Harness) -> None:
    fence = await acquired(harness)
    async with harness.db.transaction("lease") as tx:
        assert await leases.check(tx, "n", fence)
        assert await asyncio.wait_for(heartbeat(harness, fence), 5)


async def test_an_acquire_waits_for_a_heartbeat_that_is_being_committed(
    harness: Harness, eventually: Any
) -> None:
    """The heartbeat came in time; only its commit comes after the end of what others see."""
    fence = await acquired(harness)
    await harness.rows(EXPIRE, name="n")
    async with harness.db.transaction("lease") as tx:
        await tx.connection.execute(HEARTBEATD)
        waiting = asyncio.create_task(acquire(harness, holder="two"))
        await eventually(lambda: harness.rows("select 1 from pg_locks where not granted"))
    assert isinstance(await waiting, Taken)
    assert await check(harness, fence)


async def test_a_write_after_a_lease_check_is_written_under_the_lease(
    harness: Harness, eventually: Any
) -> None:
    """The lease ends while the transaction is open: the takeover waits for its commit."""
    fence = await acquired(harness)
    async with harness.db.transaction("lease") as tx:
        assert await leases.check(tx, "n", fence)
        await harness.rows(EXPIRE, name="n")
        taking = asyncio.create_task(acquire(harness, holder="two"))
        await eventually(lambda: harness.rows("select 1 from pg_locks where not granted"))
        assert not taking.done()
    assert isinstance(await taking, Acquired)


async def test_leases_taken_in_the_order_of_their_names_do_not_deadlock(harness: Harness) -> None:
    async def take_all(holder: str) -> int:
        async with harness.db.transaction("lease") as tx:
            got = [await leases.acquire(tx, name, holder, 60) for name in "abcdef"]
            return sum(isinstance(lease, Acquired) for lease in got)

    assert sorted(await asyncio.gather(*(take_all(str(n)) for n in range(8)))) == [0] * 7 + [6]


# -- heartbeat, release, check --------------------------------------------------------------------------------


async def test_a_heartbeat_extends_by_the_clock_of_the_database(harness: Harness) -> None:
    fence = await acquired(harness, seconds=5)
    assert await heartbeat(harness, fence, seconds=3600)
    query = "select extract(epoch from lease_until - clock_timestamp())::float8 from cograil.leases"
    assert 3590 < (await harness.rows(query))[0][0] <= 3600


async def test_an_expired_lease_is_over_even_if_nobody_took_it(harness: Harness) -> None:
    fence = await acquired(harness)
    await harness.rows(EXPIRE, name="n")
    assert not await heartbeat(harness, fence)
    assert not await check(harness, fence)
    assert await find(harness) is None


async def test_a_released_lease_keeps_its_row_and_fence_and_knows_no_holder(harness: Harness) -> None:
    fence = await acquired(harness)
    assert await release(harness, fence)
    rows = await harness.rows("select fence, holder, job_id, lease_until from cograil.leases")
    assert rows == [(fence, None, None, None)]
    assert not await release(harness, fence)
    assert not await heartbeat(harness, fence)
    assert not await check(harness, fence)
    assert await find(harness) is None


async def test_fences_grow_over_releases_and_takeovers(harness: Harness) -> None:
    fences = []
    for number in range(6):
        fences.append(await acquired(harness, holder=str(number)))
        if number % 2:
            await release(harness, fences[-1])
        else:
            await harness.rows(EXPIRE, name="n")
    assert fences == sorted(set(fences))


async def test_the_same_holder_does_not_get_it_twice_but_finds_its_own_fence(harness: Harness) -> None:
    """So a caller that got no answer to its commit can go on."""
    fence = await acquired(harness, holder="me")
    taken = await acquire(harness, holder="me")
    assert isinstance(taken, Taken)
    assert (taken.holder, taken.fence) == ("me", fence)


async def test_names_of_two_tenants_are_two_leases(harness: Harness) -> None:
    fence = await acquired(harness, tenant="a")
    await acquired(harness, tenant="b")
    assert not await release(harness, fence, tenant="default")
    assert (await find(harness, tenant="a")) is not None


# -- a job holds it ---------------------------------------------------------------------------------------


async def test_a_job_holds_its_lease_while_it_lives_without_a_heartbeat(harness: Harness) -> None:
    job = await harness.submit(ONE)
    fence = await acquired(harness, holder="app", seconds=0, job_id=job)
    taken = await acquire(harness, holder="two")
    assert taken == Taken("app", job, None, fence)
    assert await find(harness) == taken
    assert await heartbeat(harness, fence)
    assert await check(harness, fence)


@pytest.mark.parametrize("end", ["completed", "cancelled", "gone"])
async def test_a_lease_ends_with_its_job(harness: Harness, end: str) -> None:
    job = await harness.submit(ONE)
    fence = await acquired(harness, job_id=job)
    if end == "completed":
        worker = await harness.manual_worker()
        await worker.report(await worker.claim_one(), {})
        assert isinstance(await acquire(harness), Taken), "reported, but the job has not advanced"
        await harness.advance()
    else:
        await harness.cancel(job)
    if end == "gone":
        await harness.rows("delete from cograil.events; delete from cograil.nodes; delete from cograil.jobs")
    assert not await heartbeat(harness, fence)
    assert not await check(harness, fence)
    assert await find(harness) is None
    assert await acquired(harness) > fence


async def test_a_job_whose_worker_dies_keeps_its_lease_through_the_next_attempt(harness: Harness) -> None:
    job = await harness.submit(ONE)
    await acquired(harness, job_id=job)
    first = await harness.manual_worker("first")
    await first.claim_one()
    await harness.expire_worker(first)
    await harness.advance()
    assert isinstance(await acquire(harness), Taken)


async def test_a_lease_is_given_to_the_job_that_was_submitted_for_it(harness: Harness) -> None:
    fence = await acquired(harness)
    job = await harness.submit(ONE)
    assert await give(harness, fence, job)
    await harness.rows(EXPIRE.replace("where", "where lease_until is not null and"), name="n")
    taken = await acquire(harness)
    assert isinstance(taken, Taken)
    assert (taken.job_id, taken.fence) == (job, fence)
    await harness.cancel(job)
    assert await acquired(harness) > fence


async def test_a_lease_that_is_over_cannot_be_given(harness: Harness) -> None:
    fence = await acquired(harness)
    job = await harness.submit(ONE)
    await harness.rows(EXPIRE, name="n")
    assert not await give(harness, fence, job)


async def test_a_job_that_has_ended_or_never_was_cannot_hold_one(harness: Harness) -> None:
    job = await harness.submit(ONE)
    await harness.cancel(job)
    with pytest.raises(AlreadyTerminal):
        await acquire(harness, job_id=job)
    for unknown in (new_id(), "nonsense"):
        with pytest.raises(JobNotFound):
            await acquire(harness, job_id=unknown)
    with pytest.raises(JobNotFound):
        await acquire(harness, job_id=await harness.submit(ONE), tenant="other")
    assert await find(harness) is None


# -- what cannot be ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "x" * 513, "\u00e9" * 257, "nul\0", "\ud800"])
async def test_a_name_that_cannot_be_one_is_refused(harness: Harness, name: str) -> None:
    with pytest.raises(InvalidInput, match="name must have"):
        await acquire(harness, name)


async def test_a_lease_is_not_acquired_outside_a_transaction(harness: Harness) -> None:
    """The lock of its name would be gone before the next statement."""
    async with harness.db.single("lease") as tx:
        with pytest.raises(RuntimeError, match="in a transaction"):
            await leases.acquire(tx, "n", "me", 60)
