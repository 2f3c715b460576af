"""Moves on one idempotency record, each in a transaction of its own."""

from __future__ import annotations

from typing import Any

from lab import Lab

from cograil.verbs import idempotency
from cograil.verbs.idempotency import Decision, Key, New, Policy, Record

ONE = "workflow_id: w\nnodes:\n  a: {handler: echo}\n"
KEY = Key("default", "test", "k")
AAA = idempotency.fingerprint({"a": 1})
BBB = idempotency.fingerprint({"b": 1})


async def decide(lab: Lab, policy: Policy, fingerprint: str = AAA, key: Key = KEY) -> Decision:
    async with lab.db.transaction("decide") as tx:
        return await idempotency.decide(tx, key, fingerprint, policy)


async def begun(lab: Lab, policy: Policy, key: Key = KEY) -> int:
    """The fence of a turn that was new."""
    decision = await decide(lab, policy, key=key)
    assert isinstance(decision, New)
    return decision.fence


async def answer(lab: Lab, fence: int, value: Any, key: Key = KEY, **more: Any) -> bool:
    async with lab.db.transaction("answer") as tx:
        return await idempotency.answer(tx, key, fence, value, **more)


async def give(lab: Lab, fence: int, job_id: str, key: Key = KEY) -> bool:
    async with lab.db.transaction("give") as tx:
        return await idempotency.give(tx, key, fence, job_id)


async def give_back(lab: Lab, fence: int, key: Key = KEY) -> bool:
    async with lab.db.transaction("give_back") as tx:
        return await idempotency.give_back(tx, key, fence)


async def find(lab: Lab, key: Key = KEY) -> Record | None:
    async with lab.db.transaction("find") as tx:
        return await idempotency.find(tx, key)


async def existing(lab: Lab) -> Record:
    """The record, which must be there."""
    record = await find(lab)
    assert record is not None
    return record


async def prune(lab: Lab, limit: int = 1000) -> int:
    async with lab.db.transaction("prune") as tx:
        return await idempotency.prune(tx, limit)


async def pass_time(lab: Lab, seconds: float) -> None:
    """Let so much time go by for every record."""
    columns = ("turn_until", "answered_at", "expires_at", "created_at")
    moves = ", ".join(f"{column} = {column} - %(s)s * interval '1 second'" for column in columns)
    await lab.rows(f"update cograil.idempotency set {moves}", s=seconds)
