"""Limits: admit the held tasks and jobs that may begin now, and report when to look again.

A limit is decided under the advisory lock of its name, one transaction at a time. Used slots are not
stored as a counter. They are the tasks that are admitted and not gone, or the jobs that are admitted and
not finished, so a crashed process leaves nothing to give back. The first entry in a queue decides by the
limit it was created with; versions of a workflow may have different limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cograil.store import bucket_queries, limit_queries
from cograil.store.advisory_locks import lock_names
from cograil.store.database import Transaction
from cograil.store.limit_queries import HeldKey

MAX_ADMITTED = 1000
# Limits in one transaction. The server has a few thousand locks for all sessions together.
MAX_KEYS = 200


@dataclass(frozen=True, slots=True)
class FreeLimits:
    """Limits with held entries and, as far as seen without a lock, a free slot.

    `after` is the key from which to continue; None when there are no more keys.
    """

    keys: tuple[HeldKey, ...]
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """How many entries were admitted, and when to look again.

    `wait_seconds` is the time until a rate allows the next entry. `may_be_more` is True when another
    call may admit more at once.
    """

    admitted: int = 0
    wait_seconds: float | None = None
    may_be_more: bool = False


async def find_free(tx: Transaction, after: str = "") -> FreeLimits:
    """Return the limits behind this key that seem to have a free slot. Locks and writes nothing."""
    keys = await limit_queries.held_keys(tx, after, MAX_KEYS)
    last = keys[-1].key if len(keys) == MAX_KEYS else None
    return FreeLimits(tuple(held for held in keys if held.may_let_go), last)


async def admit(tx: Transaction, keys: Sequence[HeldKey]) -> Admission:
    """Admit what these limits allow now, up to `MAX_ADMITTED` entries in all.

    The names are locked in sorted order, which prevents deadlocks. Free slots are counted again under
    the lock, because they may have been taken since `find_free`.
    """
    await lock_names(tx, "limit", [(held.what, held.key) for held in keys])
    max_per_key = -(-MAX_ADMITTED // len(keys))
    allowed, waits = [], []
    for held in keys:
        slots, wait_seconds = await _count_free(tx, held, max_per_key)
        allowed.append((held, slots))
        if wait_seconds:
            waits.append(wait_seconds)
    admitted = await limit_queries.let_go(tx, [(held, slots) for held, slots in allowed if slots])
    may_be_more = admitted > 0 and any(slots == max_per_key for _, slots in allowed)
    return Admission(admitted, min(waits, default=None), may_be_more)


async def _count_free(tx: Transaction, held: HeldKey, limit: int) -> tuple[int, float]:
    """Return how many entries may begin now, and the seconds until the rate allows another one.

    The seconds are 0 when the rate is not what limits.
    """
    if held.rate is None:
        return min(limit, held.free or 0), 0.0  # the admitting statement counts again
    assert held.per_seconds is not None
    name, per_second = f"limit/{held.what}/{held.key}"[:500], held.rate / held.per_seconds
    capacity = max(1.0, held.rate)
    waiting = await limit_queries.lock_waiting(
        tx, held, limit
    )  # entries that ended or are not due take no token
    for taken in range(waiting):
        wait_seconds = await bucket_queries.take_tokens(tx, "default", name, capacity, per_second, 1)
        if wait_seconds:
            return taken, wait_seconds
    return waiting, 0.0
