"""`cograil db dump`, `db restore` and `db psql`."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import click

from cograil.cli.commands.database_commands import db
from cograil.cli.display.output import say, warn, write_json
from cograil.cli.options import instance_options, settings_for
from cograil.embedded.client_programs import (
    APPLICATION,
    find_newest_programs,
    find_programs,
    program_arguments,
)
from cograil.embedded.data_directory import has_cluster, is_held
from cograil.embedded.postgres_binaries import Binaries
from cograil.errors import Conflict, NoInstance, UsageError
from cograil.processes import run_async
from cograil.processes.database_host import Host
from cograil.processes.instance_discovery import find_conninfo
from cograil.settings import Settings
from cograil.store import backup, migrate
from cograil.store.database import connect
from cograil.store.database_roles import create_roles

OTHERS = """
select distinct application_name from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and application_name like 'cograil%'
order by 1
"""


class Target(NamedTuple):
    """A server and what is in its database."""

    server_version: int
    has_tls: bool
    schema: migrate.SchemaStatus
    has_schema: bool
    roles: list[str]


@db.command("dump")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
@instance_options
def db_dump(file: Path, overwrite: bool, data_dir: Path | None, as_json: bool) -> None:
    """Write all of cograil's data to a file, as of one moment, while everything goes on.

    The embedded PostgreSQL is started for a moment if it does not run. The file is in pg_dump's custom
    format and only its owner may read it: it has inputs, outputs and secrets in it.

    \b
    Examples:
      cograil db dump cograil.dump
      COGRAIL_DATABASE_URL=postgresql://... cograil db dump "backup-$(date +%F).dump"
    """
    if file.exists() and not overwrite:
        raise UsageError(f"{file} exists; choose another name, or say --overwrite")
    settings = settings_for(data_dir)
    with server_of(settings) as conninfo:
        target = run_async(_look(conninfo))
        if not target.schema.current:
            raise UsageError("there is nothing to dump: the database has no schema of cograil")
        programs = find_programs(target.server_version, needs_tls=target.has_tls)
        backup.dump_database(conninfo, programs, file)
    size, version = file.stat().st_size, target.schema.current
    if as_json:
        write_json({"file": str(file), "bytes": size, "schema": version, "server": target.server_version})
    else:
        say(f"wrote {file}: {size:,} bytes, schema {version}, of PostgreSQL {target.server_version}")


@db.command("restore")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--clean", "is_clean", is_flag=True, help="Drop what cograil has in the database first.")
@instance_options
def db_restore(file: Path, is_clean: bool, data_dir: Path | None, as_json: bool) -> None:
    """Replay a dump into a database, all of it or nothing, with its roles and grants.

    The database must have no schema of cograil, unless --clean says to drop it, and no process of cograil
    may run on it. Jobs go on where they were at the moment of the dump; attempts that ran then are lost and
    tried again.

    \b
    Examples:
      cograil db restore cograil.dump
      COGRAIL_DATABASE_URL=postgresql://... cograil db restore --clean cograil.dump
    """
    settings = settings_for(data_dir)
    with server_of(settings, is_made=True) as conninfo:
        target = run_async(_prepare(settings, conninfo, is_clean=is_clean))
        programs = find_newest_programs(target.server_version, needs_tls=target.has_tls)
        left_out = _restore(conninfo, programs, file, target, is_clean=is_clean)
        found = run_async(_look(conninfo)).schema
    if as_json:
        write_json({"file": str(file), "schema": found.current, "known": found.known, "left_out": left_out})
        return
    for grant in left_out:
        warn(f"left out, because the role is not on this server: {grant}")
    say(f"restored {file}: schema {found.current}, this program knows {found.known}")
    for problem in found.problems:
        warn(problem)
    if found.pending:
        say("run `cograil db migrate` (`cograil up` does it by itself)")


def _restore(conninfo: str, programs: Binaries, file: Path, target: Target, *, is_clean: bool) -> list[str]:
    backup.check_dump(programs, file)
    return backup.restore_database(conninfo, programs, file, known_roles=target.roles, is_clean=is_clean)


@db.command("psql", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@instance_options
def db_psql(arguments: tuple[str, ...], data_dir: Path | None, as_json: bool) -> int:
    """Open psql on the database of an instance; what follows `--` is handed to psql.

    The embedded PostgreSQL is started for as long as psql runs, if it does not run.

    \b
    Examples:
      cograil db psql
      cograil db psql -- -c 'select count(*) from cograil.jobs'
    """
    with server_of(settings_for(data_dir)) as conninfo:
        target = run_async(_look(conninfo))
        programs = find_programs(target.server_version, needs_tls=target.has_tls)
        place, environment = program_arguments(conninfo)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for psql
        try:
            return subprocess.call([programs.path("psql"), "-d", place, *arguments], env=environment)
        finally:
            signal.signal(signal.SIGINT, before)


@contextmanager
def server_of(settings: Settings, *, is_made: bool = False) -> Iterator[str]:
    """How to connect to the database; an embedded one that does not run is started for this block.

    Raises NoInstance when there is no database, unless one `is_made` then.
    """
    if settings.database.url:
        yield settings.database.direct_url or settings.database.url
    elif is_held(settings.data_dir):
        yield run_async(find_conninfo(settings))
    elif is_made or has_cluster(settings.data_dir):
        with Host(settings, say) as host:
            yield host.conninfo
    else:
        raise NoInstance(
            f"there is no database in {settings.data_dir}; name another place with --data-dir or "
            "COGRAIL_DATABASE_URL"
        )


async def _look(conninfo: str) -> Target:
    async with await connect(conninfo, prepare=False) as conn:
        schemas = await conn.execute("select from pg_namespace where nspname in ('cograil', 'vault_secure')")
        roles = await conn.execute("select rolname from pg_roles")
        return Target(
            server_version=conn.info.server_version // 10_000,
            has_tls=conn.pgconn.ssl_in_use,
            schema=await migrate.status(conn),
            has_schema=schemas.rowcount > 0,
            roles=[row[0] for row in await roles.fetchall()],
        )


async def _prepare(settings: Settings, conninfo: str, *, is_clean: bool) -> Target:
    """What a restore needs, with the roles made. Raises Conflict when the database is in use or not empty."""
    target = await _look(conninfo)
    if target.has_schema and not is_clean:
        raise Conflict(
            f"the database has schema {target.schema.current} of cograil already; restore into an empty one, "
            "or say --clean to drop everything that cograil has in it"
        )
    async with await connect(conninfo, prepare=False) as conn:
        await migrate.check_server(conn, settings.database.allow_unsafe)
        others = [name for (name,) in await (await conn.execute(OTHERS)).fetchall() if name != APPLICATION]
        if others:
            raise Conflict(f"these still run on the database, stop them first: {', '.join(others)}")
        await create_roles(conn)
    return await _look(conninfo)
