"""Token buckets: one row for each name."""

from __future__ import annotations

from cograil.store.database import Transaction
from cograil.store.statements import statement

TAKE_TOKENS = statement("take_tokens")
PRUNE_BUCKETS = statement("prune_buckets")

MAX_SECONDS = 1e9  # for what is full in a thousand years a moment cannot be kept


async def take_tokens(
    tx: Transaction, tenant: str, name: str, capacity: float, per_second: float, amount: float
) -> float:
    """0 when they were taken, else in how many seconds that number is there."""
    params = {"capacity": float(capacity), "per_second": float(per_second), "amount": float(amount)}
    return float(await tx.fetch_value(TAKE_TOKENS, tenant=tenant, name=name, longest=MAX_SECONDS, **params))


async def prune_buckets(tx: Transaction, limit: int) -> int:
    """Remove up to `limit` buckets that are full again; how many that were."""
    return await tx.execute(PRUNE_BUCKETS, limit=limit)
