"""Token buckets: one row per name."""

from __future__ import annotations

from cograil.store.database import Transaction
from cograil.store.statements import statement

TAKE_TOKENS = statement("take_tokens")
PRUNE_BUCKETS = statement("prune_buckets")

MAX_SECONDS = 1e9  # a refill time beyond a thousand years cannot be stored


async def take_tokens(
    tx: Transaction, tenant: str, name: str, capacity: float, per_second: float, amount: float
) -> float:
    """Take tokens. Returns 0.0 when they were taken, otherwise the seconds until that number is available."""
    params = {"capacity": float(capacity), "per_second": float(per_second), "amount": float(amount)}
    return float(await tx.fetch_value(TAKE_TOKENS, tenant=tenant, name=name, longest=MAX_SECONDS, **params))


async def prune_buckets(tx: Transaction, limit: int) -> int:
    """Delete up to `limit` full buckets; return how many."""
    return await tx.execute(PRUNE_BUCKETS, limit=limit)
