"""Commands for schedules."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

import click
from rich.text import Text

from cograil.cli.backends.interface import Backend
from cograil.cli.backends.target import Target
from cograil.cli.command_decorators import instance_command
from cograil.cli.display.formatting import ago
from cograil.cli.display.output import out, plain, render, say, table
from cograil.cli.display.schedule_facts import facts_of, origin_of, utc
from cograil.cli.input_parsing import Timestamp, read_inputs
from cograil.cli.options import instance_options, tenant_option
from cograil.definitions.mapping_reader import MAX_VERSION
from cograil.model.schedule import SchedulePlan
from cograil.store.job_queries import View


@click.group()
def schedules() -> None:
    """Manage cron schedules of workflows.

    \b
    Examples:
      cograil schedules create nightly import --cron '30 2 * * *' --timezone Europe/Paris
      cograil schedules list
      cograil schedules show nightly
      cograil schedules run nightly
      cograil schedules firings nightly
      cograil schedules backfill nightly --from 2026-01-01T00:00:00Z --until 2026-01-31T00:00:00Z --preview
    """


def _schedule_options(command: Any, *, is_change: bool = False) -> Any:
    """Add the options of a schedule. `change` only changes the given ones, so it has no defaults."""

    def default(value: Any) -> dict[str, Any]:
        return {} if is_change else {"default": value, "show_default": True}

    for option in reversed(
        (
            click.option(
                "--cron",
                required=not is_change,
                help="Cron expression: minute hour day month weekday, or @daily.",
            ),
            click.option("--timezone", help="Time zone of the cron expression.", **default("UTC")),
            click.option(
                "--input", "inputs", multiple=True, metavar="KEY=VALUE", help="Input of the jobs; repeatable."
            ),
            click.option(
                "--input-file", metavar="FILE", help="File with all inputs as JSON; `-` reads stdin."
            ),
            click.option("--due-input", metavar="NAME", help="Input that receives the scheduled time."),
            click.option(
                "--version", type=click.IntRange(1, MAX_VERSION), help="Version of the workflow. [the latest]"
            ),
            click.option(
                "--priority",
                type=click.IntRange(0, 10),
                help="Priority of the jobs; 10 runs first.",
                **default(0),
            ),
            click.option(
                "--overlap",
                type=click.Choice(["skip", "allow", "cancel"]),
                help="When the previous job still runs: skip, run concurrently, or cancel it.",
                **default("skip"),
            ),
            click.option(
                "--missed",
                type=click.Choice(["once", "all", "skip"]),
                help="Runs missed while nothing was running: run the last, all, or none.",
                **default("once"),
            ),
        )
    ):
        command = option(command)
    return command


@schedules.command("create")
@click.argument("name")
@click.argument("workflow")
@_schedule_options
@tenant_option
@instance_options
@instance_command
async def create(target: Target, as_json: bool, **options: Any) -> None:
    """Create the schedule NAME, which runs WORKFLOW from now on.

    \b
    Examples:
      cograil schedules create nightly import --cron '30 2 * * *' --timezone Europe/Paris
      cograil schedules create tick hello --cron '*/5 * * * *' --input name=Ada --overlap allow
    """
    _show_change(await _write(target, is_new=True, **options), as_json, "created")


@schedules.command("change")
@click.argument("name")
@click.argument("workflow", required=False)
@partial(_schedule_options, is_change=True)
@tenant_option
@instance_options
@instance_command
async def change(target: Target, as_json: bool, **options: Any) -> None:
    """Change a schedule. Options that are not given stay as they are.

    --input changes single inputs; --input-file replaces all of them.

    \b
    Examples:
      cograil schedules change nightly --cron '0 3 * * *'
      cograil schedules change nightly --input path=/data/new.csv --overlap allow
      cograil schedules change nightly import --version 2
    """
    _show_change(await _write(target, is_new=False, **options), as_json, "changed")


async def _write(target: Target, *, is_new: bool, name: str, **options: Any) -> View:
    async with target.open() as backend:
        if is_new:
            return await backend.create_schedule(name, await _read_plan(backend, **options))
        options = _complete(await backend.find_schedule(name), options)
        return await backend.change_schedule(name, await _read_plan(backend, **options))


def _complete(old: View, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with missing values taken from the schedule."""
    kept = {"workflow": old["workflow_id"]}
    kept |= {name: old[name] for name in ("cron", "timezone", "version", "due_input", "priority")}
    kept |= {name: old[name] for name in ("overlap", "missed")}
    if options["workflow"] not in (None, old["workflow_id"]):
        kept["version"] = None
    changed = {name: value for name, value in options.items() if value is not None or name not in kept}
    old_input = {} if options["input_file"] is not None else old["input_params"]
    return kept | changed | {"old_input": old_input}


