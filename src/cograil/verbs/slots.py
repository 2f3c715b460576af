"""Named slots: at most `limit` holders at once. Each holder is a leased row; there is no counter.

A slot ends at its time, which a heartbeat extends; a slot that a job holds ends with the job. Held slots
are counted at each take, so a crashed holder needs no cleanup. Take and give lock the name until the
transaction ends; take slots of several names in one transaction in the order of the names.
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
    """Take a slot if fewer than `limit` are held; otherwise return the holders.

    The limit is that of this call: after it was lowered, no slot is granted until enough are free. A holder
    may have several. With `job_id` the job holds it and `seconds` do not count. Raises InvalidInput for an
    invalid name, JobNotFound or AlreadyTerminal for a job that cannot hold a slot.
    """
    check_names(name=name, holder=holder)
    await store.lock_slots(tx, tenant, name)
    if job_id is not None:
        await require_live_job(tx, tenant, job_id)
    return await store.take_slot(tx, tenant, name, limit, holder, seconds, job_id)


async def heartbeat(
    tx: Transaction, name: str, slot: Slot, seconds: float, *, tenant: str = "default"
) -> bool:
    """Extend the slot. Returns False when it has expired, was released or taken: stop the work it allows."""
    return await store.heartbeat_slot(tx, tenant, name, slot, seconds)


async def give(tx: Transaction, name: str, slot: Slot, job_id: str, *, tenant: str = "default") -> bool:
    """Transfer the slot to a job. Returns False when it was not held any more. Raises JobNotFound,
    AlreadyTerminal.
    """
    await store.lock_slots(tx, tenant, name)
    await require_live_job(tx, tenant, job_id)
    return await store.give_slot(tx, tenant, name, slot, job_id)


async def release(tx: Transaction, name: str, slot: Slot, *, tenant: str = "default") -> bool:
    """Release the slot. Returns False and changes nothing when it was released or taken by another holder."""
    return await store.release_slot(tx, tenant, name, slot)


async def holders(tx: Transaction, name: str, *, tenant: str = "default") -> tuple[SlotHolder, ...]:
    """Return the current holders, by number."""
    return await store.list_slots(tx, tenant, name)
