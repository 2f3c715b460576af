"""`cograil db`: schema, roles and server of an instance's database."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import click
import psycopg
from psycopg.conninfo import conninfo_to_dict

from cograil.cli.command_decorators import database_command
from cograil.cli.display.output import render, say, warn
from cograil.cli.options import instance_options
from cograil.errors import DatabaseUnavailable, SchemaMismatch
from cograil.processes import open_reader
from cograil.processes.app_plugins import app_schemas, migrate_apps
from cograil.processes.instance_discovery import find_conninfo
from cograil.settings import Settings
from cograil.store import migrate
from cograil.store.database import connect
from cograil.store.database_roles import RoleState, admin_sql, create_roles, grant_rights, read_roles
from cograil.store.database_setup import set_up_database
from cograil.store.epochs import begin_epoch


@asynccontextmanager
async def connection_to(settings: Settings) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Connect to the database without checking its schema; the embedded one is started if it does not run."""
    async with open_reader(settings, application="cograil cli", is_schema_checked=False) as db:
        connection = await connect(db.direct or db.conninfo, prepare=False)
        async with connection:
            yield connection


@click.group()
def db() -> None:
    """Migrate, back up and inspect the database.

    \b
    Examples:
      cograil db status
      cograil db migrate --plan
      COGRAIL_DATABASE_URL=postgresql://... cograil db migrate
      cograil db roles --sql
      cograil db dump backup.dump
    """


@db.command("migrate")
@click.option("--plan", "is_plan", is_flag=True, help="Only show what would be done.")
@instance_options
@database_command
async def db_migrate(settings: Settings, is_plan: bool, as_json: bool) -> None:
    """Create or update roles, schema and grants. `cograil up` does this automatically.

    Exits 2 and changes nothing when the server lacks cograil's roles and this login may not create them; the
    message shows what an administrator must run once. See `cograil db roles`.

    \b
    Examples:
      cograil db migrate --plan
      COGRAIL_DATABASE_URL=postgresql://... cograil db migrate
    """
    async with connection_to(settings) as connection:
        if is_plan:
            migrations = await migrate.plan(connection)
            apps: Mapping[str, Sequence[migrate.Migration]] = await _plan_apps(connection, settings)
        else:
            migrations = await set_up_database(connection, allow_unsafe=settings.database.allow_unsafe)
            apps = await migrate_apps(connection, settings)
    app_steps = [(app, migration) for app, steps in apps.items() for migration in steps]
    listed = [{"version": step.version, "name": step.name} for step in migrations]
    listed += [{"version": step.version, "name": step.name, "app": app} for app, step in app_steps]
    verb = "would apply" if is_plan else "applied"
    lines = [f"{verb} {migration}" for migration in migrations]
    lines += [f"{verb} {migration} of the app {app}" for app, migration in app_steps]
    message = "\n".join(lines or ["nothing to do: the schema is up to date"])
    render({"pending" if is_plan else "applied": listed}, message, as_json)


async def _plan_apps(
    connection: psycopg.AsyncConnection[Any], settings: Settings
) -> dict[str, Sequence[migrate.Migration]]:
    """What would be applied for the enabled apps. Raises SchemaMismatch where `db migrate` would."""
    schemas = await app_schemas(connection, settings)
    if problems := [problem for schema in schemas.values() for problem in schema.problems]:
        raise SchemaMismatch("; ".join(problems))
    return {app: schema.pending for app, schema in schemas.items()}


@db.command("roles")
@click.option("--sql", "is_sql", is_flag=True, help="Print the SQL for an administrator; change nothing.")
@instance_options
@database_command
async def db_roles(settings: Settings, is_sql: bool, as_json: bool) -> None:
    """Create cograil's roles and grant their privileges in this database. It is safe to repeat.

    Creating roles requires CREATEROLE or a superuser. With --sql the command prints what an administrator runs
    once per PostgreSQL server; `cograil db migrate` or `cograil db roles` does the rest as the database owner.

    \b
    Examples:
      cograil db roles
      cograil db roles --sql
      cograil db roles --sql | psql -d cograil -U postgres
    """
    if is_sql:
        text = await _roles_sql(settings)
        render({"sql": text}, lambda: click.echo(text, nl=False), as_json)
        return
    async with connection_to(settings) as connection:
        statements = [*await create_roles(connection), *await grant_rights(connection)]
    message = f"ran {len(statements)} statements; --json lists them. The roles and their grants are complete"
    render(
        {"statements": statements}, message if statements else "nothing to do: the roles are set up", as_json
    )


