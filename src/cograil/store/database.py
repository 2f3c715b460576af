"""Connections and transactions.

The edge opens a transaction (`async with db.transaction("submit") as tx`); verbs and store functions
take it first and never commit. Every statement and every commit passes a named fault point, so tests
can crash a process at each of them. JSON columns arrive as their text, to be parsed where the value is needed.

Behind a pooler that hands a session to another client after each transaction nothing of a session may be
relied on: no prepared statements, no LISTEN, and our settings hold for one transaction each.
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
REFUSED = "unsupported startup parameter"  # what PgBouncer says to settings of a session
POOL_SECONDS = 15.0
IS_TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}").fullmatch
BUSY = 3  # the connections that an orchestrator or a worker has use for at once
RECONNECT_SECONDS = 1.0
# A loop that is too busy lost its session between two statements: nothing of the transaction was done.
STALLED = psycopg.errors.IdleInTransactionSessionTimeout
LOST = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    STALLED,
)  # the connection is gone, whatever ended it
DOOR_PATIENCE_SECONDS = 1.5  # at a door, for a server that answers nobody


class Undone(psycopg.OperationalError):
    """The session of a transaction ended before it was asked to commit: nothing of it was done."""


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
    """One connection of our kind, outside any pool.

    Raises DatabaseUnavailable, RolesMissing when the role to act in is missing or may not be used,
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
    """Whether a pooler answers there, and not PostgreSQL itself. Raises DatabaseUnavailable if nobody does.

    A pooler refuses the settings of a session; or if it was told to ignore them, the number it gave our
    session is not the one the server knows.
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
    """One transaction, or one statement that is its own. `now` is the database's time of it."""

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
        """Call this once all of it is committed, and never if it is not. For counting, not for deeds."""
        self._afterwards.append(note)
        if self._is_autocommit:  # the statement before this call is committed
            self.has_committed()
            self._afterwards.clear()

    def has_committed(self) -> None:
        """Note what is true now."""
        for note in self._afterwards:
            try:
                note()
            except Exception:  # it is done, whatever we make of it
                log.exception("what was committed could not be counted", transaction=self.name)

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

    `conninfo` is how they connect. `direct` is how to get a session of one's own, for LISTEN; None when
    there is only a pooler, so that nothing can be heard and everything is polled. `kept` connections are
    open from the start: what must be quick when work comes should not have to connect first. With a
    `role`, its sessions act in that role.
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
        self._answered_at = 0.0  # when a transaction began last, by our monotonic clock
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
        """Connect in the way of a pooler, or of a server."""
        settings, application, role = self.settings, self._application, self._role
        self.is_pooled = is_pooled
        self.conninfo = engine_conninfo(self._url, settings, application, is_pooled=is_pooled, role=role)
        self.direct: str | None = None if is_pooled else self.conninfo
        if settings.direct_url:
            self.direct = engine_conninfo(settings.direct_url, settings, application, role=role)
        begin = "begin read only" if role in READERS else "begin"  # a pooler forgets defaults of a session
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
        """For a statement that is its own transaction. Several statements are not atomic together."""
        if self.is_pooled:  # only inside a transaction do our settings hold
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
        """Commits when the block ends, rolls back when it raises.

        With a tenant, a role that row-level security binds sees the rows of that tenant and no others.
        A COMMIT that raised may have committed: read again to find out.
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
        """At a door a server that is silent for everybody is given up soon: somebody waits there."""
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
        """A connection of the pool. Raises Overloaded, or DatabaseUnavailable: at a door soon."""
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
        """One whose other end is there: after a restart of the server the idle ones are all dead."""
        while True:
            connection = await self._free_connection()
            if _is_quiet(connection):
                return connection
            await connection.close()
            await self._pool.putconn(connection)  # which replaces it


def _is_quiet(connection: AsyncConnection[Row]) -> bool:
    """Whether nothing came on an idle connection, without asking the server.

    What comes there is its end, or the server's last words.
    """
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)


async def _try_on(pool: Pool) -> None:
    """The pool's own way is to try ever more seldom; a server that is back should find us soon."""
    await pool.check()


def _beginning(settings: dict[str, str], begin: str) -> bytes:
    """Begin, with these settings until the end of the transaction, and tell the time: one round trip."""
    wanted = "".join(f", set_config('{name}', '{value}', true)" for name, value in settings.items())
    return f"{begin}; select (extract(epoch from now()) * 1000000)::bigint{wanted}".encode()


def _as_tenant(tenant: str) -> bytes:
    """Until the end of the transaction. A tenant is a plain word: it stands in the text of a statement."""
    if not IS_TENANT(tenant):
        raise ValueError(f"{tenant!r} is not the name of a tenant")
    return f", set_config('cograil.tenant', '{tenant}', true)".encode()


async def _begin(connection: AsyncConnection[Row], beginning: bytes) -> datetime:
    """Begin; the database's time of this transaction."""
    asked_at = time.monotonic()
    *_, result = await _say(connection, beginning)
    now = EPOCH + timedelta(microseconds=int(result.get_value(0, 0) or b""))
    clock.synchronize(now, asked_at)
    return now


async def _say(connection: AsyncConnection[Row], words: bytes) -> list[PGresult]:
    """What begins and ends a transaction: no parameters and hardly an answer, so no cursor is made for it.

    That halves its price, and every transaction pays it twice.
    """
    async with connection.lock:
        connection.pgconn.send_query(words)
        results: list[PGresult] = await connection.wait(generators.execute(connection.pgconn))
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result, encoding=connection.info.encoding)
    return results


async def _roll_back(connection: AsyncConnection[Row]) -> None:
    """Roll back if the connection still can; a broken one is closed and the pool replaces it."""
    try:
        await asyncio.shield(connection.execute("rollback"))
    except BaseException:  # whatever went wrong here, the server rolls back when the connection ends
        await connection.close()
