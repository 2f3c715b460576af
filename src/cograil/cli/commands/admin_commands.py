"""Commands that look after an instance: doctor, config, schema."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click
import psycopg
from rich.text import Text

from cograil.app_registry import enabled_apps
from cograil.cli.commands.database_commands import connection_to
from cograil.cli.display.database_health import show_health
from cograil.cli.display.formatting import printable
from cograil.cli.display.output import out, plain, say, show_value, sign, table, write_json
from cograil.cli.options import config_option, instance_options, json_option, read_settings, settings_for
from cograil.definitions import schema as workflow_schema
from cograil.errors import DatabaseUnavailable, UnsupportedEncoding
from cograil.processes import run_async
from cograil.settings import Settings, describe, variable_of
from cograil.store.doctor import ENCODING_CODE, Finding, examine
from cograil.store.table_bloat import Health, look

COULD_NOT_CHECK = 2
LEVEL_STYLES = {"green": "green", "yellow": "yellow", "red": "bold red"}
LEVEL_SIGNS = {"green": "completed", "yellow": "ready", "red": "failed"}


@click.command()
@click.option("--all", "is_complete", is_flag=True, help="Show empty tables too.")
@instance_options
def doctor(is_complete: bool, data_dir: Path | None, as_json: bool) -> int:
    """Check that everything is as it must be; change nothing.

    Looks at the server's settings, the encoding, the schema, the roles and their grants, thirteen invariants
    of the data, whether things move, how large the tables are and how much in them is dead, who holds an old
    snapshot, which keeps it, and what runs containers on this machine.
    Exits 0 when nothing is red, 1 when something is, 2 when it could not look, 3 when nothing runs there.

    \b
    Examples:
      cograil doctor
      cograil doctor --json
    """
    try:
        findings, health = run_async(_examine(settings_for(data_dir)))
    except UnsupportedEncoding as error:
        findings, health = [Finding("red", ENCODING_CODE, "encoding", str(error))], Health()
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
        show_health(health, is_complete=is_complete)
    return 1 if worst == "red" else 0


async def _examine(settings: Settings) -> tuple[list[Finding], Health]:
    async with connection_to(settings) as connection:
        findings = await examine(connection)
        if findings[-1].name == "schema":  # which is wrong: there are no tables to look at
            return findings, Health()
        health = await look(connection)
        checks = [app.doctor for app in enabled_apps(settings) if app.doctor is not None]
        of_apps = [finding for check in checks for finding in await check(settings)]
        return [*findings, *of_apps, *health.findings()], health


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
@config_option
@json_option
def config(as_json: bool) -> None:
    """Show every setting, its value and where that comes from: flag, variable, settings file or default.

    Passwords are masked. A variable COGRAIL_... or a key of the file that is not a setting is an error.

    \b
    Examples:
      cograil config
      cograil config --config ./staging.toml
      COGRAIL_LEASE__SECONDS=30 cograil config --json
    """
    described = describe(read_settings())
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
