"""Limits: the entries they hold, and the admission of the next ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from cograil.model.job import JobState, TaskLimit
from cograil.store.array_params import Columns, floats, ints, smallints, texts, uuids
from cograil.store.database import Transaction
from cograil.store.statements import statement

HELD_KEYS = statement("held_keys")
LOCK_WAITING = statement("lock_waiting")
LET_GO_TASKS = statement("let_go_tasks")
ADMIT_JOBS = statement("admit_jobs")
HOLD_JOBS = statement("hold_jobs")
LEAVE_LINES = statement("leave_lines")

ASKED = partial(Columns, "asked", key=texts, concurrency=ints, rate=floats, per_seconds=floats, places=ints)
HELD = partial(
    Columns,
    "held",
    job_id=uuids,
    tenant_id=texts,
    key=texts,
    concurrency=ints,
    rate=floats,
    per_seconds=floats,
    rank=smallints,
)


class HeldKey(NamedTuple):
    """A limit that holds entries, as the first entry in line defines it. `what` is task or job."""

    what: str
    key: str
    concurrency: int | None
    rate: float | None
    per_seconds: float | None
    free: int | None  # free slots at the time of the query; None: any number

    @property
    def may_let_go(self) -> bool:
        return self.free is None or self.free > 0


async def held_keys(tx: Transaction, after: str, most: int) -> list[HeldKey]:
    """Return the next limits after this key that hold entries, in the order in which to lock them."""
    return [HeldKey(*row) for row in await tx.fetch(HELD_KEYS, after=after, most=most)]


async def lock_waiting(tx: Transaction, held: HeldKey, places: int) -> int:
    """Return how many entries may start now, at most `limit`. Locks them until the transaction ends."""
    params = held._asdict() | {"places": places}
    params.pop("free")
    return int(await tx.fetch_value(LOCK_WAITING, **params))


async def let_go(tx: Transaction, allowed: Sequence[tuple[HeldKey, int]]) -> int:
    """Admit up to the given number of entries under each limit, never more than its free slots; return how
    many.
    """
    let_go = 0
    for what, chosen in (("task", LET_GO_TASKS), ("job", ADMIT_JOBS)):
        requests = ASKED()
        requests.rows += [
            (held.key, held.concurrency, held.rate, held.per_seconds, places)
            for held, places in allowed
            if held.what == what
        ]
        if requests.rows:
            let_go += int(await tx.fetch_value(chosen, **requests.params()))
    return let_go


async def hold_jobs(tx: Transaction, jobs: Sequence[tuple[JobState, TaskLimit]]) -> None:
    """Hold these new jobs until they are admitted."""
    held = HELD()
    held.rows += [(job.job_id, job.tenant_id, *limit, -job.priority) for job, limit in jobs]
    await tx.execute(HOLD_JOBS, **held.params())


async def leave_lines(tx: Transaction, ids: Sequence[str]) -> None:
    """Remove these jobs, which end here, from the queues of their limits and free their slots."""
    await tx.execute(LEAVE_LINES, ids=uuids(ids))
