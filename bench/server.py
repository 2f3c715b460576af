"""A durable PostgreSQL for the benchmark, and a fresh database for each part of it."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from cograil.embedded.postgres_server import EmbeddedPostgres, create_database
from cograil.processes.app_plugins import migrate_apps
from cograil.settings import Settings
from cograil.store.database_setup import set_up_database

APPS = ("captures", "companies", "containers", "documents")
NUMBERS = itertools.count(1)
MUCH = "create table much as select g, repeat('x', 1000) as x from generate_series(1, 650000) as g"


@contextmanager
def durable_postgres() -> Iterator[str]:
    """How to connect to it as its owner."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="cograil-bench-"))
        server = stack.enter_context(EmbeddedPostgres(Path(directory)))
        postgres = make_conninfo(server.conninfo, dbname="postgres")
        _run_in(postgres)
        yield postgres


def _run_in(postgres: str) -> None:
    """Let it write and recycle its log once.

    A new server makes and fills each file of its log the first time round, in the middle of what is
    measured; one that has lived a while uses its old ones again.
    """
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(MUCH)
        connection.execute("drop table much")
        connection.execute("checkpoint")


def fresh_database(postgres: str, *, schema: bool = True) -> str:
    """A new database, with cograil's schema in it or empty."""
    conninfo = create_database(postgres, f"bench_{next(NUMBERS)}")
    if schema:
        asyncio.run(_migrate(conninfo))
    return conninfo


async def _migrate(conninfo: str) -> None:
    async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as connection:
        await set_up_database(connection)
        await migrate_apps(connection, Settings(apps=APPS))
