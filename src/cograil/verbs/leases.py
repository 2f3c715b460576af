"""Named leases: one holder at a time, by PostgreSQL's clock, each with a higher fence than the last.

A lease is held until its time is over, and a heartbeat extends it; or by a job, and then for as long as the
job is not finished, without heartbeats and without anybody who would have to release it. A caller that finds it
taken learns the holder's job and can attach to that. Acquire and give take the lock of the name until
the transaction ends: several leases in one transaction are taken in the order of their names.
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
    """Take the lease if it is free: never held, released, over, or its job has ended.

    With `job_id` the job holds it and `seconds` do not count. It is not given twice to one holder either;
    one whose commit got no answer finds its own name in `Taken`, with the fence. Raises InvalidInput for
    a name that cannot be one, JobNotFound or AlreadyTerminal for a job that cannot hold anything.
    """
    check_names(name=name, holder=holder)
    await store.lock_lease(tx, tenant, name)
    if job_id is not None:
        await require_live_job(tx, tenant, job_id)
    return await store.acquire_lease(tx, tenant, name, holder, seconds, job_id)


async def heartbeat(
    tx: Transaction, name: str, fence: int, seconds: float, *, tenant: str = "default"
) -> bool:
    """Hold it for so long from now. False: it is over, was released or taken; stop what it guarded.

    What is over stays over, also if nobody has taken it yet. For a job's lease: whether the job lives.
    """
    return await store.heartbeat_lease(tx, tenant, name, fence, seconds)


async def give(tx: Transaction, name: str, fence: int, job_id: str, *, tenant: str = "default") -> bool:
    """Let a job hold it from now on, with the same fence. False: it was not held any more.

    For a job that is submitted because the lease was free. Raises JobNotFound or AlreadyTerminal.
    """
    await store.lock_lease(tx, tenant, name)
    await require_live_job(tx, tenant, job_id)
    return await store.give_lease(tx, tenant, name, fence, job_id)


async def release(tx: Transaction, name: str, fence: int, *, tenant: str = "default") -> bool:
    """Free it at once. False: it was released before, or somebody else has it, and nothing changes."""
    return await store.release_lease(tx, tenant, name, fence)


async def check(tx: Transaction, name: str, fence: int, *, tenant: str = "default") -> bool:
    """Whether it is held with this fence; and if so, nobody takes it over before this transaction ends.

    So what the transaction writes is written under the lease, however long it takes to commit.
    """
    return await store.check_lease(tx, tenant, name, fence)


async def find(tx: Transaction, name: str, *, tenant: str = "default") -> Taken | None:
    """Who holds it now; None when it is free."""
    return await store.find_lease(tx, tenant, name)
