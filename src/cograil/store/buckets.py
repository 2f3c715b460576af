"""Token buckets: one row for each name."""

from __future__ import annotations

from cograil.store.database import Transaction
from cograil.store.statements import statement

TAKE_TOKENS = statement("take_tokens")


async def take_tokens(
    tx: Transaction, tenant: str, name: str, capacity: float, per_second: float, amount: float
) -> float:
    """0 when they were taken, else how many seconds it takes until so many are there."""
    params = {"capacity": float(capacity), "per_second": float(per_second), "amount": float(amount)}
    return float((await tx.fetch(TAKE_TOKENS, tenant=tenant, name=name, **params))[0][0])
