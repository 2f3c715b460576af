"""Named leases: one holder at a time, by PostgreSQL's clock, each with a higher fence than the last.

A lease ends at its time, which a heartbeat extends. A lease that a job holds ends with the job and needs
neither heartbeats nor a release. A caller that finds the lease taken gets the holder's job and can attach
to it. Acquire and give lock the name until the transaction ends; take several leases of one transaction in
the order of their names.
"""

from __future__ import annotations

from cograil.store import lease_queries as store
from cograil.store.database import Transaction
from cograil.store.lease_queries import Acquired, Taken
from cograil.verbs.name_checks import check_names, require_live_job

__all__ = ["Acquired", "Taken", "acquire", "check", "find", "give", "heartbeat", "release"]


async def acquire(
    tx: Transaction,
    name: str,
    holder: str,
    seconds: float,
    job_id: str | None = None,
    *,
    tenant: str = "default",
) -> Acquired | Taken:
    """Take the lease if it is free: never held, released, expired, or its job has ended.

    With `job_id` the job holds it and `seconds` do not count. A holder cannot take its own lease again;
    after a lost commit response it finds its own name in `Taken`, with the fence. Raises InvalidInput for
    an invalid name, JobNotFound or AlreadyTerminal for a job that cannot hold a lease.
    """
    check_names(name=name, holder=holder)
    await store.lock_lease(tx, tenant, name)
    if job_id is not None:
        await require_live_job(tx, tenant, job_id)
    return await store.acquire_lease(tx, tenant, name, holder, seconds, job_id)


async def heartbeat(
    tx: Transaction, name: str, fence: int, seconds: float, *, tenant: str = "default"
) -> bool:
    """Extend the lease. Returns False when it has expired, was released or taken: stop the work it
    protects.

    An expired lease stays expired, even when it was not taken since. For a lease of a job: returns whether
    the job is open.
    """
    return await store.heartbeat_lease(tx, tenant, name, fence, seconds)


async def give(tx: Transaction, name: str, fence: int, job_id: str, *, tenant: str = "default") -> bool:
    """Transfer the lease to a job, with the same fence. Returns False when the lease was not held any more.

    Use it for a job that is submitted because the lease was free. Raises JobNotFound or AlreadyTerminal.
    """
    await store.lock_lease(tx, tenant, name)
    await require_live_job(tx, tenant, job_id)
    return await store.give_lease(tx, tenant, name, fence, job_id)


async def release(tx: Transaction, name: str, fence: int, *, tenant: str = "default") -> bool:
    """Release the lease. Returns False and changes nothing when it was released or taken by another holder."""
    return await store.release_lease(tx, tenant, name, fence)


async def check(tx: Transaction, name: str, fence: int, *, tenant: str = "default") -> bool:
    """Return whether it is held with this fence; if so, it cannot be taken before this transaction ends.

    The writes of the transaction are therefore protected by the lease until it commits.
    """
    return await store.check_lease(tx, tenant, name, fence)


async def find(tx: Transaction, name: str, *, tenant: str = "default") -> Taken | None:
    """Return the current holder; None when the lease is free."""
    return await store.find_lease(tx, tenant, name)
