"""Connections and transactions.

The edge opens a transaction (`async with db.transaction("submit") as tx`); verbs and store functions take
it first and never commit. Every statement and every commit passes a named fault point, so tests can crash a
process at each of them. JSON columns arrive as their text, to be parsed where the value is needed.

Behind a pooler that gives a session to another client after each transaction, session state does not last:
there are no prepared statements and no LISTEN, and settings apply to one transaction each.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import psycopg
import structlog
from psycopg import AsyncConnection, AsyncRawCursor, generators
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import class_row, dict_row, namedtuple_row, tuple_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from cograil import clock, fault_injection
from cograil.errors import DatabaseUnavailable, Overloaded, RolesMissing, UnsupportedEncoding
from cograil.settings import DatabaseSettings
from cograil.store.array_params import Packed, PackedDumper
from cograil.store.database_roles import explain_roles, find_encoding_problem, refused_role
from cograil.store.session_settings import READERS, engine_conninfo, session_settings
from cograil.store.statements import Statement, native

log = structlog.get_logger("store")

T = TypeVar("T")
Row = tuple[Any, ...]
Pool = AsyncConnectionPool[AsyncConnection[Row]]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
REFUSED = "unsupported startup parameter"  # PgBouncer's answer to session settings
POOL_SECONDS = 15.0
IS_TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}").fullmatch
BUSY = 3  # connections that an orchestrator or a worker uses at once
RECONNECT_SECONDS = 1.0
# A loop that is too busy lost its session between two statements: nothing of the transaction was committed.
STALLED = psycopg.errors.IdleInTransactionSessionTimeout
LOST = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    STALLED,
)  # the connection is gone, for whatever reason
DOOR_PATIENCE_SECONDS = 1.5  # timeout of a server process while the database does not answer


class Undone(psycopg.OperationalError):
    """The session of a transaction ended before its COMMIT was sent: nothing of it was committed."""


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


async def connect(conninfo: str, *, prepare: bool = True) -> AsyncConnection[Row]:
    """Open a connection with the engine's settings, outside any pool.

    Raises DatabaseUnavailable, RolesMissing when its role is missing or may not be used,
    UnsupportedEncoding when the database does not store UTF-8.
    """
    try:
        connection = await AsyncConnection.connect(conninfo, autocommit=True, context=_ADAPTERS)
    except psycopg.OperationalError as error:
        if missing := refused_role(conninfo, str(error)):
            raise RolesMissing(explain_roles(missing, str(error))) from error
        raise DatabaseUnavailable(f"cannot connect to PostgreSQL: {error}".strip()) from error
    connection.prepare_threshold = 0 if prepare else None
    if problem := find_encoding_problem(connection):
        await connection.close()
        raise UnsupportedEncoding(problem)
    return connection


async def is_pooler(conninfo: str) -> bool:
    """Return whether a pooler answers at this address instead of PostgreSQL. Raises DatabaseUnavailable.

    A pooler refuses session settings; a pooler that ignores them reports another backend number than the
    server.
    """
    try:
        connection = await connect(conninfo, prepare=False)
    except DatabaseUnavailable as error:
        if REFUSED in str(error):
            return True
        raise
    async with connection:
        row = await (await connection.execute("select pg_backend_pid()", prepare=False)).fetchone()
        return row != (connection.info.backend_pid,)


class Transaction:
    """One transaction, or a statement that is its own transaction. `now` is its database time."""

    __slots__ = ("_afterwards", "_is_autocommit", "connection", "name", "now")

    def __init__(
        self, connection: AsyncConnection[Row], name: str, now: datetime, *, is_autocommit: bool = False
    ) -> None:
        self.connection = connection
        self.name = name
        self.now = now
        self._afterwards: list[Callable[[], None]] = []
        self._is_autocommit = is_autocommit

    def afterwards(self, note: Callable[[], None]) -> None:
        """Call this after the commit, and never after a rollback. For counting, not for side effects."""
        self._afterwards.append(note)
        if self._is_autocommit:  # the statement before this call is committed
            self.has_committed()
            self._afterwards.clear()

    def has_committed(self) -> None:
        """Run the notes of the committed changes."""
        for note in self._afterwards:
            try:
                note()
            except Exception:  # the commit stands, even if counting fails
                log.exception("cannot count a committed change", transaction=self.name)

    async def fetch(self, statement: Statement, /, **params: Any) -> list[Row]:
        """Return the rows of this statement as tuples, for the hot path: unpack them, never index them."""
        if fault_injection.is_on:
            fault_injection.point(f"{self.name}.{statement.name}")
        cursor = await self._run(statement, params)
        return await cursor.fetchall() if cursor.description else []

    async def fetch_named(self, statement: Statement, /, **params: Any) -> list[Any]:
        """Return the rows of this statement; a row has an attribute for each column.

        Slower than `fetch`, by some microseconds per statement and row.
        """
        return await self._fetch_with(namedtuple_row, statement, params)

    async def fetch_as(self, row_type: type[T], statement: Statement, /, **params: Any) -> list[T]:
        """Return the rows of this statement as objects; the columns are the keyword arguments of `row_type`."""
        return await self._fetch_with(class_row(row_type), statement, params)

    async def fetch_dicts(self, statement: Statement, /, **params: Any) -> list[dict[str, Any]]:
        """Return the rows of this statement as dictionaries by column name."""
        return await self._fetch_with(dict_row, statement, params)

    async def _fetch_with(self, factory: Any, statement: Statement, params: dict[str, Any]) -> list[Any]:
        if fault_injection.is_on:
            fault_injection.point(f"{self.name}.{statement.name}")
        cursor = await self._run(statement, params, factory)
        return await cursor.fetchall() if cursor.description else []

    async def fetch_value(self, statement: Statement, /, **params: Any) -> Any:
        """Return the first column of the only row of this statement."""
        ((value, *_),) = await self.fetch(statement, **params)
        return value

    async def execute(self, statement: Statement, /, **params: Any) -> int:
        """Run this statement and return how many rows it changed."""
        if fault_injection.is_on:
            fault_injection.point(f"{self.name}.{statement.name}")
        return (await self._run(statement, params)).rowcount

    async def _run(
        self, statement: Statement, params: dict[str, Any], factory: Any = tuple_row
    ) -> AsyncRawCursor[Any]:
        text, names = native(statement.text)
        cursor = AsyncRawCursor(self.connection, row_factory=factory)
        await cursor.execute(text.encode(), [params[name] for name in names])
        return cursor


class Database:
    """A pool of connections to one database.

    `conninfo` is the connection string. `direct` is that of a session of its own, for LISTEN; None when
    there is only a pooler, so that every change is found by polling. `kept` connections are open from the
    start, so that the first work does not wait for a connection. With a `role`, its sessions act in that
    role.
    """

    def __init__(
        self,
        conninfo: str,
        settings: DatabaseSettings,
        *,
        application: str = "cograil",
        kept: int = 1,
        role: str = "",
    ) -> None:
        self.settings = settings
        self._role = role
        self._url = conninfo
        self._application = application
        self._in_use = 0
        self._answered_at = 0.0  # start of the last transaction, on the monotonic clock
        self._take_for(is_pooled=bool(settings.pooled))
        self._pool = Pool(
            self.conninfo,
            kwargs={"autocommit": True, "context": _ADAPTERS},
            configure=self._configure,
            min_size=min(kept, settings.pool_size),
            max_size=settings.pool_size,
            timeout=POOL_SECONDS,
            max_idle=300,
            reconnect_timeout=RECONNECT_SECONDS,
            reconnect_failed=_try_on,
            open=False,
        )

    def _take_for(self, *, is_pooled: bool) -> None:
        """Connect through a pooler, or to a server."""
        settings, application, role = self.settings, self._application, self._role
        self.is_pooled = is_pooled
        self.conninfo = engine_conninfo(self._url, settings, application, is_pooled=is_pooled, role=role)
        self.direct: str | None = None if is_pooled else self.conninfo
        if settings.direct_url:
            self.direct = engine_conninfo(settings.direct_url, settings, application, role=role)
        begin = "begin read only" if role in READERS else "begin"  # a pooler drops session defaults
        self._begin = _beginning(session_settings(settings, role) if is_pooled else {}, begin)

    async def _configure(self, connection: AsyncConnection[Row]) -> None:
        connection.prepare_threshold = 0 if self.settings.prepare and not self.is_pooled else None

    async def open(self) -> Database:
        """Connect; raises DatabaseUnavailable when that fails."""
        if self.settings.pooled is None:
            self._take_for(is_pooled=await is_pooler(self.conninfo))
            self._pool.conninfo = self.conninfo
        else:
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
        """Yield a transaction for one statement. Several statements are not atomic together."""
        if self.is_pooled:  # behind a pooler, settings apply only inside a transaction
            async with self.transaction(name) as tx:
                yield tx
            return
        async with self._connection() as connection:
            with self._answered_soon(connection):
                yield Transaction(connection, name, clock.now(), is_autocommit=True)
            if fault_injection.is_on:
                fault_injection.point(f"{name}.commit.after")

    @contextlib.asynccontextmanager
    async def transaction(self, name: str, tenant: str | None = None) -> AsyncIterator[Transaction]:
        """Yield a transaction. It commits when the block ends and rolls back when the block raises.

        With a tenant, a role that row-level security binds sees the rows of that tenant and no others. A
        COMMIT that raised may have committed: read the state to find out.
        """
        beginning = self._begin if tenant is None else self._begin + _as_tenant(tenant)
        async with self._connection() as connection:
            with self._answered_soon(connection):
                now = await _begin(connection, beginning)
            tx, is_over = Transaction(connection, name, now), False
            try:
                yield tx
                if fault_injection.is_on:
                    fault_injection.point(f"{name}.commit.before")
                is_over = True
                await _say(connection, b"commit")
            except BaseException as error:
                await _roll_back(connection)
                if isinstance(error, psycopg.OperationalError) and connection.closed and not is_over:
                    raise Undone(str(error)) from error
                raise
            tx.has_committed()
            if fault_injection.is_on:
                fault_injection.point(f"{name}.commit.after")

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncConnection[Row]]:
        connection = await self._living_connection()
        self._in_use += 1
        try:
            yield connection
        finally:
            self._in_use -= 1
            await self._pool.putconn(connection)

    @contextlib.contextmanager
    def _answered_soon(self, connection: AsyncConnection[Row]) -> Iterator[None]:
        """In a server process, abort a statement that gets no answer in time, because a request waits for
        it.
        """
        if not self._role:
            yield
            return
        asked_at, loop = time.monotonic(), asyncio.get_running_loop()
        alarm = loop.call_later(DOOR_PATIENCE_SECONDS, self._hang_up, connection, asked_at)
        try:
            yield
        except psycopg.OperationalError as error:
            if time.monotonic() - asked_at < DOOR_PATIENCE_SECONDS:
                raise
            raise DatabaseUnavailable(f"no answer within {DOOR_PATIENCE_SECONDS:g} s") from error
        finally:
            alarm.cancel()
        self._answered_at = time.monotonic()

    def _hang_up(self, connection: AsyncConnection[Row], asked_at: float) -> None:
        """End a session that does not answer, unless others were answered meanwhile."""
        if self._answered_at < asked_at and not connection.closed:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
                end.shutdown(socket.SHUT_RDWR)

    async def _free_connection(self) -> AsyncConnection[Row]:
        """Return a connection of the pool. Raises Overloaded, or DatabaseUnavailable: early in a server
        process.
        """
        asked_at = time.monotonic()
        patience = min(DOOR_PATIENCE_SECONDS, POOL_SECONDS) if self._role else POOL_SECONDS
        try:
            return await self._pool.getconn(patience)
        except PoolTimeout as error:
            is_busy = self._in_use >= self.settings.pool_size
            if patience >= POOL_SECONDS and is_busy:
                raise Overloaded(f"no connection was free within {POOL_SECONDS:g} s") from error
            if patience >= POOL_SECONDS or not (is_busy or self._answered_at >= asked_at):
                raise DatabaseUnavailable(f"no connection to PostgreSQL within {patience:g} s") from error
        try:
            return await self._pool.getconn(POOL_SECONDS - patience)
        except PoolTimeout as error:
            raise Overloaded(f"no connection was free within {POOL_SECONDS:g} s") from error

    async def _living_connection(self) -> AsyncConnection[Row]:
        """Return a live connection: after a restart of the server all idle ones are dead."""
        while True:
            connection = await self._free_connection()
            if _is_quiet(connection):
                return connection
            await connection.close()
            await self._pool.putconn(connection)  # the pool replaces it


def _is_quiet(connection: AsyncConnection[Row]) -> bool:
    """Return whether an idle connection received nothing, without a query to the server.

    It receives only its end, or the last message of the server.
    """
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)


async def _try_on(pool: Pool) -> None:
    """Reset the pool's growing retry delay, so that it finds a recovered server soon."""
    await pool.check()


