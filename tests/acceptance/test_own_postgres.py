"""A PostgreSQL of one's own, with a login that may neither create roles nor databases."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import httpx2
import psycopg
from psycopg.conninfo import make_conninfo
from tests.acceptance.own_server import LOGIN, Server, create_login, rights_in, run_as_admin

from cograil.store.database_roles import ROLES

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "postgresql.md"


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
    for app, words in {"companies": ("list",), "captures": ("check",)}.items():  # apps that are off
        refused = shell.run(app, *words)
        assert refused.code == 2, refused
        assert f"no tables of the app '{app}'" in refused.err


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
    block = re.search(r"## Set up\n.*?```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
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
