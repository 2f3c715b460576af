"""The doctor on tables and snapshots: what is large, what is dead, and who keeps it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg.conninfo import make_conninfo
from tests.support.harness import Harness
from tests.support.one_node import one

from cograil.embedded.postgres_server import EmbeddedPostgres, create_database
from cograil.store import table_bloat
from cograil.store.migrate import migrate
from cograil.store.table_bloat import Snapshot, TableHealth, TableSize, look

NOT_DURABLE = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}


async def seen_by(harness: Harness) -> TableHealth:
    async with harness.db.single("test") as tx:
        return await look(tx.connection)


async def snapshots(harness: Harness, kind: str) -> list[Snapshot]:
    return [snapshot for snapshot in (await seen_by(harness)).snapshots if snapshot.kind == kind]


async def test_every_table_of_ours_has_its_size_the_largest_first(harness: Harness) -> None:
    await harness.submit_many(one(), [{}] * 300)
    sizes = (await seen_by(harness)).sizes
    tables = await harness.rows(
        "select schemaname, tablename from pg_tables where schemaname ~ '^(cograil|vault_secure)'"
    )
    names = {table if schema == "cograil" else f"{schema}.{table}" for schema, table in tables}
    partitioned = {"nodes", "events"}
    assert {size.table for size in sizes} == names - partitioned
    totals = [size.total_bytes for size in sizes]
    assert totals == sorted(totals, reverse=True)
    jobs = next(size for size in sizes if size.table == "jobs")
    assert jobs.total_bytes > jobs.index_bytes > 0


async def test_rows_dead_rows_and_the_last_vacuum_are_told(harness: Harness, eventually: Any) -> None:
    await harness.submit_many(one(), [{}] * 50)
    await harness.rows("update cograil.jobs set priority = 1")
    await harness.rows("select pg_stat_force_next_flush()")

    async def jobs() -> TableSize:
        return next(size for size in (await seen_by(harness)).sizes if size.table == "jobs")

    await eventually(lambda: _has(jobs, rows=50, dead_rows=50))
    assert (await jobs()).vacuumed_at is None
    await harness.rows("vacuum cograil.jobs")
    await eventually(lambda: _has(jobs, dead_rows=0))
    assert (await jobs()).vacuumed_at is not None


async def _has(jobs: Any, **expected: int) -> bool:
    counts = await jobs()
    return all(getattr(counts, name) == value for name, value in expected.items())


async def test_a_session_that_holds_a_snapshot_is_named(harness: Harness, dsn: str) -> None:
    assert await snapshots(harness, "session") == []
    async with await psycopg.AsyncConnection.connect(dsn, application_name="long report") as reader:
        await reader.execute("set transaction isolation level repeatable read")
        await reader.execute("select 1")
        await harness.submit_many(one(), [{}] * 3)
        await harness.submit(one())
        (snapshot,) = await snapshots(harness, "session")
        assert (snapshot.application, snapshot.state) == ("long report", "idle in transaction")
        assert snapshot.name == f"pid {reader.info.backend_pid}"
        assert snapshot.transactions >= 2
        assert snapshot.seconds is not None
        assert not snapshot.is_old


async def test_an_old_snapshot_is_a_warning_with_who_it_is(
    harness: Harness, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {finding.level for finding in (await seen_by(harness)).findings()} == {"green"}
    monkeypatch.setattr(table_bloat, "OLD_SECONDS", 0.0)
    async with await psycopg.AsyncConnection.connect(dsn, application_name="long report") as reader:
        await reader.execute("set transaction isolation level repeatable read")
        await reader.execute("select 1")
        dead_rows, old, _ = (await seen_by(harness)).findings()
    assert (dead_rows.level, old.level, old.code, old.count) == ("green", "yellow", "H2", 1)
    assert "long report" in old.ids[0]
    assert "idle in transaction" in old.ids[0]


async def test_a_replication_slot_that_keeps_rows_is_named(harness: Harness) -> None:
    await harness.rows("select pg_create_physical_replication_slot('standby')")
    try:
        assert await snapshots(harness, "replication slot") == [], "it keeps no rows until somebody uses it"
    finally:
        await harness.rows("select pg_drop_replication_slot('standby')")
    idle = Snapshot(
        "replication slot", "standby", "physical", "inactive", None, table_bloat.OLD_TRANSACTIONS + 1
    )
    (_, finding) = TableHealth(snapshots=(idle,)).findings()
    assert (finding.level, "standby" in finding.ids[0]) == ("yellow", True)
    assert not replace(idle, transactions=table_bloat.OLD_TRANSACTIONS).is_old


@pytest_asyncio.fixture
async def replicating(tmp_path: Path) -> AsyncIterator[str]:
    """A server with slots for logical replication and with prepared transactions."""
    settings = NOT_DURABLE | {"wal_level": "logical", "max_prepared_transactions": "2"}
    version = int(os.environ.get("COGRAIL_TEST_PG", "18"))
    with EmbeddedPostgres(tmp_path, version=version, settings=settings) as server:
        dsn = create_database(make_conninfo(server.conninfo, dbname="postgres"), "health")
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            await migrate(conn)
        yield dsn


async def test_a_logical_slot_and_a_prepared_transaction_are_named(replicating: str) -> None:
    async with await psycopg.AsyncConnection.connect(replicating, autocommit=True) as conn:
        await conn.execute("select pg_create_logical_replication_slot('feed', 'pgoutput')")
        await conn.execute("begin; update cograil.jobs set priority = 1; prepare transaction 'forgotten'")
        await conn.execute("select pg_current_xact_id()")
        snapshots_by_kind = {snapshot.kind: snapshot for snapshot in (await look(conn)).snapshots}
        slot, prepared = snapshots_by_kind["replication slot"], snapshots_by_kind["prepared transaction"]
        assert (slot.name, slot.state, slot.seconds) == ("feed", "inactive", None)
        assert (prepared.name, prepared.state) == ("forgotten", "prepared")
        assert min(slot.transactions, prepared.transactions) >= 1
        assert prepared.seconds is not None
        await conn.execute("rollback prepared 'forgotten'")
        await conn.execute("select pg_drop_replication_slot('feed')")
        assert (await look(conn)).snapshots == ()


def table(rows: int, dead: int) -> TableSize:
    return TableSize("jobs", rows, dead, 1 << 20, 1 << 10, None)


@pytest.mark.parametrize(
    ("rows", "dead", "level"),
    [
        (0, 0, "green"),
        (10, 90_000, "green"),
        (1_000_000, 200_000, "green"),
        (1_000_000, 600_000, "yellow"),
        (0, 100_000, "yellow"),
    ],
)
def test_a_table_that_is_mostly_dead_is_a_warning(rows: int, dead: int, level: str) -> None:
    finding = TableHealth((table(rows, dead),)).findings()[0]
    assert (finding.code, finding.level) == ("H1", level)
    assert finding.ids == (("jobs",) if level == "yellow" else ())


async def test_the_partitions_are_told_with_their_size_and_until_when_they_were_made(
    harness: Harness,
) -> None:
    await harness.submit_many(one(), [{}] * 300)
    finding = (await seen_by(harness)).findings()[2]
    ((until,),) = await harness.rows(
        "select to_char(to_timestamp((floor(extract(epoch from now()) / 604800) + 2) * 604800), 'YYYY-MM-DD')"
    )
    assert (finding.code, finding.level) == ("H3", "green")
    assert finding.message.startswith("4 with ")
    assert f"made until {until}; 0." in finding.message
    made = (await seen_by(harness)).partitions
    assert made is not None
    assert made.total_bytes > 100_000
    assert made.until is not None
    assert "no partition created since" in str(replace(made, now=made.until))


async def test_a_database_without_partitions_is_well_too(harness: Harness) -> None:
    for (name,) in await harness.rows("select name from cograil.partitions"):
        await harness.rows(f"drop table cograil.{name}")
    await harness.submit_many(one(), [{}] * 3)
    partitions = (await seen_by(harness)).partitions
    assert partitions is not None
    assert (partitions.count, partitions.until, "are deleted by rows" in str(partitions)) == (0, None, True)
    assert partitions.default_bytes > 0
