"""The verbs in a transaction that a handler has begun: what it takes is taken if its result counts."""

from __future__ import annotations

from cograil import clock
from cograil.store.database import Transaction
from cograil.store.handler_transactions import Connection, HandlerSession

__all__ = ["Transaction", "joined"]


def joined(connection: Connection, name: str) -> Transaction:
    """That transaction as leases, slots, buckets and records take it: `joined(tx.connection, "reserve")`.

    `name` says in logs and traces whose it is. It does not commit: the worker does, with the result.
    """
    return HandlerSession(connection, name, clock.now())
