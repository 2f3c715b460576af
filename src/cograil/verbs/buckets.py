"""Token buckets: a capacity for bursts, and a rate per second in the long run.

The refill is computed at each take, by PostgreSQL's clock; no process refills buckets in the background.
The sweep removes full buckets, because a new bucket is full too. A take locks the bucket's row until its
transaction ends, so take last, and take from several buckets in the order of their names.
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
    """Take `amount` tokens. Returns 0.0 when granted; otherwise takes nothing and returns the seconds to
    wait.

    A new bucket is full. Capacity and rate are those of this call. Another caller may take the tokens first
    after the wait. Raises ValueError for an amount that can never be granted, InvalidInput for an invalid
    name.
    """
    check_names(name=name)
    if not 0 < amount <= capacity or not per_second > 0:
        raise ValueError(f"cannot take {amount} from a bucket of {capacity} with {per_second} per second")
    return await store.take_tokens(tx, tenant, name, capacity, per_second, amount)


async def prune(tx: Transaction, limit: int = 10_000) -> int:
    """Remove up to `limit` full buckets; return how many. Call again while it returns `limit`."""
    return await store.prune_buckets(tx, limit)
