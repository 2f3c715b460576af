"""Token buckets: a capacity for bursts, and a rate per second in the long run.

What has flowed in is computed when somebody takes, by PostgreSQL's clock; nothing refills in the
background. One that is full again is removed by the sweep: a new one is full, too. A taker has the
bucket's row until its transaction ends, so take last, and from several buckets in the order of their
names.
"""

from __future__ import annotations

from cograil.store import bucket_queries as store
from cograil.store.database import Transaction
from cograil.verbs.name_checks import check_names

__all__ = ["prune", "take"]


async def take(
    tx: Transaction,
    name: str,
    capacity: float,
    per_second: float,
    amount: float = 1,
    *,
    tenant: str = "default",
) -> float:
    """Take `amount` tokens: 0.0 when granted, else nothing is taken and this many seconds are to wait.

    A new bucket is full. Capacity and rate are those of this call. Somebody else may be quicker after the
    wait. Raises ValueError for what can never be granted, InvalidInput for a name that cannot be one.
    """
    check_names(name=name)
    if not 0 < amount <= capacity or not per_second > 0:
        raise ValueError(f"{amount} of a bucket of {capacity} with {per_second} per second is never granted")
    return await store.take_tokens(tx, tenant, name, capacity, per_second, amount)


async def prune(tx: Transaction, limit: int = 10_000) -> int:
    """Remove up to `limit` buckets that are full again; how many. Call again while it is `limit`."""
    return await store.prune_buckets(tx, limit)
