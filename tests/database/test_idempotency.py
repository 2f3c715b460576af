"""Idempotency records: exactly one is told New, and the policy says what the others are told."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from tests.support.harness import Harness
from tests.support.idempotency_records import (
    AAA,
    BBB,
    KEY,
    ONE,
    begin_turn,
    decide,
    find,
    give_back,
    give_to_job,
    load_record,
    pass_time,
    prune,
    store_answer,
)

from cograil import strict_json
from cograil.errors import AlreadyTerminal, InvalidInput, JobNotFound
from cograil.model.ids import new_id
from cograil.store import idempotency_queries as store
from cograil.verbs import idempotency
from cograil.verbs.idempotency import (
    Attach,
    Conflict,
    Held,
    Key,
    New,
    Policy,
    Replay,
    Stale,
    attach,
    cache,
    hold,
    reject,
    replay,
)

EVERY = [replay(), attach(), reject(), hold(), cache(60, 60)]

each_policy = pytest.mark.parametrize("policy", EVERY, ids=lambda policy: policy.kind)


# -- exactly one ------------------------------------------------------------------------------------------


@each_policy
async def test_exactly_one_of_ten_concurrent_decisions_is_new(harness: Harness, policy: Policy) -> None:
    decisions = await asyncio.gather(*(decide(harness, policy) for _ in range(10)))
    assert sum(isinstance(decision, New) for decision in decisions) == 1
    others = {type(decision) for decision in decisions} - {New}
    outcome_types = {"replay": Replay, "attach": Attach, "reject": Conflict, "hold": Held, "cache": Attach}
    assert others == {outcome_types[policy.kind]}


@each_policy
async def test_the_unique_index_holds_though_nobody_takes_the_lock(
    harness: Harness, policy: Policy, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    """Both have looked and found nothing before one of them writes."""

    async def no_lock(*_: Any) -> None: ...

    monkeypatch.setattr(store, "lock_key", no_lock)
    async with harness.db.transaction("decide") as tx:
        assert isinstance(await idempotency.decide(tx, KEY, AAA, policy), New)
        second = asyncio.create_task(decide(harness, policy))
        await eventually(lambda: harness.rows("select 1 from pg_locks where not granted"))
    assert not isinstance(await second, New)


async def test_the_lock_is_taken_before_the_look_up(harness: Harness, eventually: Any) -> None:
    """So the second does not begin to look before the first has committed what he will find."""
    async with harness.db.transaction("decide") as tx:
        assert isinstance(await idempotency.decide(tx, KEY, AAA, attach()), New)
        second = asyncio.create_task(decide(harness, attach()))
        query = "select 1 from pg_locks where locktype = 'advisory' and not granted"
        await eventually(lambda: harness.rows(query))
        job = await harness.submit(ONE)
        record = await idempotency.find(tx, KEY)
        assert record is not None
        assert await idempotency.give(tx, KEY, record.fence, job)
    decision = await second
    assert isinstance(decision, Attach)
    assert (decision.record.job_id, decision.record.job_status) == (job, "running")


async def test_a_caller_that_waited_for_a_rolled_back_decision_is_new(
    harness: Harness, eventually: Any
) -> None:
    with contextlib.suppress(KeyError):
        async with harness.db.transaction("decide") as tx:
            await idempotency.decide(tx, KEY, AAA, replay())
            second = asyncio.create_task(decide(harness, replay()))
            await eventually(lambda: harness.rows("select 1 from pg_locks where not granted"))
            raise KeyError
    assert isinstance(await second, New)


async def test_one_of_ten_concurrent_decisions_replaces_an_expired_record(harness: Harness) -> None:
    first = await begin_turn(harness, replay(keep_seconds=60))
    await pass_time(harness, 61)
    decisions = await asyncio.gather(*(decide(harness, replay()) for _ in range(10)))
    (new,) = [decision for decision in decisions if isinstance(decision, New)]
    assert new.fence > first


async def test_a_key_is_one_per_tenant_and_scope(harness: Harness) -> None:
    for key in (KEY, KEY._replace(tenant="t"), KEY._replace(scope="s"), KEY._replace(key="other")):
        await begin_turn(harness, replay(), key)


async def test_deciding_needs_a_transaction(harness: Harness) -> None:
    async with harness.db.single("decide") as tx:
        with pytest.raises(RuntimeError, match="in a transaction"):
            await idempotency.decide(tx, KEY, AAA, replay())


@pytest.mark.parametrize("key", [("", "s", "k"), ("t", "s", "x" * 513), ("t", "nul\0", "k")])
async def test_a_key_that_cannot_be_one_is_refused(harness: Harness, key: tuple[str, str, str]) -> None:
    with pytest.raises(InvalidInput, match="must have 1 to 512 bytes"):
        await decide(harness, replay(), key=Key(*key))


# -- policies ---------------------------------------------------------------------------------------------


@each_policy
async def test_another_payload_under_the_same_key_is_a_conflict(harness: Harness, policy: Policy) -> None:
    fence = await begin_turn(harness, policy)
    for value in (None, 1):
        decision = await decide(harness, policy, BBB)
        assert isinstance(decision, Conflict)
        assert decision.record.fingerprint == AAA
        await store_answer(harness, fence, value)


async def test_replay_gives_the_first_answer_to_everybody(harness: Harness) -> None:
    fence = await begin_turn(harness, replay())
    assert await store_answer(harness, fence, {"id": 7}, state="accepted")
    for _ in range(2):
        decision = await decide(harness, replay())
        assert isinstance(decision, Replay)
        assert (decision.record.answer, decision.record.state) == ({"id": 7}, "accepted")


async def test_replay_gives_the_job_whatever_has_become_of_it(harness: Harness) -> None:
    job = await harness.submit(ONE)
    assert await give_to_job(harness, await begin_turn(harness, replay(turn_seconds=60)), job)
    statuses = []
    for end in (harness.cancel, None):
        decision = await decide(harness, replay(turn_seconds=60))
        assert isinstance(decision, Replay)
        assert decision.record.job_id == job
        statuses.append(decision.record.job_status)
        if end:
            await end(job)
    assert statuses == ["running", "cancelled"]


async def test_replay_binds_without_an_answer_unless_the_turn_has_an_end(harness: Harness) -> None:
    await begin_turn(harness, replay())
    await pass_time(harness, 1e6)
    decision = await decide(harness, replay())
    assert isinstance(decision, Replay)
    assert (decision.record.answer, decision.record.answered_at) == (None, None)


async def test_a_turn_with_an_end_that_came_to_nothing_never_was(harness: Harness) -> None:
    first = await begin_turn(harness, replay(turn_seconds=60))
    assert isinstance(await decide(harness, replay(turn_seconds=60)), Attach)
    await pass_time(harness, 61)
    second = await begin_turn(harness, replay(turn_seconds=60))
    assert not await store_answer(harness, first, "late")
    assert await store_answer(harness, second, "in time")
    record = await find(harness)
    assert record is not None
    assert record.answer == "in time"


async def test_attach_joins_the_job_while_it_runs_and_begins_anew_after(harness: Harness) -> None:
    job = await harness.submit(ONE)
    fence = await begin_turn(harness, attach())
    assert isinstance(await decide(harness, attach()), Attach), "somebody is at it, though not a job yet"
    assert await give_to_job(harness, fence, job)
    await pass_time(harness, 1e6)
    decision = await decide(harness, attach())
    assert isinstance(decision, Attach)
    assert decision.record.job_id == job
    await harness.cancel(job)
    assert await begin_turn(harness, attach()) > fence


async def test_attach_replays_an_answer_that_was_recorded(harness: Harness) -> None:
    job = await harness.submit(ONE)
    fence = await begin_turn(harness, attach(keep_seconds=60))
    await give_to_job(harness, fence, job)
    assert await store_answer(harness, fence, {"n": 1})
    await harness.cancel(job)
    decision = await decide(harness, attach(keep_seconds=60))
    assert isinstance(decision, Replay)
    assert decision.record.answer == {"n": 1}
    await pass_time(harness, 61)
    assert isinstance(await decide(harness, attach(keep_seconds=60)), New)


async def test_attach_goes_on_when_its_holder_vanished(harness: Harness) -> None:
    await begin_turn(harness, attach(turn_seconds=60))
    await pass_time(harness, 59)
    assert isinstance(await decide(harness, attach(turn_seconds=60)), Attach)
    await pass_time(harness, 2)
    assert isinstance(await decide(harness, attach(turn_seconds=60)), New)


async def test_reject_refuses_the_same_payload_too_until_the_record_expires(harness: Harness) -> None:
    policy = reject(keep_seconds=900)
    fence = await begin_turn(harness, policy)
    assert isinstance(await decide(harness, policy), Conflict)
    await pass_time(harness, 800)
    assert await store_answer(harness, fence, None)
    await pass_time(harness, 800)
    assert isinstance(await decide(harness, policy), Conflict), "its time began anew with the answer"
    await pass_time(harness, 101)
    assert isinstance(await decide(harness, policy), New)


async def test_hold_never_expires_and_ends_when_somebody_forgets_it(harness: Harness) -> None:
    await begin_turn(harness, hold())
    await pass_time(harness, 1e9)
    assert await prune(harness) == 0
    assert isinstance(await decide(harness, hold()), Held)
    async with harness.db.transaction("forget") as tx:
        assert await idempotency.forget(tx, KEY)
        assert not await idempotency.forget(tx, KEY)
    assert isinstance(await decide(harness, hold()), New)


# -- turns ------------------------------------------------------------------------------------------------


async def test_a_turn_is_answered_once(harness: Harness) -> None:
    fence = await begin_turn(harness, replay())
    assert await store_answer(harness, fence, 1)
    assert not await store_answer(harness, fence, 2)
    assert not await give_back(harness, fence)
    assert (await load_record(harness)).answer == 1


async def test_a_new_turn_that_is_given_back_leaves_no_record(harness: Harness) -> None:
    fence = await begin_turn(harness, replay())
    assert await give_back(harness, fence)
    assert await find(harness) is None
    assert await begin_turn(harness, replay()) > fence


async def test_a_caller_that_lost_the_turn_can_neither_give_it_back_nor_to_a_job(harness: Harness) -> None:
    job, policy = await harness.submit(ONE), attach(turn_seconds=60)
    zombie = await begin_turn(harness, policy)
    await pass_time(harness, 61)
    fence = await begin_turn(harness, policy)
    assert not await give_back(harness, zombie)
    assert not await give_to_job(harness, zombie, job)
    assert (await load_record(harness)).job_id is None
    assert await store_answer(harness, fence, 1), "what the next one has begun stays with the next one"


async def test_a_caller_that_lost_the_turn_to_refresh_cannot_give_it_back(harness: Harness) -> None:
    policy = cache(60, 600, turn_seconds=60)
    await store_answer(harness, await begin_turn(harness, policy), 1)
    turns = []
    for _ in range(2):
        await pass_time(harness, 61)
        decision = await decide(harness, policy)
        assert isinstance(decision, Stale)
        assert decision.fence is not None
        turns.append(decision.fence)
    assert not await give_back(harness, turns[0])
    assert await store_answer(harness, turns[1], 2)
    assert (await load_record(harness)).answer == 2


async def test_an_answer_waits_for_a_decision_and_comes_too_late(harness: Harness, eventually: Any) -> None:
    """The turn was over and is being given to another: the answer must not count as his."""
    policy = attach(turn_seconds=60)
    first = await begin_turn(harness, policy)
    await pass_time(harness, 61)
    async with harness.db.transaction("decide") as tx:
        assert isinstance(await idempotency.decide(tx, KEY, AAA, policy), New)
        answering = asyncio.create_task(store_answer(harness, first, "late"))
        await eventually(lambda: harness.rows("select 1 from pg_locks where not granted"))
    assert not await answering


async def test_a_decision_waits_for_an_answer_that_is_being_committed(
    harness: Harness, eventually: Any
) -> None:
    """Late, but nobody had taken the turn: what was done must not be done again."""
    policy = attach(turn_seconds=60)
    first = await begin_turn(harness, policy)
    await pass_time(harness, 61)
    async with harness.db.transaction("answer") as tx:
        assert await idempotency.answer(tx, KEY, first, "late")
        deciding = asyncio.create_task(decide(harness, policy))
        await eventually(lambda: harness.rows("select 1 from pg_locks where not granted"))
    assert isinstance(await deciding, Replay)


async def test_only_a_job_that_lives_can_have_a_turn(harness: Harness) -> None:
    fence, job = await begin_turn(harness, attach()), await harness.submit(ONE)
    await harness.cancel(job)
    with pytest.raises(AlreadyTerminal):
        await give_to_job(harness, fence, job)
    with pytest.raises(JobNotFound):
        await give_to_job(harness, fence, new_id())
    assert not await give_to_job(harness, fence + 1, await harness.submit(ONE))


async def test_an_answer_the_database_cannot_hold_is_refused(harness: Harness) -> None:
    fence = await begin_turn(harness, replay())
    for value in (float("nan"), {1, 2}, "nul\0"):
        with pytest.raises(strict_json.InvalidJson):
            await store_answer(harness, fence, value)


# -- expiry -----------------------------------------------------------------------------------------------


async def test_a_record_that_expired_counts_no_more(harness: Harness) -> None:
    await begin_turn(harness, replay(keep_seconds=60))
    await pass_time(harness, 59)
    assert isinstance(await decide(harness, replay()), Replay)
    await pass_time(harness, 2)
    assert await find(harness) is None
    assert isinstance(await decide(harness, replay(), BBB), New)


async def test_a_record_does_not_expire_while_its_job_runs(harness: Harness) -> None:
    job = await harness.submit(ONE)
    await give_to_job(harness, await begin_turn(harness, replay(keep_seconds=60)), job)
    await pass_time(harness, 1e6)
    assert isinstance(await decide(harness, replay(keep_seconds=60)), Replay)
    assert await prune(harness) == 0
    await harness.cancel(job)
    assert await prune(harness) == 1


async def test_expired_records_are_pruned_in_batches_and_no_others(harness: Harness) -> None:
    for number in range(5):
        await begin_turn(harness, replay(keep_seconds=60), Key("t", "old", str(number)))
    await pass_time(harness, 61)
    await begin_turn(harness, replay(keep_seconds=60))
    await begin_turn(harness, replay(), Key("t", "kept", "for ever"))
    assert [await prune(harness, 2) for _ in range(4)] == [2, 2, 1, 0]
    assert await harness.rows("select count(*) from cograil.idempotency") == [(2,)]


async def test_prune_passes_over_a_record_that_is_being_replaced(harness: Harness) -> None:
    await begin_turn(harness, replay(keep_seconds=60))
    await pass_time(harness, 61)
    async with harness.db.transaction("decide") as tx:
        assert isinstance(await idempotency.decide(tx, KEY, AAA, replay()), New)
        assert await prune(harness) == 0
    assert await find(harness) is not None


async def test_a_zombie_of_a_pruned_turn_cannot_answer_the_next_one(harness: Harness) -> None:
    """Fences do not begin anew with a new row."""
    zombie = await begin_turn(harness, replay(keep_seconds=60))
    await pass_time(harness, 61)
    assert await prune(harness) == 1
    await begin_turn(harness, replay())
    assert not await store_answer(harness, zombie, "late")
