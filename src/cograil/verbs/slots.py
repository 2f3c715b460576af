"""Named slots: a maximum of holders at once, each a leased row of its own; never a counter.

A slot is held until its time is over, and a heartbeat extends it; or by a job, for as long as the job is not
finished. How many are held is counted when one is taken, so nothing has to be undone for a holder that
vanished. Take and give take the lock of the name until the transaction ends: slots of several names in
one transaction are taken in the order of the names.
"""

from __future__ import annotations

from cograil.store import slot_queries as store
from cograil.store.database import Transaction
from cograil.store.slot_queries import Full, Slot, SlotHolder
from cograil.verbs.name_checks import check_names, require_live_job

__all__ = ["Full", "Slot", "SlotHolder", "give", "heartbeat", "holders", "release", "take"]


async def take(
    tx: Transaction,
    name: str,
    limit: int,
    holder: str,
    seconds: float,
    job_id: str | None = None,
    *,
    tenant: str = "default",
) -> Slot | Full:
    """Take a slot if fewer than `limit` are held; else say who holds them.

    The limit is that of this call: after it was lowered nothing is given out until enough have left.
    A holder may have several. With `job_id` the job holds it and `seconds` do not count. Raises
    InvalidInput for a name that cannot be one, JobNotFound or AlreadyTerminal for a job that cannot hold
    anything.
    """
    check_names(name=name, holder=holder)
    await store.lock_slots(tx, tenant, name)
    if job_id is not None:
        await require_live_job(tx, tenant, job_id)
    return await store.take_slot(tx, tenant, name, limit, holder, seconds, job_id)


async def heartbeat(
    tx: Transaction, name: str, slot: Slot, seconds: float, *, tenant: str = "default"
) -> bool:
    """Hold it for so long from now. False: it is over, was released or taken; stop what it allowed."""
    return await store.heartbeat_slot(tx, tenant, name, slot, seconds)


async def give(tx: Transaction, name: str, slot: Slot, job_id: str, *, tenant: str = "default") -> bool:
    """Let a job hold it from now on. False: it was not held any more. Raises JobNotFound, AlreadyTerminal."""
    await store.lock_slots(tx, tenant, name)
    await require_live_job(tx, tenant, job_id)
    return await store.give_slot(tx, tenant, name, slot, job_id)


async def release(tx: Transaction, name: str, slot: Slot, *, tenant: str = "default") -> bool:
    """Free it at once. False: it was released before, or somebody else has it, and nothing changes."""
    return await store.release_slot(tx, tenant, name, slot)


async def holders(tx: Transaction, name: str, *, tenant: str = "default") -> tuple[SlotHolder, ...]:
    """Who holds one now, by number."""
    return await store.list_slots(tx, tenant, name)
