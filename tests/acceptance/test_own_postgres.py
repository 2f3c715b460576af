"""A PostgreSQL of one's own, with a login that may neither create roles nor databases."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from shell import Shell, shell_in

from cograil.embedded.postgres_binaries import Binaries, binaries, installed
from cograil.embedded.postgres_server import EmbeddedPostgres
from cograil.store.database_roles import ROLES

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "postgresql.md"
LOGIN = "cograil"
OBJECTS = """
select c.relname::text, c.relkind::text, pg_get_userbyid(c.relowner)::text, c.relacl::text
from pg_class c
where c.relnamespace::regnamespace::text ~ '^(cograil|vault_secure)' and c.relkind in ('r', 'p', 'S', 'v')
  and c.relname !~ '_[0-9]{8}$'
union all
select a.attrelid::regclass::text || '.' || a.attname, 'column', '', a.attacl::text from pg_attribute a
where a.attacl is not null and a.attrelid::regclass::text ~ '^(cograil|vault_secure)'
union all
select p.proname::text, 'function', pg_get_userbyid(p.proowner)::text, p.proacl::text from pg_proc p
where p.pronamespace::regnamespace::text ~ '^(cograil|vault_secure)'
union all
select p.polrelid::regclass::text, 'policy ' || p.polname, p.polroles::regrole[]::text,
       p.polcmd::text || pg_get_expr(p.polqual, p.polrelid) from pg_policy p
order by 1, 2
"""


@dataclass(frozen=True)
class Server:
    """A server as an administrator has it."""

    admin: str
    programs: Binaries
    directory: Path

    def run(self, *statements: str, database: str = "postgres") -> None:
        with psycopg.connect(make_conninfo(self.admin, dbname=database), autocommit=True) as conn:
            for statement in statements:
                conn.execute(statement.encode())

    def rows(self, query: str, database: str) -> list[tuple[str, ...]]:
        with psycopg.connect(make_conninfo(self.admin, dbname=database)) as conn:
            return conn.execute(query.encode()).fetchall()

    def url(self, database: str, user: str = LOGIN) -> str:
        return make_conninfo(self.admin, dbname=database, user=user)

    def shell(self, database: str, **more: str) -> Shell:
        return shell_in(self.directory, **{"COGRAIL_DATABASE_URL": self.url(database)} | more)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A new server, Debian's PostgreSQL 15 where it is installed; each test has the roles for itself."""
    version = min(installed())
    with EmbeddedPostgres(tmp_path / "server", version=version) as embedded:
        admin = make_conninfo(embedded.conninfo, dbname="postgres")
        directory = tmp_path / "work"
        directory.mkdir()
        server = Server(admin, binaries(version), directory)
        server.run("drop database cograil")
        yield server


def create_login(server: Server, *databases: str) -> None:
    server.run(f"create role {LOGIN} login", *(f"create database {name} owner {LOGIN}" for name in databases))


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_as_admin(server: Server, database: str, sql: str) -> None:
    psql = [
        server.programs.path("psql"),
        "-X",
        "-v",
        "ON_ERROR_STOP=1",
        "-d",
        make_conninfo(server.admin, dbname=database),
    ]
    subprocess.run(psql, input=sql, text=True, check=True, capture_output=True)


def test_migrate_without_roles_changes_nothing_and_prints_what_to_run(server: Server) -> None:
    create_login(server, "jobs")
    shell = server.shell("jobs")
    refused = shell.run("db", "migrate")
    assert refused.code == 2
    for role in ROLES:
        assert f"create role {role} nologin;" in refused.err
        assert f'grant {role} to "{LOGIN}";' in refused.err
    assert "cograil db roles --sql | psql -d jobs" in refused.err
    assert server.rows("select nspname from pg_namespace where nspname = 'cograil'", "jobs") == []
    for command in ("roles", "status"):
        assert shell.run("db", command).code in (1, 2)

    sql = shell.run("db", "roles", "--sql")
    assert sql.code == 0
    run_as_admin(server, "jobs", sql.out)
    run_as_admin(server, "jobs", sql.out)  # it may be run again
    assert shell.run("db", "migrate").code == 0
    assert shell.run("db", "status").code == 0
    assert shell.run("doctor").code == 0
    assert shell.run("db", "roles").err.strip() == "nothing to do: the roles are set up"


def migrate_without_roles(server: Server, database: str) -> None:
    """As versions did that went on without the roles."""
    code = (
        "import asyncio, sys\n"
        "from cograil.store.database import connect\n"
        "from cograil.store.migrate import migrate\n"
        "async def main():\n"
        "    async with await connect(sys.argv[1]) as conn:\n"
        "        await migrate(conn)\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", code, server.url(database)], check=True)


