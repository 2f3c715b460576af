"""Administrative commands: doctor, config, schema."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click
import psycopg
from rich.text import Text

from cograil.app_registry import enabled_apps
from cograil.cli.backends.target import Target
from cograil.cli.command_decorators import chosen_target
from cograil.cli.commands.database_commands import connection_to
from cograil.cli.display.database_health import show_health
from cograil.cli.display.formatting import printable
from cograil.cli.display.output import out, plain, render, say, show_value, sign, table, write_json
from cograil.cli.options import config_option, instance_options, json_option, read_settings
from cograil.cli.server_options import server_options
from cograil.definitions import schema as workflow_schema
from cograil.errors import DatabaseUnavailable, UnsupportedEncoding
from cograil.processes import run_async
from cograil.settings import SettingDescription, describe, variable_of
from cograil.store.doctor import ENCODING_CODE, Finding, examine
from cograil.store.table_bloat import TableHealth, look

COULD_NOT_CHECK = 2
LEVEL_STYLES = {"green": "green", "yellow": "yellow", "red": "bold red"}
LEVEL_SIGNS = {"green": "completed", "yellow": "ready", "red": "failed"}


@click.command()
@click.option("--all", "is_complete", is_flag=True, help="Show empty tables too.")
@instance_options
@server_options
def doctor(is_complete: bool, data_dir: Path | None, as_json: bool) -> int:
    """Check the health of an instance. Nothing is changed.

    The checks cover the server settings, the encoding, the schema, the roles and their grants, thirteen
    invariants of the data, the progress of jobs, the size and dead rows of tables, sessions that hold an old
    snapshot, and the container runtime of this machine. Through a server the checks are those of its /health.
    Exits 0 when no finding is red, 1 when one is, 2 when the check failed, 3 when no instance runs.

    \b
    Examples:
      cograil doctor
      cograil doctor --json
    """
    try:
        findings, health = run_async(_examine(chosen_target(data_dir)))
    except UnsupportedEncoding as error:
        findings, health = [Finding("red", ENCODING_CODE, "encoding", str(error))], TableHealth()
    except (psycopg.Error, DatabaseUnavailable) as error:
        say(f"could not check: {error}")
        if as_json:
            write_json({"status": "unknown", "findings": [], **asdict(TableHealth())})
        return COULD_NOT_CHECK
    worst = max((finding.level for finding in findings), key=list(LEVEL_STYLES).index)
    value = {"status": worst, "findings": [asdict(finding) for finding in findings], **asdict(health)}
    render(value, lambda: _show_report(findings, health, is_complete=is_complete), as_json)
    return 1 if worst == "red" else 0


def _show_report(findings: list[Finding], health: TableHealth, *, is_complete: bool) -> None:
    for finding in findings:
        _show_finding(finding)
    show_health(health, is_complete=is_complete)


async def _examine(target: Target) -> tuple[list[Finding], TableHealth]:
    if target.server is not None:
        from cograil.cli.backends.server_backend import examine_server  # noqa: PLC0415  loads the HTTP client

        return await examine_server(target.server), TableHealth()
    settings = target.require_database("")
    async with connection_to(settings) as connection:
        findings = await examine(connection)
        if findings[-1].name == "schema":  # the schema is wrong, so there are no tables to check
            return findings, TableHealth()
        health = await look(connection)
        checks = [app.doctor for app in enabled_apps(settings) if app.doctor is not None]
        app_findings = [finding for check in checks for finding in await check(settings)]
        return [*findings, *app_findings, *health.findings()], health


def _show_finding(finding: Finding) -> None:
    style = LEVEL_STYLES[finding.level]
    line = Text.assemble(
        (f"{sign(LEVEL_SIGNS[finding.level])} {finding.level:7}", style),
        f"{finding.code:4}{finding.name.replace('_', ' ')}: {printable(finding.message)}",
    )
    out().print(line, soft_wrap=True)
    for row_id in finding.ids:
        out().print(Text(f"             {printable(row_id)}", style=style), soft_wrap=True)
    if finding.count > len(finding.ids):
        out().print(Text(f"             and {finding.count - len(finding.ids)} more", style=style))


@click.command()
@config_option
@json_option
def config(as_json: bool) -> None:
    """Show every setting with its value and origin: flag, variable, settings file or default.

    Passwords are masked. A COGRAIL_ variable or a key of the file that is not a setting is an error.

    \b
    Examples:
      cograil config
      cograil config --config ./staging.toml
      COGRAIL_LEASE__SECONDS=30 cograil config --json
    """
    described = describe(read_settings())
    listed = [setting._asdict() | {"variable": variable_of(setting.name)} for setting in described]
    render({"settings": listed}, lambda: _show_settings(described), as_json)


def _show_settings(described: list[SettingDescription]) -> None:
    rows = table("setting", "value", "from")
    for setting in described:
        value = "" if setting.value is None else str(setting.value)
        origin = plain(setting.origin, style="dim" if setting.origin == "default" else "")
        rows.add_row(setting.name, plain(value), origin)
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
