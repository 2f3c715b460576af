"""Named slots: one row for each number of a name; free rows stay for their fence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cograil.store.advisory_locks import lock_name
from cograil.store.database import Transaction
from cograil.store.statements import statement

TAKE_SLOT = statement("take_slot")
HEARTBEAT_SLOT = statement("heartbeat_slot")
GIVE_SLOT = statement("give_slot")
RELEASE_SLOT = statement("release_slot")
LIST_SLOTS = statement("list_slots")


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot that the caller holds; pass number and fence in every later call."""

    number: int
    fence: int


@dataclass(frozen=True, slots=True)
class SlotHolder:
    """The holder of a slot, until `lease_until` or until the job ends."""

    number: int
    fence: int
    holder: str
    job_id: str | None
    lease_until: datetime | None


@dataclass(frozen=True, slots=True)
class Full:
    """No slot is free; these hold them."""

    holders: tuple[SlotHolder, ...]


async def lock_slots(tx: Transaction, tenant: str, name: str) -> None:
    """Lock the slots of this name until the transaction ends."""
    await lock_name(tx, "slots", tenant, name)


async def take_slot(
    tx: Transaction, tenant: str, name: str, limit: int, holder: str, seconds: float, job_id: str | None
) -> Slot | Full:
    """Take the lowest free slot if fewer than `limit` are held. Requires `lock_slots`."""
    params = {"tenant": tenant, "name": name, "limit": limit, "holder": holder, "job": job_id}
    rows = await tx.fetch(TAKE_SLOT, seconds=float(seconds), **params)
    holders = []
    for number, fence, is_taken, *columns in rows:
        if is_taken:
            return Slot(number, fence)
        holders.append(SlotHolder(number, fence, *columns))
    return Full(tuple(holders))


async def heartbeat_slot(tx: Transaction, tenant: str, name: str, slot: Slot, seconds: float) -> bool:
    """Extend the lease; return whether the slot was still held."""
    params = {"tenant": tenant, "name": name, "number": slot.number, "fence": slot.fence}
    return await tx.execute(HEARTBEAT_SLOT, seconds=float(seconds), **params) == 1


async def give_slot(tx: Transaction, tenant: str, name: str, slot: Slot, job_id: str) -> bool:
    """Transfer the slot to the job; return whether it was still held. Requires `lock_slots`."""
    params = {"tenant": tenant, "name": name, "number": slot.number, "fence": slot.fence}
    return await tx.execute(GIVE_SLOT, job=job_id, **params) == 1


async def release_slot(tx: Transaction, tenant: str, name: str, slot: Slot) -> bool:
    """Free the slot; return whether this holder still had it."""
    params = {"tenant": tenant, "name": name, "number": slot.number, "fence": slot.fence}
    return await tx.execute(RELEASE_SLOT, **params) == 1


async def list_slots(tx: Transaction, tenant: str, name: str) -> tuple[SlotHolder, ...]:
    """Return the current holders."""
    rows = await tx.fetch(LIST_SLOTS, tenant=tenant, name=name)
    return tuple(SlotHolder(*row) for row in rows)
