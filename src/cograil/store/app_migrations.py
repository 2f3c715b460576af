"""The schemas of apps: `cograil_<app>`, each with its own numbered migrations and its own record of them.

The files follow the rules of `migrate.py`: `0001_name.sql`, applied once each, forward only, never changed after
a release. A file runs with the schema of its app as the search path. The record is the table
`schema_migrations` in that schema, so dropping the schema removes the app's data and nothing else.
"""

from __future__ import annotations

from importlib.metadata import version as version_of
from importlib.resources import files
from typing import Any

from psycopg import AsyncConnection, sql
from psycopg.rows import tuple_row

from cograil.errors import SchemaMismatch
from cograil.store.migrate import LOCK_KEY, Migration, known_migrations

ROLES = ("cograil_server", "cograil_engine")


def schema_of(app: str) -> str:
    """Return the name of the schema of an app."""
    return f"cograil_{app}"


async def migrate_app(conn: AsyncConnection[Any], app: str, package: str) -> list[Migration]:
    """Apply the pending files of `<package>/migrations`, each in its own transaction; return those applied.

    Takes a connection in autocommit mode. Raises SchemaMismatch when an applied file was changed.
    """
    applied = []
    for migration in known_migrations(files(package).joinpath("migrations")):
        if await _apply(conn, app, migration):
            applied.append(migration)
    return applied


async def _apply(conn: AsyncConnection[Any], app: str, migration: Migration) -> bool:
    """Apply one file and record it; False when it is applied already."""
    schema = sql.Identifier(schema_of(app))
    async with conn.transaction():
        await conn.execute("select pg_advisory_xact_lock(%s)", [LOCK_KEY])
        await conn.execute("set local client_min_messages = warning")
        await conn.execute(sql.SQL("create schema if not exists {}").format(schema))
        await conn.execute(sql.SQL("set local search_path = {}").format(schema))
        await conn.execute(
            "create table if not exists schema_migrations (version int primary key, name text not null,"
            " checksum text not null, applied_at timestamptz not null default now(), program text not null)"
        )
        if (checksum := await _recorded(conn, migration.version)) is not None:
            if checksum != migration.checksum:
                raise SchemaMismatch(
                    f"migration {migration} of the app {app!r} was changed after it was applied"
                )
            return False
        await conn.execute(migration.sql.encode(), prepare=False)
        await conn.execute(
            "insert into schema_migrations (version, name, checksum, program) values (%s, %s, %s, %s)",
            [migration.version, migration.name, migration.checksum, f"cograil {version_of('cograil')}"],
        )
        await _grant(conn, schema)
    return True


async def _recorded(conn: AsyncConnection[Any], version: int) -> str | None:
    """Return the checksum of an applied migration; None when it is not applied."""
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute("select checksum from schema_migrations where version = %s", [version])
        rows = await cursor.fetchall()
    return next((str(checksum) for (checksum,) in rows), None)


async def _grant(conn: AsyncConnection[Any], schema: sql.Identifier) -> None:
    """Grant the roles of cograil the use of the tables and sequences of this schema. Skips roles that do
    not exist.
    """
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute("select rolname from pg_roles where rolname = any(%s)", [list(ROLES)])
        roles = [sql.Identifier(name) for (name,) in await cursor.fetchall()]
    for role in roles:
        for rights in (
            "grant usage on schema {} to {}",
            "grant select, insert, update, delete on all tables in schema {} to {}",
            "grant usage on all sequences in schema {} to {}",
        ):
            await conn.execute(sql.SQL(rights).format(schema, role))
