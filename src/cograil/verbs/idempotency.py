"""Idempotency: requests with the same key run once.

A key has a record with the fingerprint of the request. The caller that gets `New` (or a refresh) owns the
turn and its fence: it does the work, hands the turn to a job (`give`), records the answer (`answer`), or
releases the turn (`give_back`). The policy decides what other callers get:

    replay   the record, in any state
    attach   the record while the request is in progress; then its answer, or a new turn when there is none
    reject   Conflict, also for the same payload
    hold     Held, until `forget` removes the record; it never expires
    cache    the answer while it is fresh; then still the answer, and one caller refreshes it

Another fingerprint under the same key is always a Conflict. An expired record does not count, unless its
turn is still open. Each change is made under the lock of the key, which the transaction keeps until it
ends; the unique index and the fence guarantee it.
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
    """How repeated requests are answered. Times count from the last change of the record."""

    kind: Literal["replay", "attach", "reject", "hold", "cache"]
    keep_seconds: float | None = None  # None: for ever
    turn_seconds: float | None = None  # None: a turn has no end
    fresh_seconds: float = 0.0


def replay(keep_seconds: float | None = None, turn_seconds: float | None = None) -> Policy:
    """Give every caller the first answer. With `turn_seconds`, a turn that has neither a job nor an answer
    by then counts as never begun; without it, the record counts as soon as it is committed.
    """
    return Policy("replay", keep_seconds, turn_seconds)


def attach(keep_seconds: float | None = None, turn_seconds: float = TURN_SECONDS) -> Policy:
    """Join the request that is in progress."""
    return Policy("attach", keep_seconds, turn_seconds)


def reject(keep_seconds: float | None = None) -> Policy:
    """Accept each key once."""
    return Policy("reject", keep_seconds)


def hold() -> Policy:
    """Accept each key once; hold repeated requests until a person decides."""
    return Policy("hold")


def cache(fresh_seconds: float, stale_seconds: float, turn_seconds: float = TURN_SECONDS) -> Policy:
    """Serve the answer while it is fresh; for `stale_seconds` more, serve the old one while one caller
    refreshes it.
    """
    return Policy("cache", fresh_seconds + stale_seconds, turn_seconds, fresh_seconds)


# -- decisions --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class New:
    """The key is unused: the caller owns the turn."""

    fence: int


@dataclass(frozen=True, slots=True)
class Replay:
    """The key was used before; `record` holds the result."""

    record: Record


@dataclass(frozen=True, slots=True)
class Attach:
    """The request is in progress, by `record.job_id` if it is a job."""

    record: Record


@dataclass(frozen=True, slots=True)
class Conflict:
    """The key is used; if `record.fingerprint` differs, with another payload."""

    record: Record


@dataclass(frozen=True, slots=True)
class Held:
    """The key was used before, and a repetition needs a decision."""

    record: Record


@dataclass(frozen=True, slots=True)
class Stale:
    """The answer is old and may be served. With a `fence`, the caller owns the turn to refresh it."""

    record: Record
    fence: int | None = None

    @property
    def must_refresh(self) -> bool:
        """Whether this caller must refresh the answer."""
        return self.fence is not None


Decision = New | Replay | Attach | Conflict | Held | Stale


async def decide(tx: Transaction, key: Key, fingerprint: str, policy: Policy) -> Decision:
    """Decide how to handle this request. Of any number of concurrent requests exactly one gets `New`.

    The others wait until that transaction ends, and one of them is next if it rolls back. Raises
    InvalidInput for an invalid key.
    """
    check_names(**key._asdict())
    await store.lock_key(tx, key)
    while True:
        state = await store.find_record(tx, key, policy.fresh_seconds)
        decision = _judge(state, fingerprint, policy) or await _take_turn(tx, key, fingerprint, policy, state)
        if decision is not None:
            return decision
        # A transaction without the lock was faster, and the index or the fence stopped this one: read again.


def _judge(state: RecordState | None, fingerprint: str, policy: Policy) -> Decision | None:
    """Return the decision that the record implies; None when the caller is to take a turn."""
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
    """Refresh an answer that is served meanwhile, or restart the record. Returns None for a lost race."""
    if state is not None and _is_servable(state, policy):
        fence = await store.refresh_record(tx, key, state.record.fence, policy.turn_seconds)
        return None if fence is None else Stale(state.record, fence)
    seen = None if state is None else state.record.fence
    fence = await store.open_record(tx, key, fingerprint, seen, policy.turn_seconds, policy.keep_seconds)
    return None if fence is None else New(fence)


def _is_servable(state: RecordState, policy: Policy) -> bool:
    return policy.kind == "cache" and state.record.answered_at is not None and not state.is_expired


def _is_settled(state: RecordState, policy: Policy) -> bool:
    """Return whether the record is final. For a replay, a job or a turn without a timeout is final too."""
    if state.record.answered_at is not None:
        return True
    return policy.kind == "replay" and (state.record.job_id is not None or not state.is_bounded)


# -- the turn ---------------------------------------------------------------------------------------------


async def give(tx: Transaction, key: Key, fence: int, job_id: str) -> bool:
    """Hand this turn to a job: it is in progress until the job ends. Returns False when the turn was over.

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
    """Record the answer of this turn. Returns False when a later turn exists or this one was answered.

    Raises InvalidJson for an answer that the database cannot store.
    """
    text = strict_json.write(value, max_bytes=max_bytes)
    await store.lock_key(tx, key)
    return await store.answer_record(tx, key, fence, text, state)


async def give_back(tx: Transaction, key: Key, fence: int) -> bool:
    """End this turn without an answer, so that the next caller gets a turn. Returns False when it was over."""
    await store.lock_key(tx, key)
    return await store.give_back_record(tx, key, fence)


# -- the record -------------------------------------------------------------------------------------------


async def lock(tx: Transaction, key: Key) -> None:
    """Lock the key until the transaction ends, so that no other transaction decides on it. For callers that
    read rows of their own first and take locks in the global order.
    """
    await store.lock_key(tx, key)


async def find(tx: Transaction, key: Key) -> Record | None:
    """Return the record of this key, or None when there is none or it has expired. Decides nothing."""
    state = await store.find_record(tx, key)
    return None if state is None or (state.is_expired and not state.is_live) else state.record


async def forget(tx: Transaction, key: Key) -> bool:
    """Remove the record, so that the next caller gets `New`. Returns False when there was none."""
    await store.lock_key(tx, key)
    return await store.forget_record(tx, key)


async def prune(tx: Transaction, limit: int = 1000) -> int:
    """Remove up to `limit` expired records; return how many. Call again while it returns `limit`."""
    return await store.prune_records(tx, limit)