def rights_in(server: Server, database: str) -> list[tuple[str, ...]]:
    """Who owns what and who may do what; the order of grants does not count."""
    rows = server.rows(OBJECTS, database)
    return [(*names, ",".join(sorted((grants or "").strip("{}").split(",")))) for *names, grants in rows]


def test_grants_that_were_missed_are_made_later(server: Server) -> None:
    """Migrated without roles; then another database of the server makes them; then ours is repaired."""
    create_login(server, "ours", "reference")
    migrate_without_roles(server, "ours")
    shell = server.shell("ours")
    missing = shell.run_process("server", "--port", "0")
    assert missing.code == 2
    assert "cograil db roles" in missing.err
    assert shell.run("doctor").code == 1
    assert shell.run("jobs").code == 0

    admin = server.shell("reference", COGRAIL_DATABASE_URL=make_conninfo(server.admin, dbname="reference"))
    assert admin.run("db", "migrate").code == 0
    half = shell.run_process("server", "--port", "0")
    assert half.code == 2
    assert "cograil db roles" in half.err
    refused = shell.run("db", "roles")
    assert refused.code == 2
    assert f'grant cograil_server to "{LOGIN}";' in refused.err

    server.run(*(f"grant {role} to {LOGIN}" for role in ROLES))
    without_grants = shell.run_process("server", "--port", "0")
    assert without_grants.code == 2
    assert "permission denied" in without_grants.err
    assert "cograil db roles" in without_grants.err
    doctor = shell.run("doctor")
    assert doctor.code == 1
    assert "S4" in doctor.out
    assert shell.run("db", "migrate").code == 0
    assert shell.run("doctor").code == 0
    assert rights_in(server, "ours") == rights_in(server, "reference")


def test_another_encoding_is_refused_before_the_first_statement(server: Server) -> None:
    create_login(server)
    for encoding in ("SQL_ASCII", "LATIN1"):
        name = encoding.lower()
        server.run(
            f"create database {name} owner {LOGIN} encoding '{encoding}' template template0"
            " lc_collate 'C' lc_ctype 'C'"
        )
        shell = server.shell(name)
        for words in (("db", "migrate"), ("db", "status"), ("up", "--port", "0"), ("jobs",), ("worker",)):
            refused = shell.run_process(*words)
            assert refused.code == 2, words
            assert f"encoding {encoding}" in refused.err
            assert "createdb -E UTF8 -T template0" in refused.err
        doctor = shell.run("doctor")
        assert doctor.code == 1
        assert "S5" in doctor.out
        assert server.rows("select 1 from pg_namespace where nspname = 'cograil'", name) == []


def test_the_steps_of_the_page_work_literally(server: Server) -> None:
    block = re.search(r"## The first steps\n.*?```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block
    page = block[1].replace("--pwprompt", "").replace("--app shop", "")
    page = re.sub(r"COGRAIL_DATABASE_URL=\S+", "COGRAIL_DATABASE_URL='" + server.url("cograil") + "'", page)
    port = free_port()
    place = psycopg.conninfo.conninfo_to_dict(server.admin)
    shell = server.shell(
        "cograil",
        PGHOST=str(place["host"]),
        PGPORT=str(place["port"]),
        PGUSER=str(place["user"]),
        PATH=f"{server.programs.directory}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        COGRAIL_PORT=str(port),
    )
    environment = {name: value for name, value in shell.environment.items() if name != "COGRAIL_DATABASE_URL"}
    script = subprocess.Popen(
        ["bash", "-e", "-o", "pipefail", "-c", f"{page}\nwait"],
        cwd=server.directory,
        env=environment,
        start_new_session=True,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/readyz", script)
        assert shell.run("publish", "greet.yaml").code == 0
        answer = httpx2.post(
            f"http://127.0.0.1:{port}/api/v1/jobs",
            json={"workflow_id": "greet"},
            headers={"Prefer": "wait=30"},
            timeout=40,
        )
        assert answer.json()["status"] == "completed"
    finally:
        if script.poll() is None:
            os.killpg(script.pid, signal.SIGTERM)
        script.communicate(timeout=30)


def wait_for(url: str, script: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            if httpx2.get(url).status_code == 200:
                return
        except httpx2.HTTPError:
            assert script.poll() is None, script.communicate()[1]
        time.sleep(0.1)
    raise AssertionError(f"{url} does not answer")
