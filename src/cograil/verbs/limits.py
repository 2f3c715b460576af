"""Limits: let go what may begin now, and say when to look again.

A limit is decided under the lock of its name, one transaction at a time. Its places are not counted
anywhere: they are the tasks that are let go and not gone, or the jobs that are admitted and not
finished. So nothing has to be given back, whoever dies. Whoever is the first in line goes by the limit
that he was made with; versions of a workflow may differ in that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import orjson

from cograil.model.job import JobState, TaskLimit
from cograil.store import bucket_queries, limit_queries
from cograil.store.advisory_locks import lock_names
from cograil.store.database import Transaction
from cograil.store.limit_queries import HeldKey
from cograil.store.write_batch import Batch, write_batch
from cograil.verbs.definition_cache import Catalog
from cograil.verbs.new_job import limit_of_new
from cograil.verbs.telemetry import note_written

MAX_AT_ONCE = 1000
# So many limits in one transaction: the server keeps a few thousand locks for everybody together.
KEYS_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Look:
    """Limits that hold something back and seem to have a place; there are others behind the key `after`."""

    free: tuple[HeldKey, ...]
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """What was let go, in how many seconds a rate allows the next one, whether another look is worth it."""

    let_go: int = 0
    wait_seconds: float | None = None
    may_be_more: bool = False


async def write_and_hold(tx: Transaction, catalog: Catalog, batch: Batch, owner: int | None) -> None:
    """Write what was decided; new jobs under a limit of their workflow wait until they are admitted.

    Those that end leave the line, or their place. Orchestrators look themselves who comes next; anybody
    else (`owner` None) calls one, or the next in line would wait for a tick.
    """
    ending = {one: await catalog.get(tx, one) for one in {state.definition_id for state, _ in batch.finished}}
    batch.has_held |= owner is None and any([workflow.has_limits for workflow in ending.values()])
    left = [state.job_id for state, _ in batch.finished if ending[state.definition_id].limit is not None]
    await write_batch(tx, batch, owner)
    tx.afterwards(partial(note_written, catalog.known, batch))
    if batch.held_jobs:
        held = [(job, await _limit_of(tx, catalog, job)) for job in batch.held_jobs]
        await limit_queries.hold_jobs(tx, held)
    if left:
        await limit_queries.leave_lines(tx, left)


async def _limit_of(tx: Transaction, catalog: Catalog, job: JobState) -> TaskLimit:
    workflow = await catalog.get(tx, job.definition_id)
    limit = limit_of_new(job.tenant_id, workflow, orjson.loads(job.input_text))
    assert limit is not None
    return limit


async def look(tx: Transaction, after: str = "") -> Look:
    """Which of the next limits behind this key seem to have a place. It locks nothing and writes nothing."""
    found = await limit_queries.held_keys(tx, after, KEYS_AT_ONCE)
    last = found[-1].key if len(found) == KEYS_AT_ONCE else None
    return Look(tuple(held for held in found if held.may_let_go), last)


async def admit(tx: Transaction, free: Sequence[HeldKey]) -> Admission:
    """Let go what these limits allow now, some of them at least, in the order in which they were found.

    Names are locked in their order, so nobody waits in a circle. What the look saw may have changed by
    then: who has a place is counted again under the lock.
    """
    await lock_names(tx, "limit", [(held.what, held.key) for held in free])
    most = -(-MAX_AT_ONCE // len(free))
    allowed, waits = [], []
    for held in free:
        places, wait_seconds = await _places(tx, held, most)
        allowed.append((held, places))
        if wait_seconds:
            waits.append(wait_seconds)
    let_go = await limit_queries.let_go(tx, [(held, places) for held, places in allowed if places])
    may_be_more = let_go > 0 and any(places == most for _, places in allowed)
    return Admission(let_go, min(waits, default=None), may_be_more)


async def _places(tx: Transaction, held: HeldKey, most: int) -> tuple[int, float]:
    """How many may go now, and seconds until the rate allows another (0 when it is not the rate)."""
    if held.rate is None:
        return min(most, held.free or 0), 0.0  # letting go counts again who has a place
    assert held.per_seconds is not None
    name, per_second = f"limit/{held.what}/{held.key}"[:500], held.rate / held.per_seconds
    capacity = max(1.0, held.rate)
    wanted = await limit_queries.lock_waiting(tx, held, most)  # no token for what is over or not yet due
    for taken in range(wanted):
        wait_seconds = await bucket_queries.take_tokens(tx, "default", name, capacity, per_second, 1)
        if wait_seconds:
            return taken, wait_seconds
    return wanted, 0.0
