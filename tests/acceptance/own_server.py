"""A PostgreSQL server as its administrator has it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.acceptance.shell import Shell, shell_in

from cograil.embedded.postgres_binaries import Binaries, binaries, installed
from cograil.embedded.postgres_server import EmbeddedPostgres

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

    def rows(self, query: str, database: str) -> list[tuple[Any, ...]]:
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


def run_as_admin(server: Server, database: str, sql: str) -> None:
    psql = [
        str(server.programs.path("psql")),
        "-X",
        "-v",
        "ON_ERROR_STOP=1",
        "-d",
        make_conninfo(server.admin, dbname=database),
    ]
    subprocess.run(psql, input=sql, text=True, check=True, capture_output=True)


def rights_in(server: Server, database: str) -> list[tuple[str, ...]]:
    """Who owns what and who may do what; the order of grants does not count."""
    rows = server.rows(OBJECTS, database)
    return [(*names, ",".join(sorted((grants or "").strip("{}").split(",")))) for *names, grants in rows]
