"""Advisory locks by name: decisions under a lock are made by one transaction at a time."""

from __future__ import annotations

from collections.abc import Iterable

from psycopg.pq import TransactionStatus

from cograil.store.array_params import texts
from cograil.store.database import Transaction
from cograil.store.statements import statement

LOCK_NAME = statement("lock_name")
LOCK_NAMES = statement("lock_names")


async def lock_name(tx: Transaction, kind: str, *parts: str) -> None:
    """Wait for the lock of this name and keep it until the transaction ends.

    Raises RuntimeError outside a transaction: the lock would be released before the next statement.
    """
    _require_transaction(tx, kind)
    await tx.fetch(LOCK_NAME, name=_joined(kind, parts))


async def lock_names(tx: Transaction, kind: str, names: Iterable[tuple[str, ...]]) -> None:
    """Lock several names, one after another: all callers must pass them in the same order."""
    _require_transaction(tx, kind)
    await tx.fetch(LOCK_NAMES, names=texts([_joined(kind, parts) for parts in names]))


def _joined(kind: str, parts: tuple[str, ...]) -> str:
    return "\x1f".join((kind, *parts))


def _require_transaction(tx: Transaction, kind: str) -> None:
    if tx.connection.info.transaction_status is not TransactionStatus.INTRANS:
        raise RuntimeError(f"a {kind} is decided in a transaction, not in a single statement")
