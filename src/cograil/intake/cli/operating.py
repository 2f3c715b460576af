"""Commands that look after an instance: db, doctor, config, schema."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import psycopg
from rich.text import Text

from cograil.definitions import schema as workflow_schema
from cograil.errors import DatabaseUnavailable
from cograil.intake.cli.condition import show_health
from cograil.intake.cli.options import instance_options, json_option, settings_for
from cograil.intake.cli.output import out, plain, say, show_value, sign, table, warn, write_json
from cograil.intake.cli.words import printable
from cograil.processes import open_client, run_async
from cograil.runners.choosing import choose_runtime
from cograil.settings import Settings, describe, load_settings, unknown_variables, variable_of
from cograil.store import migrate
from cograil.store.database import connect
from cograil.store.doctor import Finding, examine
from cograil.store.health import Health, look

COULD_NOT_CHECK = 2
LEVEL_STYLES = {"green": "green", "yellow": "yellow", "red": "bold red"}
LEVEL_SIGNS = {"green": "completed", "yellow": "ready", "red": "failed"}


@asynccontextmanager
async def _connection(settings: Settings) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """A plain connection to the instance's database, whatever its schema."""
    async with open_client(settings, application="cograil cli", is_schema_checked=False) as db:
        connection = await connect(db.direct or db.conninfo, prepare=False)
        async with connection:
            yield connection


@click.group()
def db() -> None:
    """Migrate the schema, or see what would change.

    \b
    Examples:
      cograil db status
      cograil db migrate --plan
      COGRAIL_DATABASE_URL=postgresql://... cograil db migrate
    """


@db.command("migrate")
@click.option("--plan", "is_plan", is_flag=True, help="Only say what would be done.")
@instance_options
def db_migrate(is_plan: bool, data_dir: Path | None, as_json: bool) -> None:
    """Bring the schema up to this program. `cograil up` does so by itself.

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
    async with _connection(settings) as connection:
        if is_plan:
            return await migrate.plan(connection)
        await migrate.check_server(connection, settings.database.allow_unsafe)
        return await migrate.migrate(connection)


@db.command("status")
@instance_options
def db_status(data_dir: Path | None, as_json: bool) -> int:
    """Compare the schema with this program. Exits 1 when they do not fit.

    \b
    Examples:
      cograil db status
      cograil db status --json
    """
    found = run_async(_status(settings_for(data_dir)))
    if as_json:
        pending = [{"version": step.version, "name": step.name} for step in found.pending]
        problems = list(found.problems)
        write_json({"current": found.current, "known": found.known, "pending": pending, "problems": problems})
    else:
        say(f"the database has schema {found.current}, this program knows {found.known}")
        for problem in found.problems:
            warn(problem)
        if found.pending:
            say("run `cograil db migrate`")
        if found.current > found.known and not found.problems:
            say("it was migrated by a newer cograil; this one can work with it")
    return 1 if found.pending or found.problems else 0


async def _status(settings: Settings) -> migrate.SchemaStatus:
    async with _connection(settings) as connection:
        return await migrate.status(connection)


@click.command()
@instance_options
def doctor(data_dir: Path | None, as_json: bool) -> int:
    """Check that everything is as it must be; change nothing.

    Looks at the server's settings, the schema, thirteen invariants of the data, whether things move, how
    large the tables are and how much in them is dead, who holds an old snapshot, which keeps it, and what
    runs containers on this machine.
    Exits 0 when nothing is red, 1 when something is, 2 when it could not look, 3 when nothing runs there.

    \b
    Examples:
      cograil doctor
      cograil doctor --json
    """
    try:
        findings, health = run_async(_examine(settings_for(data_dir)))
    except (psycopg.Error, DatabaseUnavailable) as error:
        say(f"could not check: {error}")
        if as_json:
            write_json({"status": "unknown", "findings": [], **asdict(Health())})
        return COULD_NOT_CHECK
    worst = max((finding.level for finding in findings), key=list(LEVEL_STYLES).index)
    if as_json:
        write_json({"status": worst, "findings": [asdict(finding) for finding in findings], **asdict(health)})
    else:
        for finding in findings:
            _show(finding)
        show_health(health)
    return 1 if worst == "red" else 0


async def _examine(settings: Settings) -> tuple[list[Finding], Health]:
    async with _connection(settings) as connection:
        findings = await examine(connection)
        if findings[-1].name == "schema":  # which is wrong: there are no tables to look at
            return findings, Health()
        health = await look(connection)
        return [*findings, await _containers(settings), *health.findings()], health


async def _containers(settings: Settings) -> Finding:
    """What runs containers on this machine; that nothing does may be meant."""
    chosen = await choose_runtime(settings)
    if chosen.runtime is None:
        return Finding("green", "C1", "containers", chosen.why)
    async with chosen.runtime as runtime:
        lacks = runtime.shortcomings
    return Finding("green", "C1", "containers", chosen.why, lacks, len(lacks))


def _show(finding: Finding) -> None:
    style = LEVEL_STYLES[finding.level]
    line = Text.assemble(
        (f"{sign(LEVEL_SIGNS[finding.level])} {finding.level:7}", style),
        f"{finding.code:4}{finding.name.replace('_', ' ')}: {printable(finding.message)}",
    )
    out().print(line, soft_wrap=True)
    for offender in finding.ids:
        out().print(Text(f"             {printable(offender)}", style=style), soft_wrap=True)
    if finding.count > len(finding.ids):
        out().print(Text(f"             and {finding.count - len(finding.ids)} more", style=style))


@click.command()
@json_option
def config(as_json: bool) -> None:
    """Show every setting, its value and where that comes from. Passwords are masked.

    \b
    Examples:
      cograil config
      COGRAIL_LEASE__SECONDS=30 cograil config --json
    """
    described = describe(load_settings())
    for message in unknown_variables(os.environ):
        warn(message)
    if as_json:
        listed = [one._asdict() | {"variable": variable_of(one.name)} for one in described]
        write_json({"settings": listed})
        return
    rows = table("setting", "value", "from")
    for one in described:
        shown = "" if one.value is None else str(one.value)
        rows.add_row(
            one.name, plain(shown), plain(one.origin, style="dim" if one.origin == "default" else "")
        )
    out().print(rows)


@click.command()
@json_option
def schema(as_json: bool) -> None:
    """Print the JSON Schema of workflow files, for editors.

    \b
    Examples:
      cograil schema > workflow.schema.json
    """
    write_json(workflow_schema()) if as_json else show_value(workflow_schema())
