"""Connections and transactions.

The edge opens a transaction (`async with db.transaction("submit") as tx`); verbs and store functions
take it first and never commit. Every statement and every commit passes a named fault point, so tests
can crash a process at each of them. JSON columns arrive as their text: whoever needs a value parses it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from cograil import faults
from cograil.errors import DatabaseUnavailable
from cograil.settings import DatabaseSettings
from cograil.store.columns import Packed, PackedDumper
from cograil.store.statements import Statement, native

Row = tuple[Any, ...]


class RawJson(Loader):
    """JSON columns as bytes of JSON text."""

    def load(self, data: Buffer) -> bytes:
        return bytes(data)


class _Adapters:
    def __init__(self) -> None:
        self.adapters = AdaptersMap(psycopg.adapters)
        self.adapters.register_loader("json", RawJson)
        self.adapters.register_loader("jsonb", RawJson)
        self.adapters.register_dumper(Packed, PackedDumper)
        self.connection = None


_ADAPTERS = _Adapters()


def engine_conninfo(url: str, settings: DatabaseSettings, application: str) -> str:
    """The connection string with what the engine needs of a session.

    A process that is stopped inside a transaction must lose its locks soon; a dead network must be
    noticed; plans are made once and must not fall for empty tables.
    """
    given = conninfo_to_dict(url)
    wanted = {
        "timezone": "UTC",
        "jit": "off",
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        "idle_in_transaction_session_timeout": str(int(settings.idle_in_transaction_seconds * 1000)),
        "client_connection_check_interval": "5000",
    }
    options = " ".join([str(given.get("options") or ""), *(f"-c {k}={v}" for k, v in wanted.items())]).strip()
    defaults: dict[str, Any] = {
        "application_name": application,
        "connect_timeout": 10,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 20_000,
    }
    return make_conninfo(**{**defaults, **given, "options": options})


async def connect(conninfo: str, *, prepare: bool = True) -> AsyncConnection[Row]:
    """One connection of our kind, outside any pool."""
    try:
        connection = await AsyncConnection.connect(conninfo, autocommit=True, context=_ADAPTERS)
    except psycopg.OperationalError as error:
        raise DatabaseUnavailable(f"cannot connect to PostgreSQL: {error}".strip()) from error
    connection.prepare_threshold = 0 if prepare else None
    return connection


class Transaction:
    """One transaction, or one statement that is its own. `now` is the database's time of it."""

    __slots__ = ("connection", "name", "now")

    def __init__(self, connection: AsyncConnection[Row], name: str, now: datetime) -> None:
        self.connection = connection
        self.name = name
        self.now = now

    async def fetch(self, statement: Statement, /, **params: Any) -> list[Row]:
        """The rows this statement returns."""
        if faults.is_on:
            faults.point(f"{self.name}.{statement.name}")
        cursor = await self._run(statement, params)
        return await cursor.fetchall() if cursor.description else []

    async def execute(self, statement: Statement, /, **params: Any) -> int:
        """How many rows this statement changed."""
        if faults.is_on:
            faults.point(f"{self.name}.{statement.name}")
        return (await self._run(statement, params)).rowcount

    async def _run(self, statement: Statement, params: dict[str, Any]) -> AsyncRawCursor[Row]:
        text, names = native(statement.text)
        cursor = AsyncRawCursor(self.connection)
        await cursor.execute(text.encode(), [params[name] for name in names])
        return cursor


class Database:
    """A pool of connections to one database."""

    def __init__(self, conninfo: str, settings: DatabaseSettings, *, application: str = "cograil") -> None:
        self.conninfo = engine_conninfo(conninfo, settings, application)
        self._prepare = settings.prepare
        self._pool: AsyncConnectionPool[AsyncConnection[Row]] = AsyncConnectionPool(
            self.conninfo,
            kwargs={"autocommit": True, "context": _ADAPTERS},
            configure=self._configure,
            min_size=1,
            max_size=settings.pool_size,
            timeout=15,
            max_idle=300,
            open=False,
        )

    async def _configure(self, connection: AsyncConnection[Row]) -> None:
        connection.prepare_threshold = 0 if self._prepare else None

    async def open(self) -> Database:
        """Connect; raises DatabaseUnavailable when that fails."""
        await (await connect(self.conninfo)).close()
        await self._pool.open()
        return self

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()

    async def __aenter__(self) -> Database:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @contextlib.asynccontextmanager
    async def single(self, name: str) -> AsyncIterator[Transaction]:
        """For one statement, which is then its own transaction."""
        async with self._connection() as connection:
            yield Transaction(connection, name, datetime.now(UTC))
            if faults.is_on:
                faults.point(f"{name}.commit.after")

    @contextlib.asynccontextmanager
    async def transaction(self, name: str) -> AsyncIterator[Transaction]:
        """Commits when the block ends, rolls back when it raises.

        A COMMIT that raised may have committed: whoever must know reads again.
        """
        async with self._connection() as connection:
            now = await _begin(connection)
            try:
                yield Transaction(connection, name, now)
                if faults.is_on:
                    faults.point(f"{name}.commit.before")
                await connection.execute("commit")
            except BaseException:
                await _roll_back(connection)
                raise
            if faults.is_on:
                faults.point(f"{name}.commit.after")

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncConnection[Row]]:
        try:
            connection = await self._pool.getconn()
        except PoolTimeout as error:
            raise DatabaseUnavailable("no connection to PostgreSQL within 15 s") from error
        try:
            yield connection
        finally:
            await self._pool.putconn(connection)


async def _begin(connection: AsyncConnection[Row]) -> datetime:
    """Begin, and the database's time of this transaction, in one round trip."""
    cursor = await connection.execute("begin; select now()", prepare=False)
    cursor.nextset()
    row = await cursor.fetchone()
    assert row is not None
    now: datetime = row[0]
    return now


async def _roll_back(connection: AsyncConnection[Row]) -> None:
    """Roll back if the connection still can; a broken one is closed and the pool replaces it."""
    try:
        await asyncio.shield(connection.execute("rollback"))
    except BaseException:  # whatever went wrong here, the server rolls back when the connection ends
        await connection.close()
