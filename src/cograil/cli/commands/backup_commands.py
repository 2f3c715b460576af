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
from cograil.cli.display.output import render, say, warn
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

OTHER_SESSIONS = """
select distinct application_name from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and application_name like 'cograil%'
order by 1
"""


class DumpTarget(NamedTuple):
    """A server, its roles, and the schema of its database."""

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
    """Write a consistent backup of cograil's data to a file while the instance runs.

    The embedded PostgreSQL is started for this command if it does not run. The file has pg_dump's custom
    format and is readable only by its owner: it contains inputs, outputs and secrets.

    \b
    Examples:
      cograil db dump cograil.dump
      COGRAIL_DATABASE_URL=postgresql://... cograil db dump "backup-$(date +%F).dump"
    """
    if file.exists() and not overwrite:
        raise UsageError(f"{file} exists; choose another name, or use --overwrite")
    settings = settings_for(data_dir)
    with open_server(settings) as conninfo:
        target = run_async(_inspect(conninfo))
        if not target.schema.current:
            raise UsageError("there is nothing to dump: the database has no cograil schema")
        programs = find_programs(target.server_version, needs_tls=target.has_tls)
        backup.dump_database(conninfo, programs, file)
    size, version = file.stat().st_size, target.schema.current
    value = {"file": str(file), "bytes": size, "schema": version, "server": target.server_version}
    message = f"wrote {file}: {size:,} bytes, schema {version}, PostgreSQL {target.server_version}"
    render(value, message, as_json)


@db.command("restore")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--clean", "is_clean", is_flag=True, help="Drop cograil's data in the database first.")
@instance_options
def db_restore(file: Path, is_clean: bool, data_dir: Path | None, as_json: bool) -> None:
    """Restore a dump into a database in one transaction, with its roles and grants.

    The database must not have a cograil schema, unless --clean drops it, and no cograil process may run on it.
    Jobs continue from their state at the time of the dump; attempts that were running are lost and retried.

    \b
    Examples:
      cograil db restore cograil.dump
      COGRAIL_DATABASE_URL=postgresql://... cograil db restore --clean cograil.dump
    """
    settings = settings_for(data_dir)
    with open_server(settings, is_created=True) as conninfo:
        target = run_async(_prepare(settings, conninfo, is_clean=is_clean))
        programs = find_newest_programs(target.server_version, needs_tls=target.has_tls)
        omitted_grants = _restore(conninfo, programs, file, target, is_clean=is_clean)
        schema = run_async(_inspect(conninfo)).schema
    value = {
        "file": str(file),
        "schema": schema.current,
        "known": schema.known,
        "left_out": omitted_grants,
    }
    render(value, lambda: _show_restored(file, schema, omitted_grants), as_json)


def _show_restored(file: Path, schema: migrate.SchemaStatus, omitted_grants: list[str]) -> None:
    for grant in omitted_grants:
        warn(f"omitted, because the role does not exist on this server: {grant}")
    say(f"restored {file}: schema {schema.current}, this version supports {schema.known}")
    for problem in schema.problems:
        warn(problem)
    if schema.pending:
        say("run `cograil db migrate` (`cograil up` does this automatically)")


def _restore(
    conninfo: str, programs: Binaries, file: Path, target: DumpTarget, *, is_clean: bool
) -> list[str]:
    backup.check_dump(programs, file)
    return backup.restore_database(conninfo, programs, file, known_roles=target.roles, is_clean=is_clean)


@db.command("psql", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@instance_options
def db_psql(arguments: tuple[str, ...], data_dir: Path | None, as_json: bool) -> int:
    """Open psql on the database of an instance; arguments after `--` are passed to psql.

    The embedded PostgreSQL is started while psql runs, if it does not run already.

    \b
    Examples:
      cograil db psql
      cograil db psql -- -c 'select count(*) from cograil.jobs'
    """
    with open_server(settings_for(data_dir)) as conninfo:
        target = run_async(_inspect(conninfo))
        programs = find_programs(target.server_version, needs_tls=target.has_tls)
        dsn, environment = program_arguments(conninfo)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for psql
        try:
            return subprocess.call([programs.path("psql"), "-d", dsn, *arguments], env=environment)
        finally:
            signal.signal(signal.SIGINT, before)


@contextmanager
def open_server(settings: Settings, *, is_created: bool = False) -> Iterator[str]:
    """Yield the connection string of the database; an embedded one is started for this block if necessary.

    Raise NoInstance without a database, unless `is_created` allows to create one.
    """
    if settings.database.url:
        yield settings.database.direct_url or settings.database.url
    elif is_held(settings.data_dir):
        yield run_async(find_conninfo(settings))
    elif is_created or has_cluster(settings.data_dir):
        with Host(settings, say) as host:
            yield host.conninfo
    else:
        raise NoInstance(
            f"{settings.data_dir} has no database; name another directory with --data-dir, or set "
            "COGRAIL_DATABASE_URL"
        )


async def _inspect(conninfo: str) -> DumpTarget:
    async with await connect(conninfo, prepare=False) as conn:
        schemas = await conn.execute(f"select from pg_namespace where {backup.IS_OURS}".encode())
        roles = await conn.execute("select rolname from pg_roles")
        return DumpTarget(
            server_version=conn.info.server_version // 10_000,
            has_tls=conn.pgconn.ssl_in_use,
            schema=await migrate.status(conn),
            has_schema=schemas.rowcount > 0,
            roles=[name for (name,) in await roles.fetchall()],
        )


async def _prepare(settings: Settings, conninfo: str, *, is_clean: bool) -> DumpTarget:
    """Create the roles for a restore. Raises Conflict when the database is in use or not empty."""
    target = await _inspect(conninfo)
    if target.has_schema and not is_clean:
        raise Conflict(
            f"the database already has cograil schema {target.schema.current}; restore into an empty database, "
            "or use --clean to drop cograil's data first"
        )
    async with await connect(conninfo, prepare=False) as conn:
        await migrate.check_server(conn, settings.database.allow_unsafe)
        others = [
            name for (name,) in await (await conn.execute(OTHER_SESSIONS)).fetchall() if name != APPLICATION
        ]
        if others:
            raise Conflict(f"stop these processes first, they use the database: {', '.join(others)}")
        await create_roles(conn)
    return await _inspect(conninfo)