async def _roles_sql(settings: Settings) -> str:
    """Return the SQL for an administrator, with the missing grants of this database if it is reachable."""
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


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """Server, schemas and roles of a database."""

    schema: migrate.SchemaStatus
    apps: dict[str, migrate.SchemaStatus]
    roles: RoleState
    server: str
    database: str
    is_embedded: bool

    @property
    def is_up_to_date(self) -> bool:
        """Whether this program can work with all of it as it is."""
        schemas = (self.schema, *self.apps.values())
        return self.roles.is_complete and not any(schema.pending or schema.problems for schema in schemas)


@db.command("status")
@instance_options
@database_command
async def db_status(settings: Settings, as_json: bool) -> int:
    """Show the server, and check the schema and roles. Exits 1 when they do not match this version.

    \b
    Examples:
      cograil db status
      cograil db status --json
    """
    async with connection_to(settings) as connection:
        info = connection.info
        status = DatabaseStatus(
            schema=await migrate.status(connection),
            apps=await app_schemas(connection, settings),
            roles=await read_roles(connection),
            server=info.parameter_status("server_version") or "",
            database=info.dbname,
            is_embedded=not settings.database.url,
        )
    render(_status_fields(status), lambda: _show_status(status), as_json)
    return 0 if status.is_up_to_date else 1


def _status_fields(status: DatabaseStatus) -> dict[str, Any]:
    return {
        **_schema_fields(status.schema),
        "apps": {app: _schema_fields(schema) for app, schema in status.apps.items()},
        "server_version": status.server,
        "database": status.database,
        "is_embedded": status.is_embedded,
        "roles_complete": status.roles.is_complete,
    }


def _schema_fields(schema: migrate.SchemaStatus) -> dict[str, Any]:
    return {
        "current": schema.current,
        "known": schema.known,
        "pending": [{"version": step.version, "name": step.name} for step in schema.pending],
        "problems": list(schema.problems),
    }


def _show_status(status: DatabaseStatus) -> None:
    schema = status.schema
    kind = "embedded" if status.is_embedded else "external"
    say(f'PostgreSQL {status.server} ({kind}), database "{status.database}"')
    say(f"the database has schema {schema.current}, this version supports {schema.known}")
    for app, app_schema in status.apps.items():
        say(f"the app {app} has schema {app_schema.current}, this version supports {app_schema.known}")
    schemas = (schema, *status.apps.values())
    for problem in itertools.chain.from_iterable(entry.problems for entry in schemas):
        warn(problem)
    if any(entry.pending for entry in schemas):
        say("run `cograil db migrate`")
    if schema.current > schema.known and not schema.problems:
        say("a newer version of cograil migrated the database; this version is compatible")
    if not status.roles.is_complete:
        warn(f"{status.roles}; run `cograil db roles`")


@db.command("new-epoch")
@instance_options
@database_command
async def db_new_epoch(settings: Settings, as_json: bool) -> None:
    """Begin a new epoch after a restore, so that no task id is reused that a worker may still hold.

    Run it after you restore a backup by hand, before any process uses the database. `cograil db restore` does
    this automatically, and so do orchestrators when a standby is promoted.

    \b
    Examples:
      cograil db new-epoch
      COGRAIL_DATABASE_URL=postgresql://... cograil db new-epoch
    """
    async with connection_to(settings) as connection:
        epoch = await begin_epoch(connection)
    message = f"epoch {epoch} has begun; reports of workers for tasks from before the restore are ignored"
    render({"epoch": epoch}, message, as_json)
