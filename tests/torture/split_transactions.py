"""The mistake that most mutants make: what should be one transaction is two."""

from __future__ import annotations

from cograil.store.database import Transaction
from cograil.store.statements import Statement

HALFWAY = Statement("mutant_halfway", "select 1", "")
AS_TENANT = b"select set_config('cograil.tenant', 'default', true)"


async def commit_halfway(tx: Transaction, *, is_at_a_door: bool = False) -> None:
    """End the transaction and begin another: whatever follows is no longer one with what was before."""
    await tx.connection.execute("commit")
    await tx.fetch(HALFWAY)
    await tx.connection.execute("begin")
    if is_at_a_door:
        await tx.connection.execute(AS_TENANT)
