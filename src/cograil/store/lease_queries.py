"""Named leases: one row for each name; a free row stays for its fence."""

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
    """The caller holds the lease; pass the fence in every later call."""

    fence: int


@dataclass(frozen=True, slots=True)
class Taken:
    """Another holder has the lease, until `lease_until` or until the job ends."""

    holder: str
    job_id: str | None
    lease_until: datetime | None
    fence: int


async def lock_lease(tx: Transaction, tenant: str, name: str) -> None:
    """Lock this name until the transaction ends."""
    await lock_name(tx, "lease", tenant, name)


async def acquire_lease(
    tx: Transaction, tenant: str, name: str, holder: str, seconds: float, job_id: str | None
) -> Acquired | Taken:
    """Take the lease if it is free. Requires `lock_lease`."""
    params = {"tenant": tenant, "name": name, "holder": holder, "seconds": float(seconds), "job": job_id}
    ((is_ours, other, job, until, fence),) = await tx.fetch(ACQUIRE_LEASE, **params)
    return Acquired(fence) if is_ours else Taken(other, job, until, fence)


async def heartbeat_lease(tx: Transaction, tenant: str, name: str, fence: int, seconds: float) -> bool:
    """Extend the lease; return whether it was still held."""
    params = {"tenant": tenant, "name": name, "fence": fence, "seconds": float(seconds)}
    return await tx.execute(HEARTBEAT_LEASE, **params) == 1


async def give_lease(tx: Transaction, tenant: str, name: str, fence: int, job_id: str) -> bool:
    """Transfer the lease to the job; return whether it was still held. Requires `lock_lease`."""
    return await tx.execute(GIVE_LEASE, tenant=tenant, name=name, fence=fence, job=job_id) == 1


async def release_lease(tx: Transaction, tenant: str, name: str, fence: int) -> bool:
    """Free the lease; return whether this holder still had it."""
    return await tx.execute(RELEASE_LEASE, tenant=tenant, name=name, fence=fence) == 1


async def check_lease(tx: Transaction, tenant: str, name: str, fence: int) -> bool:
    """Return whether the lease is held with this fence; it cannot be taken over until the transaction ends."""
    return bool(await tx.fetch(CHECK_LEASE, tenant=tenant, name=name, fence=fence))


async def find_lease(tx: Transaction, tenant: str, name: str) -> Taken | None:
    """Return the current holder, or None."""
    rows = await tx.fetch(FIND_LEASE, tenant=tenant, name=name)
    return next((Taken(*row) for row in rows), None)
