"""The schemas of apps: made for the apps that are enabled, owned and guarded like the core."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from cograil.errors import SchemaMismatch, UsageError
from cograil.processes.app_plugins import app_schemas, migrate_apps
from cograil.settings import Settings
from cograil.store.app_migrations import app_status, migrate_app, schema_of
from cograil.store.database_roles import read_roles
from cograil.store.database_setup import set_up_database

STEP = "create table loads (id bigint generated always as identity primary key, tenant_id text not null);"


@pytest_asyncio.fixture
async def conn(empty_dsn: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """A database with the core only."""
    async with await psycopg.AsyncConnection.connect(empty_dsn, autocommit=True) as connection:
        await set_up_database(connection, allow_unsafe=True)
        yield connection


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The migrations of the package `wash`."""
    (tmp_path / "wash" / "migrations").mkdir(parents=True)
    (tmp_path / "wash" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "wash" / "migrations"
    sys.modules.pop("wash", None)


async def values(conn: psycopg.AsyncConnection[Any], query: str) -> list[Any]:
    return [value for (value,) in await (await conn.execute(query.encode())).fetchall()]


SCHEMAS = "select nspname from pg_namespace where nspname ~ '^(cograil|vault)' order by 1"


async def test_only_enabled_apps_have_a_schema(conn: Any) -> None:
    assert await values(conn, SCHEMAS) == ["cograil"]
    assert await migrate_apps(conn, Settings(apps=())) == {}
    assert [str(step) for step in (await migrate_apps(conn, Settings()))["containers"]] == [
        "0001_container_jobs"
    ]
    assert await values(conn, SCHEMAS) == ["cograil", "cograil_containers"]
    settings = Settings(apps=("captures", "containers"))
    assert [bool(schema.pending) for schema in (await app_schemas(conn, settings)).values()] == [True, False]
    assert (await migrate_apps(conn, settings))["containers"] == []
    assert await values(conn, SCHEMAS) == [
        "cograil",
        "cograil_captures",
        "cograil_containers",
        "vault_secure",
    ]
    assert (await read_roles(conn)).is_complete


async def test_the_server_sees_one_tenant_of_an_app_and_reads_its_record_only(conn: Any, steps: Path) -> None:
    (steps / "0001_loads.sql").write_text(STEP)
    await migrate_app(conn, "wash", "wash")
    assert not (await read_roles(conn)).is_complete
    await migrate_apps(conn, Settings(apps=()))
    assert (await read_roles(conn)).is_complete
    await conn.execute("insert into cograil_wash.loads (tenant_id) values ('default'), ('other')")
    async with conn.transaction():
        await conn.execute("set local role cograil_server; set local cograil.tenant = 'other'")
        await conn.execute("insert into cograil_wash.loads (tenant_id) values ('other')")
        assert await values(conn, "select tenant_id from cograil_wash.loads") == ["other", "other"]
        assert await values(conn, "select version from cograil_wash.schema_migrations") == [1]
    for statement in (
        "update cograil_wash.schema_migrations set checksum = ''",
        "insert into cograil_wash.loads (tenant_id) values ('default')",
    ):
        as_server = f"set local role cograil_server; set local cograil.tenant = 'other'; {statement}"
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await conn.execute(as_server.encode())


async def test_an_app_has_its_own_numbers_and_its_problems_name_it(conn: Any, steps: Path) -> None:
    (steps / "0001_loads.sql").write_text(STEP)
    (steps / "0002_soap.sql").write_text("alter table loads add column soap text;")
    assert [step.version for step in await migrate_app(conn, "wash", "wash")] == [1, 2]
    assert await migrate_app(conn, "wash", "wash") == []
    (steps / "0002_soap.sql").write_text("alter table loads add column soap int;")
    with pytest.raises(SchemaMismatch, match=r"the app 'wash': migration 0002_soap .* checksum differs"):
        await migrate_app(conn, "wash", "wash")
    (steps / "0002_soap.sql").unlink()
    state = await app_status(conn, "wash", "wash")
    assert (state.current, state.known) == (2, 1)
    assert "the app 'wash': the database has schema 2, this program knows 1" in state.problems[0]


def test_an_app_whose_name_is_not_a_name_in_sql_has_no_schema() -> None:
    with pytest.raises(UsageError, match="the app 'wash-it' cannot have migrations"):
        schema_of("wash-it")
