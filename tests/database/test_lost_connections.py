"""Connections that were lost while nobody looked."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.conftest import NOT_DURABLE, Eventually

from cograil.embedded.postgres_server import EmbeddedPostgres
from cograil.settings import DatabaseSettings
from cograil.store.database import Database, Undone
from cograil.store.session_settings import engine_conninfo
from cograil.store.statements import Statement

ONE = Statement("one", "select 1", "select 1")
SIZE = 5


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    version = int(os.environ.get("COGRAIL_TEST_PG", "18"))
    with EmbeddedPostgres(tmp_path, version=version, settings=NOT_DURABLE) as server:
        yield server


async def ask(db: Database) -> int:
    async with db.single("test") as tx:
        return int((await tx.fetch(ONE))[0][0])


async def fill_the_pool(db: Database) -> None:
    """Have as many connections as there may be, all of them idle afterwards."""
    all_here = asyncio.Barrier(SIZE)

    async def hold() -> None:
        async with db.single("test") as tx:
            await tx.fetch(ONE)
            await all_here.wait()

    await asyncio.gather(*(hold() for _ in range(SIZE)))


def kill(server: EmbeddedPostgres) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)


@pytest.mark.parametrize("end", [EmbeddedPostgres.stop, kill], ids=["restart", "crash"])
async def test_no_statement_fails_on_a_connection_that_died_idle(
    server: EmbeddedPostgres, end: object, eventually: Eventually
) -> None:
    async with Database(server.conninfo, DatabaseSettings(pool_size=SIZE)) as db:
        await fill_the_pool(db)
        assert callable(end)
        end(server)
        await eventually(lambda: server.pid is None)
        server.stop()
        server.start()
        began = time.monotonic()
        assert [await ask(db) for _ in range(SIZE)] == [1] * SIZE
        assert await asyncio.gather(*(ask(db) for _ in range(SIZE))) == [1] * SIZE
        assert time.monotonic() - began < 2


async def test_a_session_that_was_ended_alone_costs_no_statement(server: EmbeddedPostgres) -> None:
    end = "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity where pid <> pg_backend_pid()"
    others = Statement("end", f"{end} and application_name = 'cograil'", end)
    async with Database(server.conninfo, DatabaseSettings(pool_size=SIZE)) as db:
        await fill_the_pool(db)
        async with db.single("test") as tx:
            assert await tx.fetch(others) == [(SIZE - 1,)]
        assert [await ask(db) for _ in range(SIZE)] == [1] * SIZE


async def test_after_a_long_outage_the_server_is_found_within_two_seconds(server: EmbeddedPostgres) -> None:
    """The pool would try after 1, 2, 4, 8 seconds, up to minutes."""
    async with Database(server.conninfo, DatabaseSettings(pool_size=SIZE)) as db:
        await fill_the_pool(db)
        server.stop()
        asking = asyncio.create_task(ask(db))
        await asyncio.sleep(3.5)  # the outage is what is tested
        assert not asking.done()
        server.start()
        async with asyncio.timeout(2):
            assert await asking == 1


async def test_a_session_lost_before_the_commit_is_known_to_have_done_nothing(dsn: str) -> None:
    """At the commit itself nobody knows: it may have been heard."""
    end = Statement("end", "select pg_terminate_backend(%(pid)s, 5000)", "")
    async with Database(dsn, DatabaseSettings(pool_size=2, allow_unsafe=True)) as db:

        async def lose(*then: Statement) -> None:
            async with db.transaction("test") as tx:
                async with db.single("test") as other:
                    await other.fetch(end, pid=tx.connection.info.backend_pid)
                for query in then:
                    await tx.fetch(query)

        async def last_too_long() -> None:
            async with db.transaction("test") as tx:
                await tx.connection.execute("set local statement_timeout = 50")
                await tx.connection.execute("select pg_sleep(5)")

        with pytest.raises(Undone):
            await lose(ONE)
        with pytest.raises(psycopg.OperationalError) as lost:
            await lose()
        assert not isinstance(lost.value, Undone)
        with pytest.raises(
            psycopg.errors.QueryCanceled
        ):  # its session is there: it was the statement's fault
            await last_too_long()
        assert await ask(db) == 1


def test_the_host_that_takes_writes_is_chosen_of_several() -> None:
    several = engine_conninfo("postgresql://u@a:1,b:2/d", DatabaseSettings(), "x")
    assert "target_session_attrs=read-write" in several
    conninfo = engine_conninfo("postgresql://u@a:1,b:2/d?target_session_attrs=any", DatabaseSettings(), "x")
    assert "target_session_attrs=any" in conninfo
    assert "target_session_attrs" not in engine_conninfo("postgresql://u@a/d", DatabaseSettings(), "x")
