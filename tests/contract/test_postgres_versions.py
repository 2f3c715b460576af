"""The same promises on every PostgreSQL we name: statements can be prepared, jobs run, all invariants hold.

`make matrix` runs all tests of the database on each of them; this is the part that every run has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from tests.components import need
from tests.conftest import NOT_DURABLE
from tests.support.harness import open_harness
from tests.support.schemas import make_schemas

from cograil.embedded.postgres_binaries import OLDEST_VERSION, installed
from cograil.embedded.postgres_server import EmbeddedPostgres
from cograil.store.migrate import OLDEST_SERVER
from cograil.store.statements import all_statements, native

VERSIONS = (15, 16, 18)
FAN = """
workflow_id: fan
nodes:
  split:
    type: fan_out
    source: "{{ inputs.numbers }}"
    task: {handler: hello_world, params: {name: "{{ item }}"}}
    next: gather
  gather: {type: fan_in, next: bye}
  bye: {handler: hello_world, params: {name: "{{ nodes.gather.output.count }}"}}
"""
NAP = "workflow_id: nap\nnodes:\n  nap: {handler: nobody_has_this}\n"


@pytest.fixture(scope="module", params=VERSIONS)
def conninfo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A database with the schema, on a server of this version."""
    version = request.param
    if version == 15:
        need("postgresql-15")
    assert version in installed(), f"PostgreSQL {version} is not on this machine: run `make components`"
    data_dir = tmp_path_factory.mktemp(f"postgres{version}")
    with EmbeddedPostgres(data_dir, version=version, settings=NOT_DURABLE) as server:
        asyncio.run(_migrate(server.conninfo, version))
        yield server.conninfo


async def _migrate(conninfo: str, version: int) -> None:
    async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as connection:
        assert connection.info.server_version // 10_000 == version
    await make_schemas(conninfo)


def test_the_oldest_version_we_name_is_among_them() -> None:
    assert OLDEST_SERVER == OLDEST_VERSION == min(VERSIONS)


def test_every_statement_can_be_prepared(conninfo: str) -> None:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for statement in all_statements():
            text, _ = native(statement.text)
            connection.pgconn.prepare(statement.name.encode(), text.encode())
            assert connection.pgconn.describe_prepared(statement.name.encode()).nparams >= 0


async def test_jobs_run_and_are_cancelled_and_every_invariant_holds(conninfo: str) -> None:
    async with open_harness(conninfo) as lab, lab.running():
        fans = await lab.submit_many(FAN, [{"numbers": list(range(n))} for n in (0, 1, 20)])
        stuck = await lab.submit(NAP)
        for job_id in fans:
            assert (await lab.ended(job_id))["status"] == "completed"
        await lab.cancel(stuck)
        assert (await lab.ended(stuck))["status"] == "cancelled"
        assert await lab.findings() == []
