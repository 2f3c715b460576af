"""Named leases: one row for each name, kept for its fence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cograil.store.advisory_locks import lock_name
from cograil.store.database import Transaction
from cograil.store.statements import statement

ACQUIRE_LEASE = statement("acquire_lease")
HEARTBEAT_LEASE = statement("heartbeat_lease")
GIVE_LEASE = statement("give_lease")
RELEASE_LEASE = statement("release_lease")
CHECK_LEASE = statement("check_lease")
FIND_LEASE = statement("find_lease")


@dataclass(frozen=True, slots=True)
class Acquired:
    """The lease is yours; say its fence in whatever you do with it."""

    fence: int


@dataclass(frozen=True, slots=True)
class Taken:
    """Somebody has it: until then, or while that job lives, which one may attach to."""

    holder: str
    job_id: str | None
    lease_until: datetime | None
    fence: int


async def lock_lease(tx: Transaction, tenant: str, name: str) -> None:
    """Be the only one who decides who gets it."""
    await lock_name(tx, "lease", tenant, name)


async def acquire_lease(
    tx: Transaction, tenant: str, name: str, holder: str, seconds: float, job_id: str | None
) -> Acquired | Taken:
    """Take it if it is free; under its lock."""
    params = {"tenant": tenant, "name": name, "holder": holder, "seconds": float(seconds), "job": job_id}
    is_mine, *row = (await tx.fetch(ACQUIRE_LEASE, **params))[0]
    return Acquired(row[-1]) if is_mine else Taken(*row)


async def heartbeat_lease(tx: Transaction, tenant: str, name: str, fence: int, seconds: float) -> bool:
    """Extend it; whether it was still held."""
    params = {"tenant": tenant, "name": name, "fence": fence, "seconds": float(seconds)}
    return await tx.execute(HEARTBEAT_LEASE, **params) == 1


async def give_lease(tx: Transaction, tenant: str, name: str, fence: int, job_id: str) -> bool:
    """Let the job hold it from now on; whether it was still held. Under its lock."""
    return await tx.execute(GIVE_LEASE, tenant=tenant, name=name, fence=fence, job=job_id) == 1


async def release_lease(tx: Transaction, tenant: str, name: str, fence: int) -> bool:
    """Free it; whether it was still this holder's."""
    return await tx.execute(RELEASE_LEASE, tenant=tenant, name=name, fence=fence) == 1


async def check_lease(tx: Transaction, tenant: str, name: str, fence: int) -> bool:
    """Whether it is held with this fence; nobody takes it over before the transaction ends."""
    return bool(await tx.fetch(CHECK_LEASE, tenant=tenant, name=name, fence=fence))


async def find_lease(tx: Transaction, tenant: str, name: str) -> Taken | None:
    """Who holds it now."""
    rows = await tx.fetch(FIND_LEASE, tenant=tenant, name=name)
    return Taken(*rows[0]) if rows else None
