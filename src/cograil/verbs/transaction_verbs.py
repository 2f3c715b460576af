"""Verbs in the transaction of a handler: their changes count only if its result counts."""

from __future__ import annotations

from cograil import clock
from cograil.store.database import Transaction
from cograil.store.handler_transactions import Connection, HandlerSession

__all__ = ["Transaction", "joined"]


def joined(connection: Connection, name: str) -> Transaction:
    """Return the transaction for leases, slots, buckets and records: `joined(tx.connection, "reserve")`.

    `name` appears in logs and traces. The worker commits it, together with the result.
    """
    return HandlerSession(connection, name, clock.now())
