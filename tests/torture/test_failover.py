"""The primary is killed in the middle of the work, and its standby takes over.

Replication is synchronous, so what was acknowledged is on the standby. The processes have a URL with
both hosts and look for the one that takes writes; nobody tells them anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.conftest import Eventually
from tests.support.harness import Harness, open_harness, quick_settings
from tests.support.schemas import make_schemas

from cograil.embedded.postgres_binaries import binaries
from cograil.embedded.postgres_server import EmbeddedPostgres
from cograil.embedded.run_as import choose_guest, command_as
from cograil.errors import DatabaseUnavailable
from cograil.settings import Settings

pytestmark = pytest.mark.torture

VERSION = int(os.environ.get("COGRAIL_TEST_PG", "18"))
CLIENTS = 4
WAITING = """
select count(*)::int from pg_stat_activity
where wait_event = 'SyncRep' or query = 'commit' and (wait_event_type, wait_event) = ('Lock', 'object')
"""
QUICK = {
    "COGRAIL_LEASE__SECONDS": "2",
    "COGRAIL_LEASE__HEARTBEAT_SECONDS": "0.4",
    "COGRAIL_LEASE__SCAN_SECONDS": "0.5",
    "COGRAIL_LOG__LEVEL": "error",
}
CHAIN = """
workflow_id: chain
nodes:
  one: {handler: hello_world, params: {name: "{{ inputs.name }}"}, next: two}
  two: {handler: hello_world, params: {name: "{{ nodes.one.output.message }}"}, next: three}
  three: {handler: hello_world, params: {name: "{{ nodes.two.output.message }}"}}
