"""The schemas of apps: `cograil_<app>`, each with its own numbered migrations and its own record of them.

The files follow the rules of `migrate.py`: `0001_name.sql`, applied once each, forward only, never changed after
a release. A file runs with the schema of its app as the search path. The record is the table
`schema_migrations` in that schema. Owners, row-level security and grants of all tables in these schemas are set
by `database_roles.grant_rights`, which runs afterwards.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

from psycopg import AsyncConnection

from cograil.errors import SchemaMismatch, UsageError
from cograil.store.migrate import Migration, SchemaStatus, migrate, status

SCHEMA_NAME = re.compile(r"cograil_[a-z][a-z0-9_]{0,54}")


def schema_of(app: str) -> str:
    """Return the name of the schema of an app. Raises UsageError when it is not one."""
    schema = f"cograil_{app}"
    if not SCHEMA_NAME.fullmatch(schema):
        raise UsageError(
            f"the app {app!r} cannot have migrations: its name must be small letters, digits and _, at most 55"
        )
    return schema


async def app_status(conn: AsyncConnection[Any], app: str, package: str) -> SchemaStatus:
    """Compare the schema of an app with the files in `<package>/migrations`; each problem names the app."""
    state = await status(conn, files(package).joinpath("migrations"), schema_of(app))
    problems = tuple(f"the app {app!r}: {problem}" for problem in state.problems)
    return SchemaStatus(state.current, state.known, state.pending, problems)


async def migrate_app(conn: AsyncConnection[Any], app: str, package: str) -> list[Migration]:
    """Apply the pending files of `<package>/migrations`, each in its own transaction; return those applied.

    Takes a connection in autocommit mode. Raises what `migrate` raises; a SchemaMismatch names the app.
    """
    try:
        return await migrate(conn, directory=files(package).joinpath("migrations"), schema=schema_of(app))
    except SchemaMismatch as error:
        raise SchemaMismatch(f"the app {app!r}: {error}") from error
