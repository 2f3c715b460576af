"""`cograil laundry`: list loads."""

from __future__ import annotations

from pathlib import Path

import click

from cograil.plugins import Settings, connected, instance_options, plain, run_async, settings_for, write_json
from cograil.plugins import out as stdout
from laundry.loads import Load, list_loads


@click.group()
def laundry() -> None:
    """Bring laundry, and see what is clean.

    \b
    Examples:
      cograil laundry list
    """


@laundry.command("list")
@instance_options
def list_command(data_dir: Path | None, as_json: bool) -> None:
    """List the newest loads.

    \b
    Examples:
      cograil laundry list --json
    """
    loads = run_async(_loads(settings_for(data_dir)))
    if as_json:
        write_json({"loads": [load._asdict() for load in loads]})
        return
    for load in loads:
        stdout().print(plain(f"{load.id} {load.soap} {'clean' if load.is_washed else 'dirty'}"))


async def _loads(settings: Settings) -> list[Load]:
    async with connected(settings) as client, client.db.transaction("laundry.show") as tx:
        return await list_loads(tx)
