"""Moves on one idempotency record, each in a transaction of its own."""

from __future__ import annotations

from typing import Any

from tests.support.harness import Harness

from cograil.verbs import idempotency
from cograil.verbs.idempotency import Decision, Key, New, Policy, Record

ONE = "workflow_id: w\nnodes:\n  a: {handler: echo}\n"
KEY = Key("default", "test", "k")
AAA = idempotency.fingerprint({"a": 1})
BBB = idempotency.fingerprint({"b": 1})


async def decide(harness: Harness, policy: Policy, fingerprint: str = AAA, key: Key = KEY) -> Decision:
    async with harness.db.transaction("decide") as tx:
        return await idempotency.decide(tx, key, fingerprint, policy)


async def begin_turn(harness: Harness, policy: Policy, key: Key = KEY) -> int:
    """The fence of a turn that was new."""
    decision = await decide(harness, policy, key=key)
    assert isinstance(decision, New)
    return decision.fence


async def store_answer(harness: Harness, fence: int, value: Any, key: Key = KEY, **more: Any) -> bool:
    async with harness.db.transaction("answer") as tx:
        return await idempotency.answer(tx, key, fence, value, **more)


async def give_to_job(harness: Harness, fence: int, job_id: str, key: Key = KEY) -> bool:
    async with harness.db.transaction("give") as tx:
        return await idempotency.give(tx, key, fence, job_id)


async def give_back(harness: Harness, fence: int, key: Key = KEY) -> bool:
    async with harness.db.transaction("give_back") as tx:
        return await idempotency.give_back(tx, key, fence)


async def find(harness: Harness, key: Key = KEY) -> Record | None:
    async with harness.db.transaction("find") as tx:
        return await idempotency.find(tx, key)


async def load_record(harness: Harness) -> Record:
    """The record, which must be there."""
    record = await find(harness)
    assert record is not None
    return record


async def prune(harness: Harness, limit: int = 1000) -> int:
    async with harness.db.transaction("prune") as tx:
        return await idempotency.prune(tx, limit)


async def pass_time(harness: Harness, seconds: float) -> None:
    """Let so much time go by for every record."""
    columns = ("turn_until", "answered_at", "expires_at", "created_at")
    moves = ", ".join(f"{column} = {column} - %(s)s * interval '1 second'" for column in columns)
    await harness.rows(f"update cograil.idempotency set {moves}", s=seconds)
