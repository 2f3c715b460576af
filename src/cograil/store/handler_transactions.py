"""Transactions of handlers: the handler's own SQL, then the report of its result, then one commit.

They use their own connections, so that slow handlers do not block the engine. A session there has the
defaults that users expect (query plans, JSON columns as values), but a short idle timeout, because it holds
locks.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from cograil import clock, fault_injection
from cograil.errors import DatabaseUnavailable
from cograil.store.database import Database, Transaction
from cograil.store.statements import Statement, native, statement

IDENTIFY_DATABASE = statement("identify_database")

IDLE_SECONDS = 10
POOL_SECONDS = 15.0
CANCEL_SECONDS = 2.0
SETTINGS = {
    "idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s",
    "plan_cache_mode": "auto",
    "enable_seqscan": "on",
    "jit": "on",
}
BORROWED_SETTINGS = {"idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s"}

Connection = AsyncConnection[Any]
Pool = AsyncConnectionPool[Connection]


class HandlerSession(Transaction):
    """A transaction on a connection with the driver's default settings."""

    __slots__ = ()

    async def _run(
        self, statement: Statement, params: dict[str, Any], factory: Any = tuple_row
    ) -> AsyncRawCursor[Any]:
        text, names = native(statement.text)
        cursor = AsyncRawCursor(self.connection, row_factory=factory)
        await cursor.execute(text.encode(), [params[name] for name in names], prepare=False)
        return cursor


class HandlerConnections:
    """Connections for the transactions of handlers, opened on first use.

    With a `conninfo` of their own they use another role than the engine. `is_checked` says that they lead to
    the database of the engine.
    """

    def __init__(self, db: Database, size: int, conninfo: str | None = None) -> None:
        self._db = db
        self._size = size
        self._conninfo = conninfo or db.conninfo
        self.is_checked = conninfo is None
        self._opening = asyncio.Lock()
        self._pool: Pool | None = None
        self._identity: tuple[Any, ...] | None = None

    async def take(self) -> Connection:
        """Return an idle connection; `give_back` returns it. Raises DatabaseUnavailable."""
        async with self._opening:
            if self._pool is None:
                self._pool = await self._open()
        try:
            return await self._pool.getconn()
        except PoolTimeout as error:
            raise DatabaseUnavailable(f"no connection for a handler within {POOL_SECONDS:g} s") from error

    async def _open(self) -> Pool:
        pool = Pool(
            self._conninfo,
            kwargs={"autocommit": True, "prepare_threshold": None},
            check=Pool.check_connection,
            min_size=0,
            max_size=self._size,
            timeout=POOL_SECONDS,
            max_idle=60,
            open=False,
        )
        await pool.open()
        return pool

    async def give_back(self, connection: Connection) -> None:
        """Return the connection. The pool discards it when it is broken or still in a transaction."""
        assert self._pool is not None
        await self._pool.putconn(connection)

    async def is_ours(self, connection: Connection) -> bool:
        """Return whether this connection leads to the database of the engine."""
        if self._identity is None:
            async with self._db.single("identify") as tx:
                self._identity = await _identity(tx)
        return await _identity(HandlerSession(connection, "identify", clock.now())) == self._identity

    async def close(self) -> None:
        """Close all connections."""
        if self._pool is not None:
            await self._pool.close()


async def _identity(tx: Transaction) -> tuple[Any, ...]:
    (identity,) = await tx.fetch(IDENTIFY_DATABASE)
    return identity


async def begin(connection: Connection, *, is_borrowed: bool) -> Transaction:
    """Begin a transaction on this connection, unless its owner already did."""
    if connection.autocommit and _status(connection) == "IDLE":
        await connection.execute("begin")
    settings = BORROWED_SETTINGS if is_borrowed else SETTINGS
    assignments = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings.items())
    await connection.execute(f"select {assignments}".encode(), prepare=False)
    return HandlerSession(connection, "handler", clock.now())


async def commit(tx: Transaction) -> None:
    """Commit. When this raises, the commit may have happened: the caller has to query the state."""
    fault_injection.point(f"{tx.name}.commit.before")
    await tx.connection.execute("commit", prepare=False)
    tx.has_committed()
    fault_injection.point(f"{tx.name}.commit.after")


async def roll_back(connection: Connection) -> None:
    """Roll back. A broken or busy session is closed instead, which has the same effect."""
    if _status(connection) == "ACTIVE":
        with contextlib.suppress(Exception):
            await connection.cancel_safe(timeout=CANCEL_SECONDS)
    elif _status(connection) in ("INTRANS", "INERROR"):
        with contextlib.suppress(Exception):
            await asyncio.wait_for(connection.execute("rollback", prepare=False), CANCEL_SECONDS)
    if _status(connection) != "IDLE":
        await connection.close()


def _status(connection: Connection) -> str:
    return connection.info.transaction_status.name
