"""Commands that pause and resume work: pause, resume, pauses."""

from __future__ import annotations

import click

from cograil.cli.backends.target import Target
from cograil.cli.command_decorators import instance_command
from cograil.cli.display.formatting import ago
from cograil.cli.display.output import out, plain, render, table
from cograil.cli.options import instance_options, tenant_option
from cograil.store.job_queries import View

KINDS = ("job", "queue", "workflow")


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@click.option("--reason", default="", help="Why; shown by `cograil explain`.")
@tenant_option
@instance_options
@instance_command
async def pause(target: Target, kind: str, name: str, reason: str, as_json: bool) -> None:
    """Pause a job, a queue or a workflow. Running tasks continue; no new task starts.

    \b
    Examples:
      cograil pause queue gpu --reason "driver update"
      cograil pause workflow import
      cograil pause job 019a8f2e77aa
    """
    async with target.open() as backend:
        name = await backend.pause(kind, name, reason)
    render({"kind": kind, "name": name, "state": "paused"}, f"{kind} {name} is paused", as_json)


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@tenant_option
@instance_options
@instance_command
async def resume(target: Target, kind: str, name: str, as_json: bool) -> None:
    """Resume a paused job, queue or workflow.

    \b
    Examples:
      cograil resume queue gpu
      cograil resume job 019a8f2e77aa
    """
    async with target.open() as backend:
        name = await backend.resume(kind, name)
    render({"kind": kind, "name": name, "state": "resumed"}, f"{kind} {name} is resumed", as_json)


@click.command()
@tenant_option
@instance_options
@instance_command
async def pauses(target: Target, as_json: bool) -> None:
    """List paused jobs, queues and workflows, with user and reason.

    \b
    Examples:
      cograil pauses
      cograil pauses --json
    """
    async with target.open_to_read() as backend:
        paused = await backend.list_pauses()
    render({"pauses": paused}, lambda: _show_pauses(paused), as_json)


def _show_pauses(paused: list[View]) -> None:
    rows = table("kind", "name", "since", "by", "reason")
    for entry in paused:
        names = (entry["kind"], plain(entry["name"]))
        rows.add_row(*names, ago(entry["at"]), plain(entry["by"]), plain(entry["reason"]))
    out().print(rows if paused else "nothing is paused")
