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

from cograil.store.embedded import EmbeddedPostgres, create_database
from cograil.store.migrate import migrate

NUMBERS = itertools.count(1)


@contextmanager
def durable_postgres() -> Iterator[str]:
    """How to connect to it as its owner."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="cograil-bench-"))
        server = stack.enter_context(EmbeddedPostgres(Path(directory)))
        yield make_conninfo(server.conninfo, dbname="postgres")


def fresh_database(postgres: str, *, schema: bool = True) -> str:
    """A new database, with cograil's schema in it or empty."""
    conninfo = create_database(postgres, f"bench_{next(NUMBERS)}")
    if schema:
        asyncio.run(_migrate(conninfo))
    return conninfo


async def _migrate(conninfo: str) -> None:
    async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as connection:
        await migrate(connection)
