"""Named slots: a row for each number of a name, kept for its fence."""

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
    """One of a limited number is yours; say number and fence in whatever you do with it."""

    number: int
    fence: int


@dataclass(frozen=True, slots=True)
class SlotHolder:
    """Who has one: until then, or while that job lives."""

    number: int
    fence: int
    holder: str
    job_id: str | None
    lease_until: datetime | None


@dataclass(frozen=True, slots=True)
class Full:
    """No slot is free; these have them."""

    holders: tuple[SlotHolder, ...]


async def lock_slots(tx: Transaction, tenant: str, name: str) -> None:
    """Be the only one who decides who gets one."""
    await lock_name(tx, "slots", tenant, name)


async def take_slot(
    tx: Transaction, tenant: str, name: str, limit: int, holder: str, seconds: float, job_id: str | None
) -> Slot | Full:
    """Take the lowest free one if fewer than `limit` are held; under their lock."""
    params = {"tenant": tenant, "name": name, "limit": limit, "holder": holder, "job": job_id}
    rows = await tx.fetch(TAKE_SLOT, seconds=float(seconds), **params)
    if rows and rows[0][2]:
        return Slot(rows[0][0], rows[0][1])
    return Full(tuple(SlotHolder(row[0], row[1], *row[3:]) for row in rows))


async def heartbeat_slot(tx: Transaction, tenant: str, name: str, slot: Slot, seconds: float) -> bool:
    """Extend it; whether it was still held."""
    params = {"tenant": tenant, "name": name, "number": slot.number, "fence": slot.fence}
    return await tx.execute(HEARTBEAT_SLOT, seconds=float(seconds), **params) == 1


async def give_slot(tx: Transaction, tenant: str, name: str, slot: Slot, job_id: str) -> bool:
    """Let the job hold it from now on; whether it was still held. Under their lock."""
    params = {"tenant": tenant, "name": name, "number": slot.number, "fence": slot.fence}
    return await tx.execute(GIVE_SLOT, job=job_id, **params) == 1


async def release_slot(tx: Transaction, tenant: str, name: str, slot: Slot) -> bool:
    """Free it; whether it was still this holder's."""
    params = {"tenant": tenant, "name": name, "number": slot.number, "fence": slot.fence}
    return await tx.execute(RELEASE_SLOT, **params) == 1


async def list_slots(tx: Transaction, tenant: str, name: str) -> tuple[SlotHolder, ...]:
    """Who holds one now."""
    rows = await tx.fetch(LIST_SLOTS, tenant=tenant, name=name)
    return tuple(SlotHolder(*row) for row in rows)
