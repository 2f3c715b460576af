"""The lock of a name: what is decided under it is decided by one transaction at a time."""

from __future__ import annotations

from psycopg.pq import TransactionStatus

from cograil.store.database import Transaction
from cograil.store.statements import statement

LOCK_NAME = statement("lock_name")


async def lock_name(tx: Transaction, kind: str, *parts: str) -> None:
    """Wait for the lock of this name and keep it until the transaction ends.

    Raises RuntimeError outside a transaction: the lock would be gone before the next statement.
    """
    if tx.connection.info.transaction_status is not TransactionStatus.INTRANS:
        raise RuntimeError(f"a {kind} is decided in a transaction, not in a single statement")
    await tx.fetch(LOCK_NAME, name="\x1f".join((kind, *parts)))
