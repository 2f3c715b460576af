"""Commands that hold things up and let them go: pause, resume, pauses."""

from __future__ import annotations

from pathlib import Path

import click

from cograil.cli.display.formatting import ago
from cograil.cli.display.output import out, plain, say, table, write_json
from cograil.cli.instance_client import audit, connected, connected_to_read, who
from cograil.cli.options import instance_options, settings_for, tenant_option
from cograil.processes import run_async
from cograil.settings import Settings
from cograil.store.job_progress_queries import resolve_job
from cograil.store.pause_queries import Paused, list_pauses
from cograil.verbs import pause as verbs

KINDS = ("job", "queue", "workflow")


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@click.option("--reason", default="", help="Why; `cograil explain` tells it.")
@tenant_option
@instance_options
def pause(kind: str, name: str, reason: str, data_dir: Path | None, as_json: bool) -> None:
    """Pause a job, a queue or a workflow. What runs, runs on; nothing new begins.

    \b
    Examples:
      cograil pause queue gpu --reason "driver update"
      cograil pause workflow import
      cograil pause job 019a8f2e77aa
    """
    paused = run_async(_pause(settings_for(data_dir), kind, name, reason))
    _tell(kind, paused, "paused", as_json)


async def _pause(settings: Settings, kind: str, name: str, reason: str) -> str:
    by = who()
    async with connected(settings) as client, client.db.transaction("pause") as tx:
        if kind == "job":
            name = await resolve_job(tx, name, client.tenant)
            await verbs.pause_job(tx, name, by=by, reason=reason)
        elif kind == "queue":
            await verbs.pause_queue(tx, name, by=by, reason=reason, tenant=client.tenant)
        else:
            await verbs.pause_workflow(tx, name, by=by, reason=reason, tenant=client.tenant)
        await audit(tx, f"pause {kind}", name, reason=reason)
    return name


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@tenant_option
@instance_options
def resume(kind: str, name: str, data_dir: Path | None, as_json: bool) -> None:
    """Let a paused job, queue or workflow go on.

    \b
    Examples:
      cograil resume queue gpu
      cograil resume job 019a8f2e77aa
    """
    resumed = run_async(_resume(settings_for(data_dir), kind, name))
    _tell(kind, resumed, "resumed", as_json)


async def _resume(settings: Settings, kind: str, name: str) -> str:
    async with connected(settings) as client, client.db.transaction("resume") as tx:
        if kind == "job":
            name = await resolve_job(tx, name, client.tenant)
            await verbs.resume_job(tx, name)
        elif kind == "queue":
            await verbs.resume_queue(tx, name, tenant=client.tenant)
        else:
            await verbs.resume_workflow(tx, name, tenant=client.tenant)
        await audit(tx, f"resume {kind}", name)
    return name


def _tell(kind: str, name: str, state: str, as_json: bool) -> None:
    if as_json:
        write_json({"kind": kind, "name": name, "state": state})
    else:
        say(f"{kind} {name} is {state}")


@click.command()
@tenant_option
@instance_options
def pauses(data_dir: Path | None, as_json: bool) -> None:
    """List what is paused, by whom and why.

    \b
    Examples:
      cograil pauses
      cograil pauses --json
    """
    found = run_async(_pauses(settings_for(data_dir)))
    if as_json:
        write_json({"pauses": [one._asdict() for one in found]})
        return
    rows = table("kind", "name", "since", "by", "reason")
    for one in found:
        rows.add_row(one.kind, plain(one.name), ago(one.at), plain(one.by), plain(one.reason))
    out().print(rows if found else "nothing is paused")


async def _pauses(settings: Settings) -> list[Paused]:
    async with connected_to_read(settings) as client, client.db.transaction("show") as tx:
        return await list_pauses(tx, client.tenant)