async def _read_plan(backend: Backend, workflow: str, **options: Any) -> SchedulePlan:
    """Return the plan of these options; inputs are parsed by the types that the workflow declares."""
    declared = (await backend.published_workflow(workflow, options["version"])).inputs
    pairs, file = options.pop("inputs"), options.pop("input_file")
    old = options.pop("old_input", {})
    inputs = read_inputs(file, pairs, declared, max_bytes=backend.max_input_bytes)
    return SchedulePlan(workflow_id=workflow, input={**old, **inputs}, **options)


def _show_change(schedule: View, as_json: bool, change: str) -> None:
    due = f"next run {utc(schedule['next_at'])}" if schedule["next_at"] else "it has no next run"
    if schedule["paused_at"]:
        due = "it does not run until it is resumed"
    render(schedule, f"schedule {schedule['name']} {change}; {due}", as_json)


@schedules.command("list")
@tenant_option
@instance_options
@instance_command
async def list_schedules(target: Target, as_json: bool) -> None:
    """List schedules with their next and last runs.

    \b
    Examples:
      cograil schedules list
      cograil schedules list --json
    """
    async with target.open_to_read() as backend:
        listed = await backend.list_schedules()
    render({"schedules": listed}, lambda: _show_schedules(listed), as_json)


def _show_schedules(listed: list[View]) -> None:
    rows = table("schedule", "workflow", "cron", "origin", "next run", "last run", "outcome")
    for entry in listed:
        next_at = entry["next_at"] and f"{entry['next_at']:%Y-%m-%d %H:%M:%S}Z"
        next_run = "paused" if entry["paused_at"] else next_at
        last = entry["last_due_at"] and ago(entry["last_due_at"])
        when = f"{entry['cron']} {entry['timezone']}"
        names = (entry["name"], entry["workflow_id"], when, origin_of(entry))
        rows.add_row(*map(plain, (*names, next_run, last, entry["last_outcome"])))
    out().print(rows if listed else "no schedules")


@schedules.command("show")
@click.argument("name")
@tenant_option
@instance_options
@instance_command
async def show(target: Target, name: str, as_json: bool) -> None:
    """Show a schedule: workflow, times, and why runs were skipped since its last job.

    \b
    Examples:
      cograil schedules show nightly
    """
    async with target.open_to_read() as backend:
        schedule = await backend.find_schedule(name)
    render(schedule, lambda: _show_schedule(schedule), as_json)


def _show_schedule(schedule: View) -> None:
    for label, value in facts_of(schedule):
        out().print(Text.assemble((f"{label:16}", "bold"), plain(value)), soft_wrap=True)


@schedules.command("run")
@click.argument("name")
@tenant_option
@instance_options
@instance_command
async def run(target: Target, name: str, as_json: bool) -> None:
    """Submit a job of a schedule now, and print its id. The schedule may be paused.

    \b
    Examples:
      cograil schedules run nightly
    """
    async with target.open() as backend:
        submitted = await backend.run_schedule(name)
    render(submitted, lambda: click.echo(submitted["job_id"]), as_json)


