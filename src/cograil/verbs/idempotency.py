"""Idempotency: what is asked twice under one key is done once.

A key has a record with the fingerprint of the request. The caller that gets `New` (or a refresh) has the
turn and its fence: he does the work, lets a job do it (`give`), records the answer (`answer`), or gives
the turn back. What the others are told is up to the policy:

    replay   the record, whatever has become of it
    attach   the record while somebody is at it; then its answer, or a new turn when there is none
    reject   Conflict, also for the same payload
    hold     Held, until somebody forgets the record; it never expires
    cache    the answer while it is fresh; then still the answer, and one caller refreshes it

Another fingerprint under the same key is always a Conflict. A record that has expired counts no more,
unless somebody is at it. Each move is made under the lock of the key, which the transaction keeps until
it ends; the unique index and the fence are the guarantee behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from cograil import strict_json
from cograil.canonical_json import fingerprint
from cograil.store import idempotency_queries as store
from cograil.store.database import Transaction
from cograil.store.idempotency_queries import Key, Record, RecordState
from cograil.verbs.name_checks import check_names, require_live_job

__all__ = [
    "Attach",
    "Conflict",
    "Decision",
    "Held",
    "Key",
    "New",
    "Policy",
    "Record",
    "Replay",
    "Stale",
    "answer",
    "attach",
    "cache",
    "decide",
    "find",
    "fingerprint",
    "forget",
    "give",
    "give_back",
    "hold",
    "lock",
    "prune",
    "reject",
    "replay",
]

TURN_SECONDS = 60.0
MAX_ANSWER_BYTES = 1024 * 1024


# -- policies ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Policy:
    """What somebody is told who asks again. Times count from the last move of the record."""

    kind: Literal["replay", "attach", "reject", "hold", "cache"]
    keep_seconds: float | None = None  # None: for ever
    turn_seconds: float | None = None  # None: a turn has no end
    fresh_seconds: float = 0.0


def replay(keep_seconds: float | None = None, turn_seconds: float | None = None) -> Policy:
    """The first answer for everybody. With `turn_seconds` a turn that has neither job nor answer by then
    counts as never begun; without, the record binds as soon as it is committed."""
    return Policy("replay", keep_seconds, turn_seconds)


def attach(keep_seconds: float | None = None, turn_seconds: float = TURN_SECONDS) -> Policy:
    """Join the request that is under way."""
    return Policy("attach", keep_seconds, turn_seconds)


def reject(keep_seconds: float | None = None) -> Policy:
    """Each key once."""
    return Policy("reject", keep_seconds)


def hold() -> Policy:
    """Each key once, and what comes again waits for somebody's decision."""
    return Policy("hold")


def cache(fresh_seconds: float, stale_seconds: float, turn_seconds: float = TURN_SECONDS) -> Policy:
    """The answer for so long; for `stale_seconds` more the old one while one caller refreshes it."""
    return Policy("cache", fresh_seconds + stale_seconds, turn_seconds, fresh_seconds)


# -- decisions --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class New:
    """Nobody has done it and nobody is at it: the turn is yours."""

    fence: int


@dataclass(frozen=True, slots=True)
class Replay:
    """It was asked before: here is what there is of it."""

    record: Record


@dataclass(frozen=True, slots=True)
class Attach:
    """Somebody is at it: `record.job_id`, if it is a job."""

    record: Record


@dataclass(frozen=True, slots=True)
class Conflict:
    """The key is used, by another payload if `record.fingerprint` differs."""

    record: Record


@dataclass(frozen=True, slots=True)
class Held:
    """It was asked before, and asking again needs a decision."""

    record: Record


@dataclass(frozen=True, slots=True)
class Stale:
    """The answer is old and may be served. With a `fence` the turn to refresh it is yours."""

    record: Record
    fence: int | None = None

    @property
    def must_refresh(self) -> bool:
        """Whether this caller is the one."""
        return self.fence is not None


Decision = New | Replay | Attach | Conflict | Held | Stale


