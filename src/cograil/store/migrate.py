"""The schema, step by step: numbered SQL files, applied once each, forward only.

    migrations/0001_tables.sql ...   each file and its row in `cograil.schema_migrations` commit together

Any number of processes may migrate at once. Each step is one transaction that takes an advisory lock and
then reads again which steps are applied; so no session keeps a lock, and it works behind a pooler that
sessions between clients does no harm. A step that cannot have its locks within two seconds gives way to
the work that has them, and tries again.

A file runs with its schema as the search path, must not end its transaction, and must never be changed
after a release: its checksum is on record. The schema is `cograil`, or that of an app (`app_migrations.py`).

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
CORE_SCHEMA = "cograil"
DEVELOPMENT_BASELINE = "core"  # what step 1 was called before 0.1.0
MADE_BY_DEVELOPMENT = (
    "the database was made by a development version of cograil before 0.1.0 and cannot be upgraded: use a new"
    " database (another COGRAIL_DATABASE_URL, or another COGRAIL_DATA_DIR for the embedded one), or delete all of"
    " its data with `drop schema cograil cascade; drop schema if exists vault_secure cascade`, and run"
    " `cograil db migrate`"
)
LOCK_KEY = int.from_bytes(hashlib.sha256(b"cograil.schema_migrations").digest()[:8], "big", signed=True)

FILE_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
ENDS_TRANSACTION = re.compile(
    r"^\s*(begin|start|commit|rollback|abort)(\s+(work|transaction))?\s*;", re.I | re.M
)
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

    name: str
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


async def status(
    conn: Connection, directory: Traversable | None = None, schema: str = CORE_SCHEMA
) -> SchemaStatus:
    """Compare a schema of the database with this program. Changes nothing, raises nothing for a mismatch."""
    known = known_migrations(directory)
    applied = await _applied(conn, schema)
    is_development = schema == CORE_SCHEMA and 1 in applied and applied[1].name == DEVELOPMENT_BASELINE
    return SchemaStatus(
        current=max(applied, default=0),
        known=_newest(known),
        pending=tuple(migration for migration in known if migration.version not in applied),
        problems=(MADE_BY_DEVELOPMENT,) if is_development else tuple(_problems(known, applied)),
    )


async def plan(
    conn: Connection, directory: Traversable | None = None, schema: str = CORE_SCHEMA
) -> list[Migration]:
    """Return the steps that `migrate` would apply, in order. Raises SchemaMismatch as it would."""
    state = await status(conn, directory, schema)
    if state.problems:
        raise SchemaMismatch("; ".join(state.problems))
    return list(state.pending)


async def migrate(
    conn: Connection,
    on_step: Callable[[Migration], None] | None = None,
    directory: Traversable | None = None,
    schema: str = CORE_SCHEMA,
) -> list[Migration]:
    """Update the database to this program; return the steps that this process applied.

    Takes a connection in autocommit mode. Killed at any time it leaves whole steps. Raises SchemaMismatch
    when the database was migrated by other files, or has a newer step that this program cannot work with,
    DatabaseUnavailable when another session keeps a lock that a step needs.
    """
    if not conn.autocommit:
        raise ValueError("migrate needs a connection in autocommit mode: each step commits by itself")
    done = []
    for migration in await plan(conn, directory, schema):
        if await _apply_patiently(conn, schema, migration):
            done.append(migration)
            if on_step:
                on_step(migration)
    await plan(conn, directory, schema)  # a concurrent process must have applied the same step
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


async def _applied(conn: Connection, schema: str) -> dict[int, Applied]:
    """Return the applied steps, by version."""
    if not await _has_record(conn, schema):
        return {}
    rows = await _rows(conn, f"select version, name, checksum, is_compatible from {schema}.schema_migrations")
    return {version: Applied(*record) for version, *record in rows}


def _newest(known: list[Migration]) -> int:
    return known[-1].version if known else 0


def _problems(known: list[Migration], applied: dict[int, Applied]) -> list[str]:
    if 1 in applied and known and applied[1].name == DEVELOPMENT_BASELINE != known[0].name:
        return [MADE_BY_DEVELOPMENT]
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


async def _apply_patiently(conn: Connection, schema: str, migration: Migration) -> bool:
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await _apply(conn, schema, migration)
        except (LockNotAvailable, DeadlockDetected) as error:
            if time.monotonic() > until:
                raise DatabaseUnavailable(
                    f"migration {migration} cannot get its locks: another migration or a long transaction"
                    " holds them; see pg_stat_activity"
                ) from error
        await asyncio.sleep(0.1)


async def _apply(conn: Connection, schema: str, migration: Migration) -> bool:
    """Apply this step and record it in one transaction; False when another process was quicker."""
    async with conn.transaction():
        await conn.execute("set local lock_timeout = '2s'")
        await conn.execute("set local statement_timeout = 0")
        await conn.execute("select pg_advisory_xact_lock(%s)", [LOCK_KEY])
        if migration.version in await _applied(conn, schema):
            return False
        await _make_record(conn, schema)
        await conn.execute(f"set local search_path = {schema}".encode())
        await conn.execute(migration.sql.encode(), prepare=False)  # bytes: the text has no parameters
        await conn.execute(
            f"insert into {schema}.schema_migrations (version, name, checksum, program, is_compatible)".encode()
            + b" values (%s, %s, %s, %s, %s)",
            [
                migration.version,
                migration.name,
                migration.checksum,
                f"cograil {version_of('cograil')}",
                migration.is_compatible,
            ],
        )
    return True


async def _has_record(conn: Connection, schema: str) -> bool:
    """Whether the table of the record exists.

    Read from the catalog: to_regclass() may answer from a cache older than the lock we waited for.
    """
    query = (
        "select from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        f" where n.nspname = '{schema}' and c.relname = 'schema_migrations'"
    )
    return bool(await _rows(conn, query))


async def _make_record(conn: Connection, schema: str) -> None:
    """Create the schema and the table of its record, unless they exist."""
    if await _has_record(conn, schema):
        return
    # An administrator may have created the schema for a role that may not create it.
    if not await _rows(conn, f"select from pg_namespace where nspname = '{schema}'"):
        await conn.execute(f"create schema {schema}".encode())
    await conn.execute(
        f"""
        create table {schema}.schema_migrations (
          version int primary key,
          name text not null,
          checksum text not null,
          applied_at timestamptz not null default now(),
          program text not null,
          is_compatible boolean not null default false
        )
        """.encode()
    )


async def _rows(conn: Connection, query: str) -> list[tuple[Any, ...]]:
    """Return tuples, whatever row factory the connection has."""
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(query.encode())
        return await cursor.fetchall()