@schedules.command("firings")
@click.argument("name")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Maximum number.")
@tenant_option
@instance_options
@instance_command
async def firings(target: Target, name: str, limit: int, as_json: bool) -> None:
    """List the scheduled times of a schedule and their outcomes, latest first.

    \b
    Examples:
      cograil schedules firings nightly
    """
    async with target.open_to_read() as backend:
        listed = await backend.list_firings(name, limit)
    render({"name": name, "firings": listed}, lambda: _show_firings(listed), as_json)


def _show_firings(listed: list[View]) -> None:
    rows = table("due", "outcome", "job", "status", "reason")
    rows.columns[2].no_wrap = True
    for firing in listed:
        outcome = f"{firing['outcome']} (backfill)" if firing["is_backfill"] else firing["outcome"]
        error = firing["error"] and firing["error"]["message"]
        due = f"{firing['due_at']:%Y-%m-%d %H:%M:%S}Z"
        status = "waiting" if firing["waiting_for"] else firing["job_status"]
        rows.add_row(due, *map(plain, (outcome, firing["job_id"], status, error)))
    out().print(rows if listed else "this schedule was not due yet")


@schedules.command("pause")
@click.argument("name")
@click.option("--reason", default="", help="Why; shown with the schedule.")
@tenant_option
@instance_options
@instance_command
async def pause(target: Target, name: str, reason: str, as_json: bool) -> None:
    """Skip the runs of a schedule until it is resumed.

    \b
    Examples:
      cograil schedules pause nightly --reason 'the warehouse moves'
    """
    async with target.open() as backend:
        paused = await backend.pause_schedule(name, reason)
    _show_change(paused, as_json, "paused")


@schedules.command("resume")
@click.argument("name")
@click.option(
    "--detach", is_flag=True, help="Resume one that was removed from its workflow file, without it."
)
@tenant_option
@instance_options
@instance_command
async def resume(target: Target, name: str, detach: bool, as_json: bool) -> None:
    """Resume a paused schedule: it runs again from now on. Runs that were due meanwhile are not made up.

    A schedule that was removed from its workflow file is resumed with --detach only: publishing the file then
    no longer changes it.

    \b
    Examples:
      cograil schedules resume nightly
      cograil schedules resume nightly --detach
    """
    async with target.open() as backend:
        resumed = await backend.resume_schedule(name, detach=detach)
    _show_change(resumed, as_json, "resumed")


@schedules.command("remove")
@click.argument("name")
@tenant_option
@instance_options
@instance_command
async def remove(target: Target, name: str, as_json: bool) -> None:
    """Remove a schedule and its history; its jobs continue.

    \b
    Examples:
      cograil schedules remove nightly
    """
    async with target.open() as backend:
        await backend.remove_schedule(name)
    render({"name": name, "is_removed": True}, f"schedule {name} removed", as_json)


@schedules.command("backfill")
@click.argument("name")
@click.option("--from", "first", type=Timestamp(), required=True, help="Start of the period.")
@click.option("--until", type=Timestamp(), required=True, help="End of the period.")
@click.option("--preview", is_flag=True, help="Only show what would be submitted.")
@tenant_option
@instance_options
@instance_command
async def backfill(
    target: Target,
    name: str,
    first: datetime,
    until: datetime,
    preview: bool,
    as_json: bool,
) -> None:
    """Submit a job for each scheduled time in a period that has none.

    \b
    Examples:
      cograil schedules backfill nightly --from 2026-01-01T00:00:00Z --until 2026-01-31T00:00:00Z --preview
      cograil schedules backfill nightly --from 2026-01-01T00:00:00Z --until 2026-01-31T00:00:00Z
    """
    async with target.open() as backend:
        result = await backend.backfill(name, first, until, preview=preview)
    render(result, lambda: _show_backfill(result), as_json)


def _show_backfill(result: View) -> None:
    for due_at in result["moments"]:
        click.echo(f"{due_at:%Y-%m-%d %H:%M:%SZ}")
    verb = "would be submitted" if result["is_preview"] else "submitted"
    say(
        f"{result['submitted']} jobs {verb}; {result['kept']} times had a job already; "
        f"{result['refused']} refused"
    )
