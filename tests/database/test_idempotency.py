"""Idempotency records: exactly one is told New, and the policy says what the others are told."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from lab import Lab
from records import (
    AAA,
    BBB,
    KEY,
    ONE,
    answer,
    begun,
    decide,
    existing,
    find,
    give,
    give_back,
    pass_time,
    prune,
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
async def test_of_ten_at_once_exactly_one_is_new(lab: Lab, policy: Policy) -> None:
    decisions = await asyncio.gather(*(decide(lab, policy) for _ in range(10)))
    assert sum(isinstance(decision, New) for decision in decisions) == 1
    others = {type(decision) for decision in decisions} - {New}
    outcome_types = {"replay": Replay, "attach": Attach, "reject": Conflict, "hold": Held, "cache": Attach}
    assert others == {outcome_types[policy.kind]}


@each_policy
async def test_the_unique_index_holds_though_nobody_takes_the_lock(
    lab: Lab, policy: Policy, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    """Both have looked and found nothing before one of them writes."""

    async def no_lock(*_: Any) -> None: ...

    monkeypatch.setattr(store, "lock_key", no_lock)
    async with lab.db.transaction("decide") as tx:
        assert isinstance(await idempotency.decide(tx, KEY, AAA, policy), New)
        second = asyncio.create_task(decide(lab, policy))
        await eventually(lambda: lab.rows("select 1 from pg_locks where not granted"))
    assert not isinstance(await second, New)


async def test_the_lock_is_taken_before_the_look_up(lab: Lab, eventually: Any) -> None:
    """So the second does not begin to look before the first has committed what he will find."""
    async with lab.db.transaction("decide") as tx:
        assert isinstance(await idempotency.decide(tx, KEY, AAA, attach()), New)
        second = asyncio.create_task(decide(lab, attach()))
        query = "select 1 from pg_locks where locktype = 'advisory' and not granted"
        await eventually(lambda: lab.rows(query))
        job = await lab.submit(ONE)
        record = await idempotency.find(tx, KEY)
        assert record is not None
        assert await idempotency.give(tx, KEY, record.fence, job)
    decision = await second
    assert isinstance(decision, Attach)
    assert (decision.record.job_id, decision.record.job_status) == (job, "running")


async def test_who_waited_for_one_that_rolled_back_is_new(lab: Lab, eventually: Any) -> None:
    with contextlib.suppress(KeyError):
        async with lab.db.transaction("decide") as tx:
            await idempotency.decide(tx, KEY, AAA, replay())
            second = asyncio.create_task(decide(lab, replay()))
            await eventually(lambda: lab.rows("select 1 from pg_locks where not granted"))
            raise KeyError
    assert isinstance(await second, New)


async def test_of_ten_at_once_one_replaces_what_has_expired(lab: Lab) -> None:
    first = await begun(lab, replay(keep_seconds=60))
    await pass_time(lab, 61)
    decisions = await asyncio.gather(*(decide(lab, replay()) for _ in range(10)))
    (new,) = [decision for decision in decisions if isinstance(decision, New)]
    assert new.fence > first


async def test_a_key_is_one_per_tenant_and_scope(lab: Lab) -> None:
    for key in (KEY, KEY._replace(tenant="t"), KEY._replace(scope="s"), KEY._replace(key="other")):
        await begun(lab, replay(), key)


async def test_deciding_needs_a_transaction(lab: Lab) -> None:
    async with lab.db.single("decide") as tx:
        with pytest.raises(RuntimeError, match="in a transaction"):
            await idempotency.decide(tx, KEY, AAA, replay())


@pytest.mark.parametrize("key", [("", "s", "k"), ("t", "s", "x" * 513), ("t", "nul\0", "k")])
async def test_a_key_that_cannot_be_one_is_refused(lab: Lab, key: tuple[str, str, str]) -> None:
    with pytest.raises(InvalidInput, match="must have 1 to 512 bytes"):
        await decide(lab, replay(), key=Key(*key))


# -- policies ---------------------------------------------------------------------------------------------


@each_policy
async def test_another_payload_under_the_same_key_is_a_conflict(lab: Lab, policy: Policy) -> None:
    fence = await begun(lab, policy)
    for value in (None, 1):
        decision = await decide(lab, policy, BBB)
        assert isinstance(decision, Conflict)
        assert decision.record.fingerprint == AAA
        await answer(lab, fence, value)


async def test_replay_gives_the_first_answer_to_everybody(lab: Lab) -> None:
    fence = await begun(lab, replay())
    assert await answer(lab, fence, {"id": 7}, state="accepted")
    for _ in range(2):
        decision = await decide(lab, replay())
        assert isinstance(decision, Replay)
        assert (decision.record.answer, decision.record.state) == ({"id": 7}, "accepted")


async def test_replay_gives_the_job_whatever_has_become_of_it(lab: Lab) -> None:
    job = await lab.submit(ONE)
    assert await give(lab, await begun(lab, replay(turn_seconds=60)), job)
    statuses = []
    for end in (lab.cancel, None):
        decision = await decide(lab, replay(turn_seconds=60))
        assert isinstance(decision, Replay)
        assert decision.record.job_id == job
        statuses.append(decision.record.job_status)
        if end:
            await end(job)
    assert statuses == ["running", "cancelled"]


async def test_replay_binds_without_an_answer_unless_the_turn_has_an_end(lab: Lab) -> None:
    await begun(lab, replay())
    await pass_time(lab, 1e6)
    decision = await decide(lab, replay())
    assert isinstance(decision, Replay)
    assert (decision.record.answer, decision.record.answered_at) == (None, None)


async def test_a_turn_with_an_end_that_came_to_nothing_never_was(lab: Lab) -> None:
    first = await begun(lab, replay(turn_seconds=60))
    assert isinstance(await decide(lab, replay(turn_seconds=60)), Attach)
    await pass_time(lab, 61)
    second = await begun(lab, replay(turn_seconds=60))
    assert not await answer(lab, first, "late")
    assert await answer(lab, second, "in time")
    record = await find(lab)
    assert record is not None
    assert record.answer == "in time"


async def test_attach_joins_the_job_while_it_runs_and_begins_anew_after(lab: Lab) -> None:
    job = await lab.submit(ONE)
    fence = await begun(lab, attach())
    assert isinstance(await decide(lab, attach()), Attach), "somebody is at it, though not a job yet"
    assert await give(lab, fence, job)
    await pass_time(lab, 1e6)
    decision = await decide(lab, attach())
    assert isinstance(decision, Attach)
    assert decision.record.job_id == job
    await lab.cancel(job)
    assert await begun(lab, attach()) > fence


async def test_attach_replays_an_answer_that_was_recorded(lab: Lab) -> None:
    job = await lab.submit(ONE)
    fence = await begun(lab, attach(keep_seconds=60))
    await give(lab, fence, job)
    assert await answer(lab, fence, {"n": 1})
    await lab.cancel(job)
    decision = await decide(lab, attach(keep_seconds=60))
    assert isinstance(decision, Replay)
    assert decision.record.answer == {"n": 1}
    await pass_time(lab, 61)
    assert isinstance(await decide(lab, attach(keep_seconds=60)), New)


async def test_attach_goes_on_when_its_holder_vanished(lab: Lab) -> None:
    await begun(lab, attach(turn_seconds=60))
    await pass_time(lab, 59)
    assert isinstance(await decide(lab, attach(turn_seconds=60)), Attach)
    await pass_time(lab, 2)
    assert isinstance(await decide(lab, attach(turn_seconds=60)), New)


async def test_reject_refuses_the_same_payload_too_until_the_record_expires(lab: Lab) -> None:
    policy = reject(keep_seconds=900)
    fence = await begun(lab, policy)
    assert isinstance(await decide(lab, policy), Conflict)
    await pass_time(lab, 800)
    assert await answer(lab, fence, None)
    await pass_time(lab, 800)
    assert isinstance(await decide(lab, policy), Conflict), "its time began anew with the answer"
    await pass_time(lab, 101)
    assert isinstance(await decide(lab, policy), New)


async def test_hold_never_expires_and_ends_when_somebody_forgets_it(lab: Lab) -> None:
    await begun(lab, hold())
    await pass_time(lab, 1e9)
    assert await prune(lab) == 0
    assert isinstance(await decide(lab, hold()), Held)
    async with lab.db.transaction("forget") as tx:
        assert await idempotency.forget(tx, KEY)
        assert not await idempotency.forget(tx, KEY)
    assert isinstance(await decide(lab, hold()), New)


# -- turns ------------------------------------------------------------------------------------------------


async def test_a_turn_is_answered_once(lab: Lab) -> None:
    fence = await begun(lab, replay())
    assert await answer(lab, fence, 1)
    assert not await answer(lab, fence, 2)
    assert not await give_back(lab, fence)
    assert (await existing(lab)).answer == 1


async def test_a_new_turn_that_is_given_back_leaves_no_record(lab: Lab) -> None:
    fence = await begun(lab, replay())
    assert await give_back(lab, fence)
    assert await find(lab) is None
    assert await begun(lab, replay()) > fence


async def test_who_has_lost_the_turn_can_neither_give_it_back_nor_to_a_job(lab: Lab) -> None:
    job, policy = await lab.submit(ONE), attach(turn_seconds=60)
    zombie = await begun(lab, policy)
    await pass_time(lab, 61)
    fence = await begun(lab, policy)
    assert not await give_back(lab, zombie)
    assert not await give(lab, zombie, job)
    assert (await existing(lab)).job_id is None
    assert await answer(lab, fence, 1), "what the next one has begun stays with the next one"


async def test_who_has_lost_the_turn_to_refresh_cannot_give_it_back(lab: Lab) -> None:
    policy = cache(60, 600, turn_seconds=60)
    await answer(lab, await begun(lab, policy), 1)
    turns = []
    for _ in range(2):
        await pass_time(lab, 61)
        decision = await decide(lab, policy)
        assert isinstance(decision, Stale)
        assert decision.fence is not None
        turns.append(decision.fence)
    assert not await give_back(lab, turns[0])
    assert await answer(lab, turns[1], 2)
    assert (await existing(lab)).answer == 2


async def test_an_answer_waits_for_a_decision_and_comes_too_late(lab: Lab, eventually: Any) -> None:
    """The turn was over and is being given to another: the answer must not count as his."""
    policy = attach(turn_seconds=60)
    first = await begun(lab, policy)
    await pass_time(lab, 61)
    async with lab.db.transaction("decide") as tx:
        assert isinstance(await idempotency.decide(tx, KEY, AAA, policy), New)
        answering = asyncio.create_task(answer(lab, first, "late"))
        await eventually(lambda: lab.rows("select 1 from pg_locks where not granted"))
    assert not await answering


async def test_a_decision_waits_for_an_answer_that_is_being_committed(lab: Lab, eventually: Any) -> None:
    """Late, but nobody had taken the turn: what was done must not be done again."""
    policy = attach(turn_seconds=60)
    first = await begun(lab, policy)
    await pass_time(lab, 61)
    async with lab.db.transaction("answer") as tx:
        assert await idempotency.answer(tx, KEY, first, "late")
        deciding = asyncio.create_task(decide(lab, policy))
        await eventually(lambda: lab.rows("select 1 from pg_locks where not granted"))
    assert isinstance(await deciding, Replay)


async def test_only_a_job_that_lives_can_have_a_turn(lab: Lab) -> None:
    fence, job = await begun(lab, attach()), await lab.submit(ONE)
    await lab.cancel(job)
    with pytest.raises(AlreadyTerminal):
        await give(lab, fence, job)
    with pytest.raises(JobNotFound):
        await give(lab, fence, new_id())
    assert not await give(lab, fence + 1, await lab.submit(ONE))


async def test_an_answer_the_database_cannot_hold_is_refused(lab: Lab) -> None:
    fence = await begun(lab, replay())
    for value in (float("nan"), {1, 2}, "nul\0"):
        with pytest.raises(strict_json.InvalidJson):
            await answer(lab, fence, value)


# -- expiry -----------------------------------------------------------------------------------------------


async def test_a_record_that_expired_counts_no_more(lab: Lab) -> None:
    await begun(lab, replay(keep_seconds=60))
    await pass_time(lab, 59)
    assert isinstance(await decide(lab, replay()), Replay)
    await pass_time(lab, 2)
    assert await find(lab) is None
    assert isinstance(await decide(lab, replay(), BBB), New)


async def test_a_record_does_not_expire_while_its_job_runs(lab: Lab) -> None:
    job = await lab.submit(ONE)
    await give(lab, await begun(lab, replay(keep_seconds=60)), job)
    await pass_time(lab, 1e6)
    assert isinstance(await decide(lab, replay(keep_seconds=60)), Replay)
    assert await prune(lab) == 0
    await lab.cancel(job)
    assert await prune(lab) == 1


async def test_what_has_expired_is_pruned_in_batches_and_nothing_else(lab: Lab) -> None:
    for number in range(5):
        await begun(lab, replay(keep_seconds=60), Key("t", "old", str(number)))
    await pass_time(lab, 61)
    await begun(lab, replay(keep_seconds=60))
    await begun(lab, replay(), Key("t", "kept", "for ever"))
    assert [await prune(lab, 2) for _ in range(4)] == [2, 2, 1, 0]
    assert await lab.rows("select count(*) from cograil.idempotency") == [(2,)]


async def test_prune_passes_over_a_record_that_is_being_replaced(lab: Lab) -> None:
    await begun(lab, replay(keep_seconds=60))
    await pass_time(lab, 61)
    async with lab.db.transaction("decide") as tx:
        assert isinstance(await idempotency.decide(tx, KEY, AAA, replay()), New)
        assert await prune(lab) == 0
    assert await find(lab) is not None


async def test_a_zombie_of_a_pruned_turn_cannot_answer_the_next_one(lab: Lab) -> None:
    """Fences do not begin anew with a new row."""
    zombie = await begun(lab, replay(keep_seconds=60))
    await pass_time(lab, 61)
    assert await prune(lab) == 1
    await begun(lab, replay())
    assert not await answer(lab, zombie, "late")
