"""Idempotency records: the request under a key, the current turn, and the answer."""

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
    """The key that a caller chose, within a scope (a route, a kind of work) of a tenant."""

    tenant: str
    scope: str
    key: str


@dataclass(frozen=True, slots=True)
class Record:
    """The stored record of a key."""

    fingerprint: str
    state: str
    job_id: str | None
    job_status: str | None  # None also when the job was deleted
    answer: Any
    fence: int
    created_at: datetime
    answered_at: datetime | None
    expires_at: datetime | None


class RecordState(NamedTuple):
    """A record and its state by the clock and its job."""

    record: Record
    is_live: bool  # a turn is in progress: its job has not ended, or its time is not over
    is_bounded: bool  # the turn has a time limit
    is_expired: bool
    is_fresh: bool


async def lock_key(tx: Transaction, key: Key) -> None:
    """Lock this key until the transaction ends."""
    await lock_name(tx, "idempotency", *key)


async def find_record(tx: Transaction, key: Key, fresh_seconds: float = 0.0) -> RecordState | None:
    """Return the record of this key, expired or not; None when there is none."""
    rows = await tx.fetch_named(FIND_RECORD, fresh=float(fresh_seconds), **key._asdict())
    for row in rows:
        record = Record(
            fingerprint=row.fingerprint,
            state=row.state,
            job_id=row.job_id,
            job_status=row.job_status,
            answer=None if row.answer is None else orjson.loads(row.answer),
            fence=row.fence,
            created_at=row.created_at,
            answered_at=row.answered_at,
            expires_at=row.expires_at,
        )
        return RecordState(record, row.is_live, row.is_bounded, row.is_expired, row.is_fresh)
    return None


async def open_record(
    tx: Transaction,
    key: Key,
    fingerprint: str,
    seen: int | None,
    turn_seconds: float | None,
    keep_seconds: float | None,
) -> int | None:
    """Start a record in place of the one with fence `seen`; return its fence, None for a lost race."""
    params = {"fingerprint": fingerprint, "seen": seen, "turn": turn_seconds, "keep": keep_seconds}
    rows = await tx.fetch(OPEN_RECORD, **params, **key._asdict())
    return next((int(fence) for (fence,) in rows), None)


async def refresh_record(tx: Transaction, key: Key, seen: int, turn_seconds: float | None) -> int | None:
    """Start another turn and keep the answer; return its fence, None for a lost race."""
    rows = await tx.fetch(REFRESH_RECORD, seen=seen, turn=turn_seconds, **key._asdict())
    return next((int(fence) for (fence,) in rows), None)


async def give_record(tx: Transaction, key: Key, fence: int, job_id: str) -> bool:
    """Hand this turn to the job; return whether it was still open. Requires the lock of the key."""
    return await tx.execute(GIVE_RECORD, fence=fence, job=job_id, **key._asdict()) == 1


async def answer_record(tx: Transaction, key: Key, fence: int, answer: bytes, state: str) -> bool:
    """Store the answer; return whether this turn was the latest and had none. Requires the lock of the key."""
    params = {"fence": fence, "answer": answer.decode(), "state": state}
    return await tx.execute(ANSWER_RECORD, **params, **key._asdict()) == 1


async def give_back_record(tx: Transaction, key: Key, fence: int) -> bool:
    """End this turn without an answer; return whether it was still open. Requires the lock of the key."""
    return bool(await tx.fetch(GIVE_BACK_RECORD, fence=fence, **key._asdict()))


async def forget_record(tx: Transaction, key: Key) -> bool:
    """Delete the record; return whether it existed. Requires the lock of the key."""
    return await tx.execute(FORGET_RECORD, **key._asdict()) == 1


async def prune_records(tx: Transaction, limit: int) -> int:
    """Delete up to `limit` expired records; return how many."""
    return await tx.execute(PRUNE_RECORDS, limit=limit)
