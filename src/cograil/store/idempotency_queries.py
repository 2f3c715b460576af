"""Idempotency records: what was asked under a key, who is at it, and what was answered."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from cograil.store.advisory_locks import lock_name
from cograil.store.database import Transaction
from cograil.store.statements import statement

FIND_RECORD = statement("find_record")
OPEN_RECORD = statement("open_record")
REFRESH_RECORD = statement("refresh_record")
GIVE_RECORD = statement("give_record")
ANSWER_RECORD = statement("answer_record")
GIVE_BACK_RECORD = statement("give_back_record")
FORGET_RECORD = statement("forget_record")
PRUNE_RECORDS = statement("prune_records")


class Key(NamedTuple):
    """What a caller chose, within a scope (a route, a kind of work) of a tenant."""

    tenant: str
    scope: str
    key: str


@dataclass(frozen=True, slots=True)
class Record:
    """What is kept of a key."""

    fingerprint: str
    state: str
    job_id: str | None
    job_status: str | None  # None also for a job that is not kept any more
    answer: Any
    fence: int
    created_at: datetime
    answered_at: datetime | None
    expires_at: datetime | None


class Found(NamedTuple):
    """A record, and what the clock and its job say of it."""

    record: Record
    is_live: bool  # somebody is at it: its job has not ended, or its turn is not over
    is_bounded: bool  # its turn has an end
    is_expired: bool
    is_fresh: bool


async def lock_key(tx: Transaction, key: Key) -> None:
    """Be the only one who decides on this key."""
    await lock_name(tx, "idempotency", *key)


async def find_record(tx: Transaction, key: Key, fresh_seconds: float = 0.0) -> Found | None:
    """The record of this key, expired or not."""
    rows = await tx.fetch(FIND_RECORD, fresh=float(fresh_seconds), **key._asdict())
    if not rows:
        return None
    fingerprint, state, job, status, answer, *times = rows[0][:9]
    value = None if answer is None else orjson.loads(answer)
    return Found(Record(fingerprint, state, job, status, value, *times), *rows[0][9:])


async def open_record(
    tx: Transaction,
    key: Key,
    fingerprint: str,
    seen: int | None,
    turn_seconds: float | None,
    keep_seconds: float | None,
) -> int | None:
    """Begin a record, in place of the one with the fence that was seen; its fence, None for a lost race."""
    params = {"fingerprint": fingerprint, "seen": seen, "turn": turn_seconds, "keep": keep_seconds}
    rows = await tx.fetch(OPEN_RECORD, **params, **key._asdict())
    return int(rows[0][0]) if rows else None


async def refresh_record(tx: Transaction, key: Key, seen: int, turn_seconds: float | None) -> int | None:
    """Begin another turn, the answer stays; its fence, None for a lost race."""
    rows = await tx.fetch(REFRESH_RECORD, seen=seen, turn=turn_seconds, **key._asdict())
    return int(rows[0][0]) if rows else None


async def give_record(tx: Transaction, key: Key, fence: int, job_id: str) -> bool:
    """Let the job do this turn; whether it was still open. Under the lock of the key."""
    return await tx.execute(GIVE_RECORD, fence=fence, job=job_id, **key._asdict()) == 1


async def answer_record(tx: Transaction, key: Key, fence: int, answer: bytes, state: str) -> bool:
    """Record the answer; whether this turn was the latest and had none. Under the lock of the key."""
    params = {"fence": fence, "answer": answer.decode(), "state": state}
    return await tx.execute(ANSWER_RECORD, **params, **key._asdict()) == 1


async def give_back_record(tx: Transaction, key: Key, fence: int) -> bool:
    """End this turn without an answer; whether it was still open. Under the lock of the key."""
    return bool(await tx.fetch(GIVE_BACK_RECORD, fence=fence, **key._asdict()))


async def forget_record(tx: Transaction, key: Key) -> bool:
    """Remove it; whether it was there. Under the lock of the key."""
    return await tx.execute(FORGET_RECORD, **key._asdict()) == 1


async def prune_records(tx: Transaction, limit: int) -> int:
    """Remove up to so many that have expired; how many that were."""
    return await tx.execute(PRUNE_RECORDS, limit=limit)
