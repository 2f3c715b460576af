"""Dump and restore: jobs in flight go on elsewhere, whatever server it is."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo
from tests.acceptance.own_server import Server, create_login, rights_in, run_as_admin
from tests.acceptance.shell import Shell, shell_in

from cograil.embedded.postgres_server import EmbeddedPostgres

FLOWS = {
    "asks.yaml": """
workflow_id: asks
nodes:
  first: {handler: echo, params: {text: one}, next: ask}
  ask: {type: approval, approval: {message: go on?}, next: last}
  last: {handler: echo, params: {text: two}}
""",
    "naps.yaml": "workflow_id: naps\nnodes:\n  nap: {handler: sleep, params: {seconds: 3}}\n",
}
QUICK = {
    "COGRAIL_LEASE__SECONDS": "2",
    "COGRAIL_LEASE__HEARTBEAT_SECONDS": "0.5",
    "COGRAIL_LEASE__SCAN_SECONDS": "0.5",
}


def test_jobs_in_flight_complete_after_a_restore_elsewhere(tmp_path: Path, server: Server) -> None:
    """From the embedded PostgreSQL 18, at work, to an older server whose login may not create roles."""
    source = shell_in(tmp_path, **QUICK)
    for name, text in FLOWS.items():
        (tmp_path / name).write_text(text)
    file = str(tmp_path / "backup.dump")
    with EmbeddedPostgres(tmp_path / "data") as embedded:
        live = source.with_environment(COGRAIL_DATABASE_URL=embedded.conninfo)
        assert live.run("db", "migrate").code == 0
        with psycopg.connect(embedded.conninfo, autocommit=True) as conn:
            conn.execute("create role shop")
            conn.execute("grant usage on schema cograil to shop")
            conn.execute("grant execute on function cograil.submit to shop")
        expected = rights_in(Server(embedded.conninfo, server.programs, tmp_path), "cograil")
        assert live.run("publish", "asks.yaml", "naps.yaml", "greet.yaml").code == 0
        asks, naps = live.submit("asks"), live.submit("naps")
        with running(live, "orchestrator", "worker"):
            wait_until(lambda: waits_for_approval(live, asks) and runs(embedded.conninfo))
            dumped = live.run("db", "dump", file)
        assert dumped.code == 0, dumped.err
    assert Path(file).stat().st_mode & 0o777 == 0o600
    assert "--overwrite" in source.run("db", "dump", file).err

    create_login(server, "jobs")
    target = server.shell("jobs", **QUICK)
    refused = target.run("db", "restore", file)
    assert refused.code == 2
    assert "create role cograil_engine" in refused.err
    run_as_admin(server, "jobs", target.run("db", "roles", "--sql").out)
    restored = target.run("db", "restore", file)
    assert restored.code == 0, restored.err
    assert "TO shop" in restored.err  # this grant has nobody to go to
    assert server.rows("select epoch from cograil.server", "jobs") == [(2,)]
    assert target.run("db", "status").code == 0
    assert target.run("doctor").code == 0
    assert rights_in(server, "jobs") == without_shop(expected)
    second = target.run("db", "restore", file)
    assert second.code == 4
    assert "--clean" in second.err
    assert target.run("approve", asks, "ask").code == 0
    with running(target, "orchestrator", "worker"):
        wait_until(lambda: {asks, naps} <= completed(target))
        assert "stop these processes first" in target.run("db", "restore", "--clean", file).err
    assert target.run("db", "restore", "--clean", file).code == 0
    assert completed(target) == set()


def test_a_stopped_embedded_database_is_backed_up(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    source, target = shell_in(tmp_path / "one"), shell_in(tmp_path / "two")
    assert source.run_process("run", "greet.yaml").code == 0
    file = str(tmp_path / "backup.dump")
    assert source.run_process("db", "dump", file).code == 0
    assert target.run_process("db", "dump", str(tmp_path / "none.dump")).code == 3
    assert target.run_process("db", "restore", file).code == 0
    counted = target.run_process("db", "psql", "--", "-Atc", "select count(*) from cograil.jobs")
    assert counted.out.strip() == "1"


@contextlib.contextmanager
def running(shell: Shell, *names: str) -> Iterator[None]:
    """These processes, killed at the end of the block: what they had in hand stays in their hands."""
    processes = [shell.start(name, stdout=subprocess.DEVNULL) for name in names]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "not within a minute"
        time.sleep(0.2)


def waits_for_approval(shell: Shell, job: str) -> bool:
    return any(node["status"] == "waiting" for node in shell.run("show", job, "--json").json["nodes"])


def runs(conninfo: str) -> bool:
    with psycopg.connect(conninfo) as conn:
        return bool(conn.execute("select 1 from cograil.tasks where worker_id is not null").fetchall())


def completed(shell: Shell) -> set[str]:
    jobs = shell.run("jobs", "--json").json["jobs"]
    return {job["job_id"] for job in jobs if job["status"] == "completed"}


def without_shop(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """What is expected where the role `shop` does not exist; PostgreSQL 18 knows one privilege more."""
    kept: list[tuple[str, ...]] = []
    for name, kind, owner, rights in rows:
        grants = [grant for grant in rights.split(",") if not grant.startswith("shop=")]
        kept.append((name, kind, owner, ",".join(grants).replace("arwdDxtm/", "arwdDxt/")))
    return kept


def test_a_restore_that_fails_changes_nothing(tmp_path: Path, server: Server) -> None:
    shell = server.shell("jobs", COGRAIL_DATABASE_URL=make_conninfo(server.admin, dbname="jobs"))
    server.run("create database jobs")
    assert shell.run("db", "migrate").code == 0
    file = tmp_path / "good.dump"
    assert shell.run("db", "dump", str(file)).code == 0
    broken = tmp_path / "broken.dump"
    broken.write_bytes(file.read_bytes()[: file.stat().st_size - 2000])
    before = rights_in(server, "jobs")
    failed = shell.run("db", "restore", "--clean", str(broken))
    assert failed.code in (2, 3)
    assert rights_in(server, "jobs") == before
    nonsense = tmp_path / "nonsense.dump"
    nonsense.write_text("select 1;")
    assert shell.run("db", "restore", "--clean", str(nonsense)).code == 2


def test_a_dump_of_pg_dump_is_restored(tmp_path: Path, server: Server) -> None:
    create_login(server, "jobs", "copy")
    shell, copy = server.shell("jobs"), server.shell("copy")
    run_as_admin(server, "jobs", shell.run("db", "roles", "--sql").out)
    assert shell.run("db", "migrate").code == 0
    file = str(tmp_path / "plain.dump")
    schemas = ["-n", "cograil", "-n", "cograil_*", "-n", "vault_secure"]
    dump = [str(server.programs.path("pg_dump")), "-Fc", *schemas, "-f", file, server.url("jobs")]
    subprocess.run(dump, check=True)
    restore = [
        str(server.programs.path("pg_restore")),
        "--exit-on-error",
        "--no-owner",
        "-d",
        server.url("copy"),
        file,
    ]
    subprocess.run(restore, check=True)
    assert copy.run("jobs").code == 0
    assert copy.run("db", "roles").code == 0
    assert copy.run("doctor").code == 0
    assert rights_in(server, "copy") == rights_in(server, "jobs")