def _beginning(settings: dict[str, str], begin: str) -> bytes:
    """Return SQL that begins a transaction with these settings and returns the time, in one round trip."""
    wanted = "".join(f", set_config('{name}', '{value}', true)" for name, value in settings.items())
    return f"{begin}; select (extract(epoch from now()) * 1000000)::bigint{wanted}".encode()


def _as_tenant(tenant: str) -> bytes:
    """Return the settings of a transaction of this tenant. The tenant's name is checked, because it is part
    of SQL text.
    """
    if not IS_TENANT(tenant):
        raise ValueError(f"{tenant!r} is not the name of a tenant")
    return f", set_config('cograil.tenant', '{tenant}', true)".encode()


async def _begin(connection: AsyncConnection[Row], beginning: bytes) -> datetime:
    """Begin a transaction; return its database time."""
    asked_at = time.monotonic()
    *_, result = await _say(connection, beginning)
    now = EPOCH + timedelta(microseconds=int(result.get_value(0, 0) or b""))
    clock.synchronize(now, asked_at)
    return now


async def _say(connection: AsyncConnection[Row], words: bytes) -> list[PGresult]:
    """Send the statements that begin and end a transaction. They have no parameters and need no cursor.

    This halves their cost, and every transaction pays it twice.
    """
    async with connection.lock:
        connection.pgconn.send_query(words)
        results: list[PGresult] = await connection.wait(generators.execute(connection.pgconn))
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result, encoding=connection.info.encoding)
    return results


async def _roll_back(connection: AsyncConnection[Row]) -> None:
    """Roll back. A broken connection is closed instead, and the pool replaces it."""
    try:
        await asyncio.shield(connection.execute("rollback"))
    except BaseException:  # the server rolls back when the connection ends
        await connection.close()
