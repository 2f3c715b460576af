"""Transactions of handlers: their own SQL, then our report, then one commit.

They have connections of their own: handlers that take their time must not keep the engine waiting. On
these a session is as users know it (plans, JSON as values), but it may not sit idle for long, because what
it has locked waits for it.
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


class Session(Transaction):
    """A transaction on a connection that may not be of our kind."""

    __slots__ = ()

    async def _run(self, statement: Statement, params: dict[str, Any]) -> AsyncRawCursor[Any]:
        text, names = native(statement.text)
        cursor = AsyncRawCursor(self.connection, row_factory=tuple_row)
        await cursor.execute(text.encode(), [params[name] for name in names], prepare=False)
        return cursor


class HandlerConnections:
    """Connections for the transactions of handlers, made when they are first needed.

    With a `conninfo` of their own they are in another role than the engine; `is_checked`: that they lead
    to the same database.
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
        """One of ours, idle; `give_back` it. Raises DatabaseUnavailable."""
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
        """Done with it; one that is broken or still in a transaction is not used again."""
        assert self._pool is not None
        await self._pool.putconn(connection)

    async def is_ours(self, connection: Connection) -> bool:
        """Whether this connection leads to the database the engine works on."""
        if self._identity is None:
            async with self._db.single("identify") as tx:
                self._identity = await _identity(tx)
        return await _identity(Session(connection, "identify", clock.now())) == self._identity

    async def close(self) -> None:
        """Close them all."""
        if self._pool is not None:
            await self._pool.close()


async def _identity(tx: Transaction) -> tuple[Any, ...]:
    return tuple((await tx.fetch(IDENTIFY_DATABASE))[0])


async def begin(connection: Connection, *, is_borrowed: bool) -> Transaction:
    """Begin on this connection, unless its owner has."""
    if connection.autocommit and _status(connection) == "IDLE":
        await connection.execute("begin")
    settings = BORROWED_SETTINGS if is_borrowed else SETTINGS
    wanted = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings.items())
    await connection.execute(f"select {wanted}".encode(), prepare=False)
    return Session(connection, "handler", clock.now())


async def commit(tx: Transaction) -> None:
    """A commit that raised may have happened: whoever must know asks."""
    fault_injection.point(f"{tx.name}.commit.before")
    await tx.connection.execute("commit", prepare=False)
    tx.has_committed()
    fault_injection.point(f"{tx.name}.commit.after")


async def roll_back(connection: Connection) -> None:
    """Roll back; a session that cannot, because it is broken or busy, is closed, which does the same."""
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
