"""The schema, step by step: numbered SQL files, applied once each, forward only.

    migrations/0001_core.sql ...   each file and its row in `cograil.schema_migrations` commit together

Any number of processes may migrate at once. Each step is one transaction that takes an advisory lock and
then reads again which steps are applied; so no session keeps a lock, and it works behind a pooler that
shares sessions. A step that does not get its locks within two seconds rolls back, so that it does not block
other work, and retries.

A file runs with the schema `cograil` as its search path, must not end its transaction, and must never be
changed after a release: its checksum is on record.

`-- compatible: yes` in the comment a file begins with says that every program that could work before this
step can work after it. The database stores this, so a program can tell whether it works with a step that it
does not know: docs/explanation/decisions/0012-compatible-steps.md.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version as version_of
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import pairwise
from typing import Any

from psycopg import AsyncConnection
from psycopg.errors import DeadlockDetected, LockNotAvailable
from psycopg.rows import tuple_row

from cograil.errors import DatabaseUnavailable, SchemaMismatch, UnsafeDatabase

OLDEST_SERVER = 15
PATIENCE_SECONDS = 120.0
LOCK_KEY = int.from_bytes(hashlib.sha256(b"cograil.schema_migrations").digest()[:8], "big", signed=True)

FILE_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
ENDS_TRANSACTION = re.compile(
    r"^\s*(begin|start|commit|rollback|abort)(\s+(work|transaction))?\s*;", re.I | re.M
)
MARK = "is_compatible"  # the column that stores the compatibility mark of the file
COMPATIBLE = re.compile(r"\A(?:--.*\n)*?--[ \t]*compatible:[ \t]*(.*)", re.I)

Connection = AsyncConnection[Any]


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """Return the checksum of the text, independent of its line ends."""
        return hashlib.sha256(self.sql.replace("\r\n", "\n").encode()).hexdigest()

    @property
    def says_compatible(self) -> str | None:
        """Return what its first comment says about compatibility: yes, no, or None."""
        match = COMPATIBLE.match(self.sql.replace("\r\n", "\n"))
        return match[1].strip() if match else None

    @property
    def is_compatible(self) -> bool:
        """Whether every program that worked before this step works after it."""
        return self.says_compatible == "yes"

    def __str__(self) -> str:
        return f"{self.version:04d}_{self.name}"


@dataclass(frozen=True, slots=True)
class Applied:
    """The record of an applied step."""

    checksum: str
    is_compatible: bool


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """The schema version of the database and of this program; 0 is an empty database.

    A database may have more migrations than the program knows when all of these are compatible.
    """

    current: int
    known: int
    pending: tuple[Migration, ...]
    problems: tuple[str, ...]


def known_migrations(directory: Traversable | None = None) -> list[Migration]:
    """Return the steps of this program in order. Raises ValueError for a file that breaks the rules above."""
    directory = directory or files("cograil.store").joinpath("migrations")
    if not directory.is_dir():
        return []
    names = sorted(entry.name for entry in directory.iterdir() if entry.name.endswith(".sql"))
    migrations = [_read(directory, name) for name in names]
    for before, migration in pairwise(migrations):  # gaps are allowed, because branches reserve numbers
        if migration.version == before.version:
            raise ValueError(f"migrations {before} and {migration} have the same number")
    return migrations


async def status(conn: Connection, directory: Traversable | None = None) -> SchemaStatus:
    """Compare the database with this program. Changes nothing, raises nothing for a mismatch."""
    known = known_migrations(directory)
    applied = await _applied(conn)
    return SchemaStatus(
        current=max(applied, default=0),
        known=_newest(known),
        pending=tuple(migration for migration in known if migration.version not in applied),
        problems=tuple(_problems(known, applied)),
    )


async def plan(conn: Connection, directory: Traversable | None = None) -> list[Migration]:
    """Return the steps that `migrate` would apply, in order. Raises SchemaMismatch as it would."""
    schema = await status(conn, directory)
    if schema.problems:
        raise SchemaMismatch("; ".join(schema.problems))
    return list(schema.pending)


async def migrate(
    conn: Connection,
    on_step: Callable[[Migration], None] | None = None,
    directory: Traversable | None = None,
) -> list[Migration]:
    """Update the database to this program; return the steps that this process applied.

    Takes a connection in autocommit mode. Killed at any time it leaves whole steps. Raises SchemaMismatch
    when the database was migrated by other files, or has a newer step that this program cannot work with,
    DatabaseUnavailable when another session keeps a lock that a step needs.
    """
    if not conn.autocommit:
        raise ValueError("migrate needs a connection in autocommit mode: each step commits by itself")
    done = []
    for migration in await plan(conn, directory):
        if await _apply_patiently(conn, migration):
            done.append(migration)
            if on_step:
                on_step(migration)
    await plan(conn, directory)  # a concurrent process must have applied the same step
    return done


async def check_server(conn: Connection, allow_unsafe: bool = False) -> None:
    """Raise UnsafeDatabase when this server is too old, or may lose acknowledged commits.

    `allow_unsafe` is for tests, which can do without durability but not without features.
    """
    if conn.info.server_version < OLDEST_SERVER * 10_000:
        raise UnsafeDatabase(
            f"the server is PostgreSQL {conn.info.server_version // 10_000}; "
            f"cograil needs {OLDEST_SERVER} or newer"
        )
    rows = await _rows(
        conn,
        "select name from pg_settings where setting = 'off'"
        " and name in ('fsync', 'full_page_writes', 'synchronous_commit') order by name",
    )
    if rows and not allow_unsafe:
        off = " and ".join(name for (name,) in rows)
        raise UnsafeDatabase(
            f"the server may lose committed work: {off} {'is' if len(rows) == 1 else 'are'} off; "
            "switch on, or set COGRAIL_DATABASE__ALLOW_UNSAFE=true where nothing may be lost but tests"
        )


def _read(directory: Traversable, name: str) -> Migration:
    match = FILE_NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"migration {name} must have a name such as 0001_name.sql")
    text = directory.joinpath(name).read_text(encoding="utf-8")
    if ENDS_TRANSACTION.search(text):
        raise ValueError(f"migration {name} must not contain statements that begin or end a transaction")
    migration = Migration(int(match[1]), match[2], text)
    if migration.says_compatible not in (None, "yes", "no"):
        raise ValueError(f"migration {name} must contain `-- compatible: yes` or `-- compatible: no`")
    return migration


async def _applied(conn: Connection) -> dict[int, Applied]:
    """Return the applied steps, by version."""
    columns = await _columns(conn)
    if not columns:
        return {}
    mark = MARK if MARK in columns else "false"
    rows = await _rows(conn, f"select version, checksum, {mark} from cograil.schema_migrations")
    return {version: Applied(checksum, is_compatible) for version, checksum, is_compatible in rows}


def _newest(known: list[Migration]) -> int:
    return known[-1].version if known else 0


def _problems(known: list[Migration], applied: dict[int, Applied]) -> list[str]:
    newest = max(applied, default=0)
    for version in range(_newest(known) + 1, newest + 1):
        if version not in applied or not applied[version].is_compatible:
            return [
                f"the database has schema {newest}, this program knows {_newest(known)} at most "
                f"and cannot work with step {version}: "
                "a newer cograil migrated it; update this one"
            ]
    return [problem for migration in known if (problem := _problem(migration, applied, newest))]


def _problem(migration: Migration, applied: dict[int, Applied], newest: int) -> str | None:
    if migration.version not in applied:
        return (
            f"migration {migration} is missing in the database, which has schema {newest}"
            if migration.version < newest
            else None
        )
    if applied[migration.version].checksum != migration.checksum:
        return f"migration {migration} does not match this program: its checksum differs in the database"
    return None


async def _apply_patiently(conn: Connection, migration: Migration) -> bool:
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await _apply(conn, migration)
        except (LockNotAvailable, DeadlockDetected) as error:
            if time.monotonic() > until:
                raise DatabaseUnavailable(
                    f"migration {migration} cannot get its locks: another migration or a long transaction"
                    " holds them; see pg_stat_activity"
                ) from error
        await asyncio.sleep(0.1)


async def _apply(conn: Connection, migration: Migration) -> bool:
    """Apply this step and record it in one transaction; False when another process applied it first."""
    async with conn.transaction():
        await conn.execute("set local lock_timeout = '2s'")
        await conn.execute("set local statement_timeout = 0")
        await conn.execute("select pg_advisory_xact_lock(%s)", [LOCK_KEY])
        if migration.version in await _applied(conn):
            return False
        await _make_table(conn)
        await conn.execute("set local search_path = cograil")
        await conn.execute(migration.sql.encode(), prepare=False)  # bytes: the text has no parameters
        await conn.execute(
            f"insert into cograil.schema_migrations (version, name, checksum, program, {MARK})"
            " values (%s, %s, %s, %s, %s)",
            [
                migration.version,
                migration.name,
                migration.checksum,
                f"cograil {version_of('cograil')}",
                migration.is_compatible,
            ],
        )
    return True


async def _columns(conn: Connection) -> set[str]:
    """Return the columns of the record table; an empty set when the table does not exist.

    Reads the catalog, because to_regclass() may answer from a cache that is older than the lock.
    """
    rows = await _rows(
        conn,
        "select a.attname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped"
        " where n.nspname = 'cograil' and c.relname = 'schema_migrations'",
    )
    return {name for (name,) in rows}


async def _make_table(conn: Connection) -> None:
    """Create the record table with all its columns: old databases lack the column of the mark."""
    columns = await _columns(conn)
    if MARK in columns:
        return
    if columns:
        await conn.execute(
            f"alter table cograil.schema_migrations add column {MARK} boolean not null default false"
        )
        return
    # An administrator may have created the schema for a role that may not create it.
    if not await _rows(conn, "select from pg_namespace where nspname = 'cograil'"):
        await conn.execute("create schema cograil")
    await conn.execute(
        f"""
        create table cograil.schema_migrations (
          version int primary key,
          name text not null,
          checksum text not null,
          applied_at timestamptz not null default now(),
          program text not null,
          {MARK} boolean not null default false
        )
        """
    )


async def _rows(conn: Connection, query: str) -> list[tuple[Any, ...]]:
    """Return tuples, whatever row factory the connection has."""
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(query.encode())
        return await cursor.fetchall()
