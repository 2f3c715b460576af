"""Prepare a database for cograil: its roles, its schema, its grants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psycopg import AsyncConnection

from cograil.store.database_roles import create_roles, grant_rights
from cograil.store.migrate import Migration, check_server, migrate, plan


async def set_up_database(
    conn: AsyncConnection[Any],
    *,
    allow_unsafe: bool = False,
    on_step: Callable[[Migration], None] | None = None,
) -> list[Migration]:
    """Create the roles, update the schema to this program, grant the rights; return the migrations that
    were applied.

    It may be run again at any time and repairs an incomplete setup. Raises RolesMissing before the first
    change when the roles are missing and this login may not create them, UnsafeDatabase, SchemaMismatch or
    DatabaseUnavailable.
    """
    await check_server(conn, allow_unsafe)
    await plan(conn)
    await create_roles(conn)
    applied = await migrate(conn, on_step)
    await grant_rights(conn)
    return applied
