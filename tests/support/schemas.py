"""The schemas of the core and of all apps of cograil, in a database for tests."""

from __future__ import annotations

import psycopg

from cograil.processes.app_plugins import migrate_apps
from cograil.settings import Settings
from cograil.store.database_setup import set_up_database

APPS = ("captures", "companies", "containers", "documents")


async def make_schemas(conninfo: str) -> None:
    """Create roles, tables and grants, whichever apps a test enables afterwards."""
    async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as connection:
        await set_up_database(connection, allow_unsafe=True)
        await migrate_apps(connection, Settings(apps=APPS))
