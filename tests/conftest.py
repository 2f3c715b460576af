"""A real PostgreSQL for every test that asks for one.

One server per process of pytest, without durability because nothing here outlives the run; the schema
is migrated once into a template, and each test gets a copy of its own. COGRAIL_TEST_PG=15|16|18
chooses the version.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.components import need, needed_by
from tests.lanes import is_slow
from tests.support.schemas import make_schemas

from cograil.embedded.postgres_server import EmbeddedPostgres, create_database

NOT_DURABLE = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
TEMPLATE = "cograil_template"
NUMBERS = itertools.count(1)
# Databases of tests that are over. The next test drops them: a server waits 0.1 s for sessions about to end.
LEFT: list[str] = []
MEMORY, ROOM_BYTES = Path("/dev/shm"), 4 * 1024**3


Databases = Callable[[], AbstractContextManager[str]]


class Eventually(Protocol):
    """Wait until a condition holds and return its value; fails with the last value after `timeout`."""

    async def __call__(self, condition: Callable[[], Any], timeout: float = 30.0) -> Any: ...


def pytest_configure() -> None:
    """Keep what tests write in memory, where there is room: to copy a database is ten times as fast there."""
    has_room = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM_BYTES
    if has_room and "TMPDIR" not in os.environ:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the slow tests. Torture is asked for by name, `make torture`; without that it is left out."""
    for item in items:
        if is_slow(item.path):
            item.add_marker("slow")
    if "torture" not in (config.option.markexpr or ""):
        left_out = {item for item in items if item.get_closest_marker("torture")}
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A file whose component is missing is skipped, or an error in CI."""
    need(*needed_by(item.nodeid))


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """How to connect to the server of this process, as its superuser, to the database `postgres`."""
    data_dir: Path = tmp_path_factory.mktemp("postgres")
    version = int(os.environ.get("COGRAIL_TEST_PG", "18"))
    if version == 15:
        need("postgresql-15")
    with EmbeddedPostgres(data_dir, version=version, settings=NOT_DURABLE) as server:
        yield make_conninfo(server.conninfo, dbname="postgres")


@pytest.fixture(scope="session")
def template(postgres: str) -> str:
    """The name of a database with the schema in it, for copying."""
    asyncio.run(make_schemas(create_database(postgres, TEMPLATE)))
    return TEMPLATE


@pytest.fixture
def dsn(postgres: str, template: str) -> Iterator[str]:
    """How to connect to a database with the schema that only this test uses."""
    yield from _database(postgres, template)


@pytest.fixture
def empty_dsn(postgres: str) -> Iterator[str]:
    """How to connect to an empty database that only this test uses."""
    yield from _database(postgres, "template1")


@pytest.fixture
def databases(postgres: str, template: str) -> Databases:
    """Databases like that of `dsn`, for a test that needs several."""
    return contextlib.contextmanager(lambda: _database(postgres, template))


def _database(postgres: str, template: str) -> Iterator[str]:
    name = f"test_{next(NUMBERS)}"
    with psycopg.connect(postgres, autocommit=True) as admin:
        while LEFT:
            admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(LEFT.pop())))
        admin.execute(
            sql.SQL("create database {} template {} strategy file_copy").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )  # copying files takes half as long as logging every page
    yield make_conninfo(postgres, dbname=name)
    LEFT.append(name)


@pytest.fixture
def eventually() -> Eventually:
    async def wait(condition: Callable[[], Any | Awaitable[Any]], timeout: float = 30.0) -> Any:
        until = time.monotonic() + timeout
        while True:
            value = condition()
            if inspect.isawaitable(value):
                value = await value
            if value:
                return value
            if time.monotonic() > until:
                raise AssertionError(f"not within {timeout} s; the last value was {value!r}")
            await asyncio.sleep(0.01)

    return wait
