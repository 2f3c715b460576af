"""Limits: let go what may begin now, and say when to look again.

A limit is decided under the lock of its name, one transaction at a time. Its places are not counted
anywhere: they are the tasks that are let go and not gone, or the jobs that are admitted and not
finished. So nothing has to be given back, whoever dies.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import orjson

from cograil.engine.limits import limit_name
from cograil.errors import InvalidInput, Problem
from cograil.model.job import JobState, TaskLimit
from cograil.model.workflow import RenderError, Workflow
from cograil.store import buckets, limits
from cograil.store.database import Transaction
from cograil.store.limits import HeldKey
from cograil.store.locking import lock_name
from cograil.store.writing import Batch, write_batch
from cograil.verbs.catalog import Catalog
from cograil.verbs.measuring import note_written

MOST_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Admission:
    """What was let go, and in how many seconds a rate allows the next one."""

    let_go: int = 0
    wait_seconds: float | None = None


async def write_and_hold(tx: Transaction, catalog: Catalog, batch: Batch, owner: int | None) -> None:
    """Write what was decided; new jobs under a limit of their workflow wait until they are admitted."""
    await write_batch(tx, batch, owner)
    tx.afterwards(partial(note_written, catalog.known, batch))
    for job in batch.held_jobs:
        await hold(tx, await catalog.get(tx, job.definition_id), job)


async def hold(tx: Transaction, workflow: Workflow, job: JobState) -> None:
    """A job that was just made waits until it is admitted. Raises InvalidInput for a key that is none."""
    limit = workflow.limit
    assert limit is not None
    try:
        key = None if limit.key is None else limit.key.render({"inputs": orjson.loads(job.input_text)})
        name = limit_name(job.tenant_id, workflow.workflow_id, "", key)
    except RenderError as error:
        raise InvalidInput([Problem(error.code, str(error), "/limits/key")]) from error
    await limits.hold_job(tx, job, TaskLimit(name, limit.concurrency, limit.rate, limit.per_seconds))


async def admit(tx: Transaction) -> Admission:
    """Let go whatever the limits allow now. Names are locked in their order, so nobody waits in a circle."""
    let_go, waits = 0, []
    for held in await limits.held_keys(tx):
        await lock_name(tx, "limit", held.what, held.key)
        places, wait_seconds = await _places(tx, held)
        if places or held.rate is not None:  # also for no place: what has ended is cleared away
            let_go += await limits.let_go(tx, held.what, held.key, places)
        if wait_seconds:
            waits.append(wait_seconds)
    return Admission(let_go, min(waits, default=None))


async def _places(tx: Transaction, held: HeldKey) -> tuple[int, float]:
    """How many may go now, and seconds until the rate allows another (0 when it is not the rate)."""
    places = min(held.waiting, MOST_AT_ONCE)
    if held.concurrency is not None:
        taken = len(await limits.holders(tx, held.what, held.key))
        places = max(0, min(places, held.concurrency - taken))
    if held.rate is None or not places:
        return places, 0.0
    return await _take_tokens(tx, held, places)


async def _take_tokens(tx: Transaction, held: HeldKey, wanted: int) -> tuple[int, float]:
    assert held.rate is not None
    assert held.per_seconds is not None
    name, per_second = f"limit/{held.what}/{held.key}"[:500], held.rate / held.per_seconds
    capacity = max(1.0, held.rate)
    wanted = await limits.lock_waiting(tx, held.what, held.key, wanted)  # not for what is over or not yet due
    for taken in range(wanted):
        wait_seconds = await buckets.take_tokens(tx, "default", name, capacity, per_second, 1)
        if wait_seconds:
            return taken, wait_seconds
    return wanted, 0.0