async def decide(tx: Transaction, key: Key, fingerprint: str, policy: Policy) -> Decision:
    """What to do with this request; of any number that ask at once exactly one is told `New`.

    The others wait until that transaction ends, and one of them is next if it rolls back. Raises
    InvalidInput for a key that cannot be one.
    """
    check_names(**key._asdict())
    await store.lock_key(tx, key)
    while True:
        state = await store.find_record(tx, key, policy.fresh_seconds)
        decision = _judge(state, fingerprint, policy) or await _take_turn(tx, key, fingerprint, policy, state)
        if decision is not None:
            return decision
        # Somebody came past the lock, and the index or the fence stopped us: look again.


def _judge(state: RecordState | None, fingerprint: str, policy: Policy) -> Decision | None:
    """What the record says; None when the caller is to take a turn."""
    if state is None or (state.is_expired and not state.is_live):
        return None
    record = state.record
    if record.fingerprint != fingerprint or policy.kind == "reject":
        return Conflict(record)
    if policy.kind == "hold":
        return Held(record)
    if state.is_fresh if policy.kind == "cache" else _is_settled(state, policy):
        return Replay(record)
    if not state.is_live:
        return None
    return Stale(record) if _is_servable(state, policy) else Attach(record)


async def _take_turn(
    tx: Transaction, key: Key, fingerprint: str, policy: Policy, state: RecordState | None
) -> Decision | None:
    """Refresh an answer that can be served meanwhile, or begin the record anew; None for a lost race."""
    if state is not None and _is_servable(state, policy):
        fence = await store.refresh_record(tx, key, state.record.fence, policy.turn_seconds)
        return None if fence is None else Stale(state.record, fence)
    seen = None if state is None else state.record.fence
    fence = await store.open_record(tx, key, fingerprint, seen, policy.turn_seconds, policy.keep_seconds)
    return None if fence is None else New(fence)


def _is_servable(state: RecordState, policy: Policy) -> bool:
    return policy.kind == "cache" and state.record.answered_at is not None and not state.is_expired


def _is_settled(state: RecordState, policy: Policy) -> bool:
    """Whether the record is what there will be: for a replay also its job, or a turn without end."""
    if state.record.answered_at is not None:
        return True
    return policy.kind == "replay" and (state.record.job_id is not None or not state.is_bounded)


# -- the turn ---------------------------------------------------------------------------------------------


async def give(tx: Transaction, key: Key, fence: int, job_id: str) -> bool:
    """Let a job do this turn: it is under way while the job is not finished. False: it was over.

    Raises JobNotFound or AlreadyTerminal.
    """
    await store.lock_key(tx, key)
    await require_live_job(tx, key.tenant, job_id)
    return await store.give_record(tx, key, fence, job_id)


async def answer(
    tx: Transaction,
    key: Key,
    fence: int,
    value: Any,
    state: str = "answered",
    max_bytes: int = MAX_ANSWER_BYTES,
) -> bool:
    """Record the answer of this turn. False: somebody has a later turn, or this one was answered.

    Raises jsontext.InvalidJson for what the database cannot hold.
    """
    text = strict_json.write(value, max_bytes=max_bytes)
    await store.lock_key(tx, key)
    return await store.answer_record(tx, key, fence, text, state)


async def give_back(tx: Transaction, key: Key, fence: int) -> bool:
    """End this turn without an answer; who asks next has the next. False: it was over."""
    await store.lock_key(tx, key)
    return await store.give_back_record(tx, key, fence)


# -- the record -------------------------------------------------------------------------------------------


async def lock(tx: Transaction, key: Key) -> None:
    """Let nobody else decide on this key before the transaction ends; for who must look at rows of his own
    first, and takes locks in the order that all do."""
    await store.lock_key(tx, key)


async def find(tx: Transaction, key: Key) -> Record | None:
    """The record of this key while it counts, without deciding anything."""
    state = await store.find_record(tx, key)
    return None if state is None or (state.is_expired and not state.is_live) else state.record


async def forget(tx: Transaction, key: Key) -> bool:
    """Remove the record: the next who asks is `New`. False: there was none."""
    await store.lock_key(tx, key)
    return await store.forget_record(tx, key)


async def prune(tx: Transaction, limit: int = 1000) -> int:
    """Remove up to `limit` records that have expired; how many that were. Call again while it is `limit`."""
    return await store.prune_records(tx, limit)
