"""The command `apps`: what is installed and enabled, and what each app adds."""

from __future__ import annotations

from typing import Any

import click

from cograil.app_registry import App, installed_apps
from cograil.cli.display.output import out, plain, table, write_json
from cograil.cli.options import config_option, json_option, read_settings


@click.command()
@config_option
@json_option
def apps(as_json: bool) -> None:
    """List the installed apps: whether each is enabled, and what it adds.

    COGRAIL_APPS or `cograil up --apps` names the apps that run, separated by commas.

    \b
    Examples:
      cograil apps
      COGRAIL_APPS=containers,companies cograil apps --json
    """
    enabled = read_settings().apps
    listed = [_describe(app, enabled) for app in installed_apps()]
    if as_json:
        write_json({"apps": listed})
        return
    rows = table("app", "enabled", "adds", "summary")
    for app in listed:
        rows.add_row(
            app["name"],
            "yes" if app["enabled"] else "no",
            plain(", ".join(app["adds"])),
            plain(app["summary"]),
        )
    out().print(rows)


def _describe(app: App, enabled: tuple[str, ...]) -> dict[str, Any]:
    return {
        "name": app.name,
        "enabled": app.name in enabled,
        "summary": app.summary,
        "adds": app.parts(),
        "commands": sorted(app.commands),
    }