"""


@dataclass
class Pair:
    """A primary and its standby."""

    primary: EmbeddedPostgres
    standby: EmbeddedPostgres
    receiver: psutil.Process = field(default_factory=psutil.Process)  # of the standby, once it is held up

    @property
    def url(self) -> str:
        hosts = [str(server._socket_dir()) for server in (self.primary, self.standby)]
        return make_conninfo(
            self.primary.conninfo,
            host=",".join(hosts),
            port="5432,5432",
            target_session_attrs="read-write",
        )

    def hold_up_replication(self) -> None:
        """Let nothing more reach the standby: what is committed on the primary alone is not safe."""
        assert self.standby.pid is not None
        for process in psutil.Process(self.standby.pid).children():
            if any("walreceiver" in word for word in process.cmdline()):
                process.send_signal(signal.SIGSTOP)
                self.receiver = process

    def waiting_commits(self) -> int:
        """For the standby, or behind one that notifies and waits for it: of those one commits at a time."""
        with psycopg.connect(self.primary.conninfo) as connection:
            return int((connection.execute(WAITING).fetchone() or (0,))[0])

    def kill_primary(self) -> None:
        """All of it at once, as a machine dies."""
        assert self.primary.pid is not None
        postmaster = psutil.Process(self.primary.pid)
        everybody = [postmaster, *postmaster.children(recursive=True)]
        for process in everybody:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGSTOP)
        for process in everybody:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def promote(self) -> None:
        self.receiver.send_signal(signal.SIGCONT)
        with psycopg.connect(self.standby.conninfo, autocommit=True) as connection:
            assert connection.execute("select pg_promote(true, 60)").fetchone() == (True,)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with EmbeddedPostgres(tmp_path / "1", version=VERSION) as primary:
        _copy(primary, tmp_path / "2")
        with EmbeddedPostgres(tmp_path / "2", version=VERSION) as standby:
            _replicate_synchronously(primary)
            asyncio.run(make_schemas(primary.conninfo))
            yield Pair(primary, standby)


def _copy(primary: EmbeddedPostgres, data_dir: Path) -> None:
    """A standby of this primary, not yet started."""
    data_dir.mkdir(mode=0o700)
    programs = binaries(VERSION)
    command = [str(programs.path("pg_basebackup")), "-D", str(data_dir / "pgdata"), "-R", "-X", "stream"]
    command += ["-c", "fast", "-d", make_conninfo(primary.conninfo, dbname="postgres")]
    guest = choose_guest(programs, data_dir, primary.cluster)
    subprocess.run(command_as(guest, data_dir, command), check=True, capture_output=True)


def _replicate_synchronously(primary: EmbeddedPostgres) -> None:
    with psycopg.connect(primary.conninfo, autocommit=True) as admin:
        admin.execute("alter system set synchronous_standby_names = '*'")
        admin.execute("select pg_reload_conf()")
        while admin.execute("select sync_state from pg_stat_replication").fetchone() != ("sync",):
            pass


@contextlib.contextmanager
def process(kind: str, url: str) -> Iterator[None]:
    environment = os.environ | QUICK | {"COGRAIL_DATABASE_URL": url}
    running = subprocess.Popen([sys.executable, "-m", "cograil", kind], env=environment)
    try:
        yield
        assert running.poll() is None, f"the {kind} ended"
    finally:
        running.terminate()
        try:
            running.wait(30)
        except subprocess.TimeoutExpired:  # a server that does not answer keeps it for ever
            running.kill()
            running.wait()


class Submitter:
    """A client that goes on whatever happens, and remembers what it was told."""

    def __init__(self, url: str, settings: Settings) -> None:
        self.url = url
        self.settings = settings
        self.acknowledged: list[str] = []
        self.errors = 0
        self.is_stopping = False

    async def run(self) -> None:
        async with open_harness(self.url, self.settings) as lab:
            while not self.is_stopping:
                try:
                    self.acknowledged.append(await lab.submit(CHAIN, {"name": "x"}))
                except (psycopg.Error, DatabaseUnavailable):
                    self.errors += 1
                    await asyncio.sleep(0.1)
                await asyncio.sleep(0.005)


@pytest.mark.parametrize("before", [40, 110, 200])
async def test_nothing_acknowledged_is_lost_when_the_standby_takes_over(
    pair: Pair, before: int, eventually: Eventually
) -> None:
    settings = quick_settings()
    clients = [Submitter(pair.url, settings) for _ in range(CLIENTS)]

    def count() -> int:
        return sum(len(client.acknowledged) for client in clients)

    with process("orchestrator", pair.url), process("worker", pair.url), process("worker", pair.url):
        running = [asyncio.create_task(client.run()) for client in clients]
        await eventually(lambda: count() >= before, timeout=60)
        pair.hold_up_replication()
        await eventually(lambda: pair.waiting_commits() >= CLIENTS or count() > before + 50)
        pair.kill_primary()
        await asyncio.to_thread(pair.promote)
        at_failover = count()
        await eventually(lambda: count() >= at_failover + 100, timeout=60)
        for client in clients:
            client.is_stopping = True
        await asyncio.gather(*running)
        assert sum(client.errors for client in clients) > 0  # the failover was in the middle of their work
        await _look(pair, {job for client in clients for job in client.acknowledged}, eventually)
        doctor = await asyncio.to_thread(_doctor, pair.url)
    assert doctor["status"] == "green", doctor


async def _look(pair: Pair, acknowledged: set[str], eventually: Eventually) -> None:
    async with open_harness(pair.standby.conninfo) as lab:

        async def is_all_done() -> bool:
            return await lab.rows("select count(*) from cograil.jobs where finished_at is null") == [(0,)]

        await eventually(is_all_done, timeout=60)
        await _check(lab, acknowledged)


async def _check(lab: Harness, acknowledged: set[str]) -> None:
    status = dict(await lab.rows("select id::text, status from cograil.jobs"))
    assert acknowledged - status.keys() == set()
    assert {status[job] for job in status} == {"completed"}
    assert await lab.findings() == []


def _doctor(url: str) -> dict[str, object]:
    environment = os.environ | {"COGRAIL_DATABASE_URL": url}
    command = [sys.executable, "-m", "cograil", "doctor", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    report: dict[str, object] = json.loads(done.stdout)
    return report
