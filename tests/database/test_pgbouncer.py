"""Behind a pooler that gives a session to another client after each transaction."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.conftest import Eventually
from tests.support.harness import open_harness, quick_settings
from tests.support.pgbouncer import USER, PgBouncer, open_pgbouncer

from cograil.embedded.postgres_server import EmbeddedPostgres, create_database
from cograil.processes.database_host import prepare_database
from cograil.processes.instance_discovery import open_client
from cograil.settings import DatabaseSettings, Settings
from cograil.store.database import Database
from cograil.store.migrate import known_migrations
from cograil.store.statements import Statement

CLIENTS, EACH = 30, 4
CHAIN = """
workflow_id: chain
nodes:
  first: {handler: hello_world, params: {name: "{{ inputs.name }}"}, next: second}
  second: {handler: hello_world, params: {name: "{{ nodes.first.output.message }}"}}
"""
PLAIN_SETTINGS = "select current_setting('enable_seqscan'), current_setting('timezone')"


def query(text: str) -> Statement:
    return Statement("test", text, text)


OUR_SETTINGS = query(
    "select current_setting('enable_seqscan'), current_setting('jit'), current_setting('timezone'),"
    " current_setting('idle_in_transaction_session_timeout'), current_setting('plan_cache_mode')"
)


class Server:
    """A durable PostgreSQL that writes down every statement and who sent it."""

    def __init__(self, postgres: EmbeddedPostgres) -> None:
        self.postgres = postgres
        self.databases = 0

    def database(self) -> str:
        """An empty database."""
        self.databases += 1
        return create_database(self.postgres.conninfo, f"pooled_{self.databases}")

    def statements(self, url: str, user: str) -> list[str]:
        """What this user sent to this database."""
        name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
        lines = self.postgres.log.read_text(encoding="utf-8").splitlines()
        return [line for line in lines if line.startswith(f"{user}|{name}|")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {"log_statement": "all", "log_line_prefix": "%u|%d|", "timezone": "Europe/Berlin"}
    version = int(os.environ.get("COGRAIL_TEST_PG", "18"))
    with EmbeddedPostgres(tmp_path_factory.mktemp("server"), version=version, settings=settings) as postgres:
        yield Server(postgres)


@pytest.fixture
def pooled(server: Server) -> Iterator[PgBouncer]:
    """A pooler before a database with the schema, which the pooler brought there itself."""
    with open_pgbouncer(server.database()) as bouncer:
        asyncio.run(prepare_database(bouncer.url, Settings()))
        yield bouncer


def settings_of(bouncer: PgBouncer, *, is_direct: bool = True, **database: Any) -> Settings:
    direct = {"direct_url": bouncer.direct_url} if is_direct else {}
    return quick_settings(database={"url": bouncer.url, **direct, **database})


async def submit_as(settings: Settings, number: int) -> list[str]:
    """One client of many: its own connections, a few jobs one after another."""
    assert settings.database.url
    async with open_harness(settings.database.url, settings) as harness:
        return [await harness.submit(CHAIN, {"name": f"{number}.{i}"}) for i in range(EACH)]


@contextlib.contextmanager
def process(kind: str, settings: Settings) -> Iterator[None]:
    """`cograil orchestrator` or `cograil worker`, as a person starts it."""
    database = settings.database
    environment = os.environ | {
        "COGRAIL_DATABASE_URL": database.url or "",
        "COGRAIL_DATABASE__DIRECT_URL": database.direct_url or "",
        "COGRAIL_LOG__LEVEL": "warning",
    }
    child = subprocess.Popen([sys.executable, "-m", "cograil", kind], env=environment)
    try:
        yield
        assert child.poll() is None, "it ended"
    finally:
        child.terminate()
        child.wait()


def cli(settings: Settings, *words: str) -> subprocess.CompletedProcess[str]:
    database = settings.database
    environment = os.environ | {
        "COGRAIL_DATABASE_URL": database.url or "",
        "COGRAIL_DATABASE__DIRECT_URL": database.direct_url or "",
    }
    command = [sys.executable, "-m", "cograil", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("is_direct", [True, False], ids=["with a direct URL", "with the pooler alone"])
async def test_thirty_clients_and_all_processes_share_two_sessions(
    server: Server, pooled: PgBouncer, is_direct: bool, eventually: Eventually
) -> None:
    settings = settings_of(pooled, is_direct=is_direct)
    with process("orchestrator", settings), process("worker", settings):
        batches = await asyncio.gather(*(submit_as(settings, n) for n in range(CLIENTS)))
        jobs = {job_id for batch in batches for job_id in batch}
        assert len(jobs) == CLIENTS * EACH
        async with open_harness(pooled.url, settings) as harness:
            ended = "select count(*) from cograil.jobs where status = 'completed'"

            async def are_done() -> bool:
                return await harness.rows(ended) == [(len(jobs),)]

            await eventually(are_done, timeout=60)
            sessions = await harness.rows(
                f"select count(*) from pg_stat_activity where usename = '{USER}'"
                " and datname = current_database()"
            )
            assert sessions[0][0] <= 2
            assert await harness.findings() == []
        doctor = await asyncio.to_thread(cli, settings, "doctor", "--json")
    assert json.loads(doctor.stdout)["status"] == "green", doctor.stdout + doctor.stderr
    through_pooler = server.statements(pooled.direct_url, USER)
    assert len(through_pooler) > 10 * len(jobs) / EACH
    assert [line for line in through_pooler if re.search(r"\blisten\b", line, re.I)] == []
    assert [line for line in through_pooler if "execute _pg3" in line] == []
    listens = [line for line in server.statements(pooled.direct_url, "postgres") if ": listen " in line]
    assert bool(listens) == is_direct


async def test_a_pooler_is_recognised_and_a_server_is_not(pooled: PgBouncer) -> None:
    for url, expected in ((pooled.url, True), (pooled.direct_url, False)):
        async with Database(url, DatabaseSettings()) as db:
            assert db.is_pooled is expected
            assert (db.direct is None) is expected


async def test_a_pooler_that_swallows_session_settings_is_recognised(server: Server) -> None:
    with open_pgbouncer(server.database(), more="ignore_startup_parameters = options") as bouncer:
        async with Database(bouncer.url, DatabaseSettings()) as db:
            assert db.is_pooled


async def test_the_pooled_setting_wins_over_detection(pooled: PgBouncer) -> None:
    async with Database(pooled.direct_url, DatabaseSettings(pooled=True)) as db:
        assert db.is_pooled
        assert db.direct is None


async def test_our_settings_hold_in_our_transactions_and_nowhere_else(pooled: PgBouncer) -> None:
    expected = [("off", "off", "UTC", "3s", "force_generic_plan")]
    async with Database(pooled.url, DatabaseSettings()) as db:
        async with db.transaction("test") as tx:
            assert await tx.fetch(OUR_SETTINGS) == expected
            assert tx.now.utcoffset() is not None
        async with db.single("test") as tx:
            assert await tx.fetch(OUR_SETTINGS) == expected
        async with await psycopg.AsyncConnection.connect(pooled.url, prepare_threshold=None) as other:
            assert await (await other.execute(PLAIN_SETTINGS)).fetchone() == ("on", "Europe/Berlin")


async def test_a_session_stopped_inside_a_transaction_loses_its_locks(
    pooled: PgBouncer, eventually: Eventually
) -> None:
    settings = DatabaseSettings(idle_in_transaction_seconds=0.3)
    lock = query("select pg_try_advisory_xact_lock(7)")
    async with Database(pooled.url, settings) as db, Database(pooled.url, settings) as other:

        async def gets_it() -> bool:
            async with other.single("test") as tx:
                return bool((await tx.fetch(lock))[0][0])

        async def stops_inside() -> None:
            async with db.transaction("test") as tx:
                assert await tx.fetch(lock) == [(True,)]
                assert not await gets_it()
                await eventually(gets_it, timeout=5)
                await tx.fetch(lock)

        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            await stops_inside()
        async with db.single("test") as tx:
            assert await tx.fetch(lock) == [(True,)]


async def test_without_a_direct_url_a_job_takes_a_few_seconds_from_the_start(pooled: PgBouncer) -> None:
    """Each hop waits for a poll of a second; nobody first waits for notices that cannot come."""
    settings = settings_of(pooled, is_direct=False).model_copy(update={"lease": Settings().lease})
    async with open_harness(pooled.url, settings) as harness, harness.running():
        began = time.monotonic()
        job = await harness.ended(await harness.submit(CHAIN, {"name": "x"}))
        assert job["status"] == "completed"
        assert time.monotonic() - began < 6


async def test_without_a_direct_url_a_cancel_reaches_the_handler_within_two_seconds(
    pooled: PgBouncer, eventually: Eventually
) -> None:
    settings = settings_of(pooled, is_direct=False).model_copy(update={"lease": Settings().lease})
    text = "workflow_id: long\nnodes:\n  nap: {handler: nap, params: {}}\n"
    async with open_harness(pooled.url, settings) as harness:
        stopped = asyncio.Event()

        async def nap() -> dict[str, Any]:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                stopped.set()
                raise
            return {}

        harness.registry.register(nap)
        async with harness.orchestrator(), harness.worker():
            job_id = await harness.submit(text)

            async def is_running() -> bool:
                return bool(await harness.rows("select 1 from cograil.tasks where state = 'running'"))

            await eventually(is_running)
            await harness.cancel(job_id)
            async with asyncio.timeout(2.5):
                await stopped.wait()
            assert (await harness.ended(job_id))["status"] == "cancelled"


async def test_migrations_go_past_the_pooler_when_they_can(server: Server) -> None:
    with open_pgbouncer(server.database()) as bouncer:
        settings = settings_of(bouncer)
        await prepare_database(bouncer.url, settings)
        for user, steps in ((USER, 0), ("postgres", len(known_migrations()))):
            sent = server.statements(bouncer.direct_url, user)
            assert len([line for line in sent if "insert into cograil.schema_migrations" in line]) == steps
        async with open_client(settings) as db:  # it has the schema
            assert db.is_pooled


def test_passwords_of_a_direct_url_are_not_shown() -> None:
    from cograil.settings import describe

    url = "postgresql://u:secret@h/d"
    shown = {
        setting.name: setting.value
        for setting in describe(Settings(database={"url": url, "direct_url": url}))
    }
    assert "secret" not in shown["database.direct_url"]
    assert "secret" not in repr(Settings(database={"url": url, "direct_url": url}))


def test_a_direct_url_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="COGRAIL_DATABASE__DIRECT_URL is set but"):
        Settings(database={"direct_url": make_conninfo(host="h")})
