"""Commands about schedules: workflows that run at the times of a cron expression."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from cograil.definitions.section import MAX_VERSION
from cograil.intake.cli.client import Client, audit, connected, connected_to_read, who
from cograil.intake.cli.inputs import Moment, read_inputs
from cograil.intake.cli.options import instance_options, settings_for
from cograil.intake.cli.output import out, plain, say, table, write_json
from cograil.intake.cli.schedule_facts import facts_of, origin_of, utc
from cograil.intake.cli.words import ago
from cograil.model.schedules import Plan
from cograil.processes import run_async
from cograil.settings import Settings
from cograil.store.database import Transaction
from cograil.store.schedules import View
from cograil.verbs import schedules as verbs
from cograil.verbs.making import find_definition

tenant_option = click.option(
    "--tenant", default="default", show_default=True, help="The tenant of the schedule."
)


@click.group()
def schedules() -> None:
    """Run workflows at the times of a cron expression.

    \b
    Examples:
      cograil schedules create nightly import --cron '30 2 * * *' --timezone Europe/Paris
      cograil schedules list
      cograil schedules show nightly
      cograil schedules run nightly
      cograil schedules firings nightly
      cograil schedules backfill nightly --from 2026-01-01T00:00:00Z --until 2026-01-31T00:00:00Z --preview
    """


def _calendar_options(command: Any, *, is_change: bool = False) -> Any:
    """What runs and when; in a change only what is named is changed, so nothing has a default."""

    def usual(value: Any) -> dict[str, Any]:
        return {} if is_change else {"default": value, "show_default": True}

    for option in reversed(
        (
            click.option(
                "--cron",
                required=not is_change,
                help="When to run: minute hour day month weekday, or @daily.",
            ),
            click.option("--timezone", help="The time zone of the cron expression.", **usual("UTC")),
            click.option(
                "--input",
                "inputs",
                multiple=True,
                metavar="KEY=VALUE",
                help="An input of the jobs; repeatable.",
            ),
            click.option("--input-file", metavar="FILE", help="All inputs, as JSON; `-` reads stdin."),
            click.option(
                "--due-input", metavar="NAME", help="Give the scheduled time to the job as this input."
            ),
            click.option(
                "--version",
                type=click.IntRange(1, MAX_VERSION),
                help="The version of the workflow. [the newest]",
            ),
            click.option(
                "--priority", type=click.IntRange(0, 10), help="Of the jobs; 10 runs first.", **usual(0)
            ),
            click.option(
                "--overlap",
                type=click.Choice(["skip", "allow", "cancel"]),
                help="When the previous job still runs: skip this run, allow both, or cancel that job.",
                **usual("skip"),
            ),
            click.option(
                "--missed",
                type=click.Choice(["once", "all", "skip"]),
                help="Runs that were due while no orchestrator ran: the last one once, all, or skip them.",
                **usual("once"),
            ),
        )
    ):
        command = option(command)
    return command


@schedules.command("create")
@click.argument("name")
@click.argument("workflow")
@_calendar_options
@tenant_option
@instance_options
def create(data_dir: Path | None, as_json: bool, **words: Any) -> None:
    """Create the schedule NAME: run WORKFLOW at the times of --cron from now on.

    \b
    Examples:
      cograil schedules create nightly import --cron '30 2 * * *' --timezone Europe/Paris
      cograil schedules create tick hello --cron '*/5 * * * *' --input name=Ada --overlap allow
    """
    _tell(run_async(_write(settings_for(data_dir), is_new=True, **words)), as_json, "created")


@schedules.command("change")
@click.argument("name")
@click.argument("workflow", required=False)
@partial(_calendar_options, is_change=True)
@tenant_option
@instance_options
def change(data_dir: Path | None, as_json: bool, **words: Any) -> None:
    """Change what a schedule runs, and when. Options that are not given keep their values.

    --input changes the inputs that it names; --input-file replaces all inputs.

    \b
    Examples:
      cograil schedules change nightly --cron '0 3 * * *'
      cograil schedules change nightly --input path=/data/new.csv --overlap allow
      cograil schedules change nightly import --version 2
    """
    _tell(run_async(_write(settings_for(data_dir), is_new=False, **words)), as_json, "changed")


async def _write(settings: Settings, *, is_new: bool, name: str, tenant: str, **words: Any) -> View:
    async with connected(settings) as client, client.db.transaction("schedule") as tx:
        if not is_new:
            words = _with_old(await verbs.show_schedule(tx, tenant, name), words)
        plan = await _plan(tx, client, settings, tenant, **words)
        facts = {"tenant": tenant, "workflow_id": plan.workflow_id, "cron": plan.cron}
        await audit(tx, "create schedule" if is_new else "change schedule", name, **facts)
        if is_new:
            return await verbs.create_schedule(tx, client.decider, tenant, name, plan, by=who())
        return await verbs.change_schedule(tx, client.decider, tenant, name, plan)


def _with_old(old: View, words: dict[str, Any]) -> dict[str, Any]:
    """What was typed, completed by what the schedule has."""
    kept = {"workflow": old["workflow_id"]}
    kept |= {name: old[name] for name in ("cron", "timezone", "version", "due_input", "priority")}
    kept |= {name: old[name] for name in ("overlap", "missed")}
    if words["workflow"] not in (None, old["workflow_id"]):
        kept["version"] = None
    given = {name: value for name, value in words.items() if value is not None or name not in kept}
    old_input = {} if words["input_file"] is not None else old["input_params"]
    return kept | given | {"old_input": old_input}


async def _plan(
    tx: Transaction, client: Client, settings: Settings, tenant: str, workflow: str, **words: Any
) -> Plan:
    """What was typed, its inputs by the types that the workflow declares."""
    found = await find_definition(tx, tenant, workflow, words["version"])
    declared = (await client.decider.catalog.get(tx, found.definition_id)).inputs
    pairs, file = words.pop("inputs"), words.pop("input_file")
    old = words.pop("old_input", {})
    given = read_inputs(file, pairs, declared, max_bytes=settings.limits.input_bytes)
    return Plan(workflow_id=workflow, input={**old, **given}, **words)


def _tell(shown: View, as_json: bool, what: str) -> None:
    if as_json:
        write_json(shown)
        return
    due = f"next run {utc(shown['next_at'])}" if shown["next_at"] else "it has no next run"
    if shown["paused_at"]:
        due = "it does not run until it is resumed"
    say(f"schedule {shown['name']} {what}; {due}")


@schedules.command("list")
@tenant_option
@instance_options
def list_schedules(tenant: str, data_dir: Path | None, as_json: bool) -> None:
    """List schedules with their next and their last run.

    \b
    Examples:
      cograil schedules list
      cograil schedules list --json
    """
    found = run_async(_schedules(settings_for(data_dir), tenant))
    if as_json:
        write_json({"schedules": found})
        return
    rows = table("schedule", "workflow", "cron", "origin", "next run", "last run", "outcome")
    for one in found:
        next_at = "paused" if one["paused_at"] else one["next_at"] and f"{one['next_at']:%Y-%m-%d %H:%M:%S}Z"
        last = one["last_due_at"] and ago(one["last_due_at"])
        when = f"{one['cron']} {one['timezone']}"
        facts = (one["name"], one["workflow_id"], when, origin_of(one), next_at, last, one["last_outcome"])
        rows.add_row(*map(plain, facts))
    out().print(rows if found else "no schedules")


async def _schedules(settings: Settings, tenant: str) -> list[View]:
    async with connected_to_read(settings) as client, client.db.transaction("show") as tx:
        return await verbs.list_schedules(tx, tenant)


@schedules.command("show")
@click.argument("name")
@tenant_option
@instance_options
def show(name: str, tenant: str, data_dir: Path | None, as_json: bool) -> None:
    """Show a schedule: what it runs, when, and why runs were skipped since its last job.

    \b
    Examples:
      cograil schedules show nightly
    """
    shown = run_async(_shown(settings_for(data_dir), tenant, name))
    if as_json:
        write_json(shown)
        return
    for key, value in facts_of(shown):
        out().print(Text.assemble((f"{key:16}", "bold"), plain(value)), soft_wrap=True)


async def _shown(settings: Settings, tenant: str, name: str) -> View:
    async with connected_to_read(settings) as client, client.db.transaction("show") as tx:
        shown = await verbs.show_schedule(tx, tenant, name)
        return shown | {"passed_over": await verbs.passed_over(tx, tenant, name)}


@schedules.command("run")
@click.argument("name")
@tenant_option
@instance_options
def run(name: str, tenant: str, data_dir: Path | None, as_json: bool) -> None:
    """Submit a job of a schedule now, and print its id. It works while the schedule is paused, too.

    \b
    Examples:
      cograil schedules run nightly
    """
    done = run_async(_run(settings_for(data_dir), tenant, name))
    if as_json:
        write_json(done)
    else:
        click.echo(done["job_id"])


async def _run(settings: Settings, tenant: str, name: str) -> View:
    async with connected(settings) as client, client.db.transaction("schedule") as tx:
        done = await verbs.run_schedule(tx, client.decider, tenant, name)
        await audit(tx, "run schedule", name, tenant=tenant, job_id=done["job_id"])
        return done


@schedules.command("firings")
@click.argument("name")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many.")
@tenant_option
@instance_options
def firings(name: str, limit: int, tenant: str, data_dir: Path | None, as_json: bool) -> None:
    """List the times at which a schedule was due, and what happened then, the latest first.

    \b
    Examples:
      cograil schedules firings nightly
    """
    found = run_async(_firings(settings_for(data_dir), tenant, name, limit))
    if as_json:
        write_json({"name": name, "firings": found})
        return
    rows = table("due", "outcome", "job", "status", "reason")
    rows.columns[2].no_wrap = True
    for one in found:
        outcome = f"{one['outcome']} (backfill)" if one["is_backfill"] else one["outcome"]
        reason = one["error"] and one["error"]["message"]
        due = f"{one['due_at']:%Y-%m-%d %H:%M:%S}Z"
        rows.add_row(due, *map(plain, (outcome, one["job_id"], one["job_status"], reason)))
    out().print(rows if found else "this schedule was not due yet")


async def _firings(settings: Settings, tenant: str, name: str, limit: int) -> list[View]:
    async with connected_to_read(settings) as client, client.db.transaction("show") as tx:
        return await verbs.list_firings(tx, tenant, name, limit=limit)


@schedules.command("pause")
@click.argument("name")
@click.option("--reason", default="", help="Why; it is shown with the schedule.")
@tenant_option
@instance_options
def pause(name: str, reason: str, tenant: str, data_dir: Path | None, as_json: bool) -> None:
    """Pause a schedule: it does not run until it is resumed.

    \b
    Examples:
      cograil schedules pause nightly --reason 'the warehouse moves'
    """
    _tell(run_async(_pause(settings_for(data_dir), tenant, name, reason)), as_json, "paused")


async def _pause(settings: Settings, tenant: str, name: str, reason: str) -> View:
    async with connected(settings) as client, client.db.transaction("schedule") as tx:
        await audit(tx, "pause schedule", name, tenant=tenant, reason=reason)
        return await verbs.pause_schedule(tx, tenant, name, by=who(), reason=reason)


@schedules.command("resume")
@click.argument("name")
@click.option(
    "--detach", is_flag=True, help="Resume one that was removed from its workflow file, without it."
)
@tenant_option
@instance_options
def resume(name: str, detach: bool, tenant: str, data_dir: Path | None, as_json: bool) -> None:
    """Resume a paused schedule: it runs again from now on. Runs that were due meanwhile are not made up.

    A schedule that was removed from its workflow file is resumed with --detach only: publishing the file then
    no longer changes it.

    \b
    Examples:
      cograil schedules resume nightly
      cograil schedules resume nightly --detach
    """
    _tell(run_async(_resume(settings_for(data_dir), tenant, name, detach)), as_json, "resumed")


async def _resume(settings: Settings, tenant: str, name: str, detach: bool) -> View:
    async with connected(settings) as client, client.db.transaction("schedule") as tx:
        facts = {"detach": True} if detach else {}
        await audit(tx, "resume schedule", name, tenant=tenant, **facts)
        return await verbs.resume_schedule(tx, tenant, name, detach=detach)


@schedules.command("remove")
@click.argument("name")
@tenant_option
@instance_options
def remove(name: str, tenant: str, data_dir: Path | None, as_json: bool) -> None:
    """Remove a schedule and its history. Its jobs go on.

    \b
    Examples:
      cograil schedules remove nightly
    """
    run_async(_remove(settings_for(data_dir), tenant, name))
    if as_json:
        write_json({"name": name, "is_removed": True})
    else:
        say(f"schedule {name} removed")


async def _remove(settings: Settings, tenant: str, name: str) -> None:
    async with connected(settings) as client, client.db.transaction("schedule") as tx:
        await verbs.remove_schedule(tx, tenant, name)
        await audit(tx, "remove schedule", name, tenant=tenant)


@schedules.command("backfill")
@click.argument("name")
@click.option("--from", "first", type=Moment(), required=True, help="The start of the range of time.")
@click.option("--until", type=Moment(), required=True, help="The end of the range of time.")
@click.option("--preview", is_flag=True, help="Only print the times for which a job would be submitted.")
@tenant_option
@instance_options
def backfill(data_dir: Path | None, as_json: bool, **words: Any) -> None:
    """Submit a job for each scheduled time in a past range that has no job.

    \b
    Examples:
      cograil schedules backfill nightly --from 2026-01-01T00:00:00Z --until 2026-01-31T00:00:00Z --preview
      cograil schedules backfill nightly --from 2026-01-01T00:00:00Z --until 2026-01-31T00:00:00Z
    """
    done = run_async(_backfill(settings_for(data_dir), **words))
    if as_json:
        write_json(done)
        return
    for moment in done["moments"]:
        click.echo(f"{moment:%Y-%m-%d %H:%M:%SZ}")
    would = "would be submitted" if done["is_preview"] else "submitted"
    say(
        f"{done['submitted']} jobs {would}; {done['kept']} times had a job already; {done['refused']} refused"
    )


async def _backfill(
    settings: Settings, tenant: str, name: str, first: datetime, until: datetime, preview: bool
) -> View:
    async with connected(settings) as client, client.db.transaction("schedule") as tx:
        if not preview:
            await audit(tx, "backfill", name, tenant=tenant, first=str(first), until=str(until))
        return await verbs.backfill(tx, client.decider, tenant, name, first, until, is_preview=preview)
