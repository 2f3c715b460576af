"""`cograil db`: the schema, the roles and the server of an instance."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import psycopg
from psycopg.conninfo import conninfo_to_dict

from cograil.cli.display.output import say, warn, write_json
from cograil.cli.options import instance_options, settings_for
from cograil.errors import DatabaseUnavailable
from cograil.processes import open_reader, run_async
from cograil.processes.app_plugins import migrate_apps
from cograil.processes.instance_discovery import find_conninfo
from cograil.settings import Settings
from cograil.store import migrate
from cograil.store.database import connect
from cograil.store.database_roles import RoleState, admin_sql, create_roles, grant_rights, read_roles
from cograil.store.database_setup import set_up_database
from cograil.store.epochs import begin_epoch


@asynccontextmanager
async def connection_to(settings: Settings) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """A plain connection to the database, whatever its schema; starts the embedded one where none runs."""
    async with open_reader(settings, application="cograil cli", is_schema_checked=False) as db:
        connection = await connect(db.direct or db.conninfo, prepare=False)
        async with connection:
            yield connection


@click.group()
def db() -> None:
    """Migrate the schema, set up its roles, back it up.

    \b
    Examples:
      cograil db status
      cograil db migrate --plan
      COGRAIL_DATABASE_URL=postgresql://... cograil db migrate
      cograil db roles --sql
      cograil db dump backup.dump
    """


@db.command("migrate")
@click.option("--plan", "is_plan", is_flag=True, help="Only say what would be done.")
@instance_options
def db_migrate(is_plan: bool, data_dir: Path | None, as_json: bool) -> None:
    """Bring the roles, the schema and the grants up to this program. `cograil up` does so by itself.

    Exits 2 and changes nothing when the server lacks cograil's roles and this login may not create them:
    it prints what an administrator must run once. See `cograil db roles`.

    \b
    Examples:
      cograil db migrate --plan
      COGRAIL_DATABASE_URL=postgresql://... cograil db migrate
    """
    steps = run_async(_migrate(settings_for(data_dir), is_plan))
    if as_json:
        listed = [{"version": step.version, "name": step.name} for step in steps]
        write_json({"pending" if is_plan else "applied": listed})
        return
    for step in steps:
        say(f"{'would apply' if is_plan else 'applied'} {step}")
    if not steps:
        say("nothing to do: the schema is up to date")


async def _migrate(settings: Settings, is_plan: bool) -> list[migrate.Migration]:
    async with connection_to(settings) as connection:
        if is_plan:
            return await migrate.plan(connection)
        applied = await set_up_database(connection, allow_unsafe=settings.database.allow_unsafe)
        for app, steps in (await migrate_apps(connection, settings)).items():
            for step in steps:
                say(f"applied {step} of the app {app}")
        return applied


@db.command("roles")
@click.option("--sql", "is_sql", is_flag=True, help="Print the SQL for an administrator; change nothing.")
@instance_options
def db_roles(is_sql: bool, data_dir: Path | None, as_json: bool) -> None:
    """Create cograil's roles and grant them their rights in this database. It may be run again.

    Creating roles takes CREATEROLE or a superuser. With --sql it prints what an administrator runs once per
    PostgreSQL server; `cograil db migrate` or `cograil db roles` does the rest as the owner of the database.

    \b
    Examples:
      cograil db roles
      cograil db roles --sql
      cograil db roles --sql | psql -d cograil -U postgres
    """
    settings = settings_for(data_dir)
    if is_sql:
        text = run_async(_roles_sql(settings))
        write_json({"sql": text}) if as_json else click.echo(text, nl=False)
        return
    done = run_async(_set_up_roles(settings))
    if as_json:
        write_json({"statements": done})
        return
    if done:
        say(f"ran {len(done)} statements; --json lists them. The roles and their grants are complete")
    else:
        say("nothing to do: the roles are set up")


async def _roles_sql(settings: Settings) -> str:
    """What an administrator runs; with the grants of this database, if it answers and some are missing."""
    conninfo = await find_conninfo(settings)
    try:
        async with connection_to(settings) as connection:
            state: RoleState | None = await read_roles(connection)
            user = state.user if state else ""
    except DatabaseUnavailable as error:
        user, state = str(conninfo_to_dict(conninfo).get("user") or ""), None
        if not user:
            raise
        warn(f"{error}; the SQL below is for the user of COGRAIL_DATABASE_URL")
    grants = [f"{statement};" for statement in state.grants] if state else []
    header = [f'-- The grants in the database "{state.database}".'] if state and grants else []
    return admin_sql(settings, user) + "".join(f"{line}\n" for line in (*header, *grants))


async def _set_up_roles(settings: Settings) -> list[str]:
    async with connection_to(settings) as connection:
        return [*await create_roles(connection), *await grant_rights(connection)]


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """What `db status` shows."""

    schema: migrate.SchemaStatus
    roles: RoleState
    server: str
    database: str
    is_embedded: bool


@db.command("status")
@instance_options
def db_status(data_dir: Path | None, as_json: bool) -> int:
    """Show the server, and compare the schema and the roles with this program. Exits 1 when they do not fit.

    \b
    Examples:
      cograil db status
      cograil db status --json
    """
    found = run_async(_status(settings_for(data_dir)))
    if as_json:
        write_json(_status_facts(found))
    else:
        _show_status(found)
    return 1 if found.schema.pending or found.schema.problems or not found.roles.is_complete else 0


async def _status(settings: Settings) -> DatabaseStatus:
    async with connection_to(settings) as connection:
        info = connection.info
        return DatabaseStatus(
            schema=await migrate.status(connection),
            roles=await read_roles(connection),
            server=info.parameter_status("server_version") or "",
            database=info.dbname,
            is_embedded=not settings.database.url,
        )


def _status_facts(found: DatabaseStatus) -> dict[str, Any]:
    schema = found.schema
    return {
        "current": schema.current,
        "known": schema.known,
        "pending": [{"version": step.version, "name": step.name} for step in schema.pending],
        "problems": list(schema.problems),
        "server_version": found.server,
        "database": found.database,
        "is_embedded": found.is_embedded,
        "roles_complete": found.roles.is_complete,
    }


def _show_status(found: DatabaseStatus) -> None:
    schema = found.schema
    kind = "embedded" if found.is_embedded else "your own server"
    say(f'PostgreSQL {found.server} ({kind}), database "{found.database}"')
    say(f"the database has schema {schema.current}, this program knows {schema.known}")
    for problem in schema.problems:
        warn(problem)
    if schema.pending:
        say("run `cograil db migrate`")
    if schema.current > schema.known and not schema.problems:
        say("it was migrated by a newer cograil; this one can work with it")
    if not found.roles.is_complete:
        warn(f"{found.roles}; run `cograil db roles`")


@db.command("new-epoch")
@instance_options
def db_new_epoch(data_dir: Path | None, as_json: bool) -> None:
    """Begin a new epoch after a restore: no number of a task is handed out that a worker may still hold.

    Run it after restoring a backup by hand, before anything else works on the database. `cograil db restore`
    does so by itself, and orchestrators do when they see that a standby was promoted.

    \b
    Examples:
      cograil db new-epoch
      COGRAIL_DATABASE_URL=postgresql://... cograil db new-epoch
    """
    epoch = run_async(_begin_epoch(settings_for(data_dir)))
    if as_json:
        write_json({"epoch": epoch})
    else:
        say(f"epoch {epoch} has begun; workers that lived through the restore report their old tasks in vain")


async def _begin_epoch(settings: Settings) -> int:
    async with connection_to(settings) as connection:
        return await begin_epoch(connection)
