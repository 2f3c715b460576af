"""Commands that pause and resume work: pause, resume, pauses."""

from __future__ import annotations

import click

from cograil.cli.display.formatting import ago
from cograil.cli.display.output import out, plain, render, table
from cograil.cli.instance_client import audit, connected, connected_to_read, current_user
from cograil.cli.options import async_command, instance_options, tenant_option
from cograil.settings import Settings
from cograil.store.job_progress_queries import resolve_job
from cograil.store.pause_queries import Paused, list_pauses
from cograil.verbs import pause as verbs

KINDS = ("job", "queue", "workflow")


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@click.option("--reason", default="", help="Why; shown by `cograil explain`.")
@tenant_option
@instance_options
@async_command
async def pause(settings: Settings, kind: str, name: str, reason: str, as_json: bool) -> None:
    """Pause a job, a queue or a workflow. Running tasks continue; no new task starts.

    \b
    Examples:
      cograil pause queue gpu --reason "driver update"
      cograil pause workflow import
      cograil pause job 019a8f2e77aa
    """
    by = current_user()
    async with connected(settings) as client, client.db.transaction("pause") as tx:
        if kind == "job":
            name = await resolve_job(tx, name, client.tenant)
            await verbs.pause_job(tx, name, by=by, reason=reason)
        elif kind == "queue":
            await verbs.pause_queue(tx, name, by=by, reason=reason, tenant=client.tenant)
        else:
            await verbs.pause_workflow(tx, name, by=by, reason=reason, tenant=client.tenant)
        await audit(tx, f"pause {kind}", name, reason=reason)
    render({"kind": kind, "name": name, "state": "paused"}, f"{kind} {name} is paused", as_json)


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@tenant_option
@instance_options
@async_command
async def resume(settings: Settings, kind: str, name: str, as_json: bool) -> None:
    """Resume a paused job, queue or workflow.

    \b
    Examples:
      cograil resume queue gpu
      cograil resume job 019a8f2e77aa
    """
    async with connected(settings) as client, client.db.transaction("resume") as tx:
        if kind == "job":
            name = await resolve_job(tx, name, client.tenant)
            await verbs.resume_job(tx, name)
        elif kind == "queue":
            await verbs.resume_queue(tx, name, tenant=client.tenant)
        else:
            await verbs.resume_workflow(tx, name, tenant=client.tenant)
        await audit(tx, f"resume {kind}", name)
    render({"kind": kind, "name": name, "state": "resumed"}, f"{kind} {name} is resumed", as_json)


@click.command()
@tenant_option
@instance_options
@async_command
async def pauses(settings: Settings, as_json: bool) -> None:
    """List paused jobs, queues and workflows, with user and reason.

    \b
    Examples:
      cograil pauses
      cograil pauses --json
    """
    async with connected_to_read(settings) as client, client.db.transaction("show") as tx:
        paused = await list_pauses(tx, client.tenant)
    render({"pauses": [entry._asdict() for entry in paused]}, lambda: _show_pauses(paused), as_json)


def _show_pauses(paused: list[Paused]) -> None:
    rows = table("kind", "name", "since", "by", "reason")
    for entry in paused:
        rows.add_row(entry.kind, plain(entry.name), ago(entry.at), plain(entry.by), plain(entry.reason))
    out().print(rows if paused else "nothing is paused")
