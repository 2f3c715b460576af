"""Commands on many jobs at once: bulk cancel, bulk retry, bulk show."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from cograil import clock
from cograil.cli.commands.job_commands import print_job
from cograil.cli.display.job_result import see_to_end
from cograil.cli.display.output import say, write_json
from cograil.cli.display.previews import show_bulk, show_operation
from cograil.cli.input_parsing import Moment, read_labels
from cograil.cli.instance_client import Client, audit, connected, connected_to_read, who
from cograil.cli.job_wait import listening
from cograil.cli.options import instance_options, settings_for, tenant_option, timeout_option, wait_option
from cograil.errors import UsageError
from cograil.model.states import JOB_STATES
from cograil.processes import run_async
from cograil.settings import Settings
from cograil.store.job_progress_queries import resolve_job
from cograil.verbs.bulk import JobFilter, begin_bulk, find_bulk, outcome_of, preview_bulk

Command = TypeVar("Command", bound=Callable[..., Any])

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Age(click.ParamType[timedelta]):
    """How long ago: 90s, 30m, 12h, 7d, 2w."""

    name = "AGE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        found = re.fullmatch(r"(\d{1,6})([smhdw])", str(value))
        if found is None:
            self.fail(f"{value!r} is not an age such as 90s, 30m, 12h, 7d or 2w", param, ctx)
        return timedelta(**{UNITS[found[2]]: int(found[1])})


FILTERS = (
    click.option("--status", "statuses", multiple=True, type=click.Choice(JOB_STATES), help="Repeatable."),
    click.option("--workflow", metavar="NAME", help="Only jobs of this workflow."),
    click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only with it; repeatable."),
    click.option("--correlation-id", help="Only jobs with this id of yours."),
    click.option("--older-than", type=Age(), help="Only jobs made longer ago, such as 12h or 7d."),
    click.option("--newer-than", type=Age(), help="Only jobs made since then, such as 12h or 7d."),
    click.option("--created-before", type=Moment(), help="Only jobs made before, such as 2026-01-31T09:00Z."),
    click.option("--created-after", type=Moment(), help="Only jobs made then or later."),
    click.option("--all", "is_all", is_flag=True, help="Every job, when nothing else says which."),
    click.option("--preview", is_flag=True, help="Only say how many jobs fit, and the first 20 of them."),
)


def filter_options(command: Command) -> Command:
    """Which jobs, and whether only to look."""
    for option in reversed(FILTERS):
        command = option(command)
    return command


@click.group()
def bulk() -> None:
    """Cancel or retry many jobs.

    An operation is a job of its own: it goes on when this command ends or a worker dies, `cancel` stops
    it, `retry` goes on with it, and each job is taken once. Jobs made after it was asked for are left
    alone.

    \b
    Examples:
      cograil bulk cancel --workflow import --status pending --preview
      cograil bulk cancel --label team=ops --reason "wrong file" --wait
      cograil bulk retry --workflow import --newer-than 12h --wait
    """


@bulk.command("cancel")
@filter_options
@click.option("--reason", default="", help="Why; kept in the events of the jobs.")
@wait_option
@timeout_option
@tenant_option
@instance_options
def bulk_cancel(data_dir: Path | None, **words: Any) -> int:
    """Cancel the jobs that fit, pending and running ones, and print the id of the job that does it.

    \b
    Examples:
      cograil bulk cancel --workflow import --preview
      cograil bulk cancel --older-than 1d --status pending --wait
    """
    return run_async(_begin(settings_for(data_dir), "cancel", **words))


@bulk.command("retry")
@filter_options
@wait_option
@timeout_option
@tenant_option
@instance_options
def bulk_retry(data_dir: Path | None, **words: Any) -> int:
    """Retry the jobs that fit, failed ones unless --status says, and print the id of the job that does it.

    A job that was retried before is skipped.

    \b
    Examples:
      cograil bulk retry --workflow import --preview
      cograil bulk retry --status failed --status cancelled --newer-than 2d --wait
    """
    return run_async(_begin(settings_for(data_dir), "retry", **words))


@bulk.command("show")
@click.argument("job")
@tenant_option
@instance_options
def bulk_show(job: str, data_dir: Path | None, as_json: bool) -> None:
    """Show how far an operation is, and why jobs were skipped or failed. JOB is the one that does it.

    \b
    Examples:
      cograil bulk show 019a8f2e77aa
      cograil bulk show 019a8f2e77aa --json
    """
    run_async(_show(settings_for(data_dir), job, as_json))


async def _begin(
    settings: Settings,
    verb: str,
    *,
    preview: bool,
    wait: bool,
    timeout: float | None,
    as_json: bool,
    **words: Any,
) -> int:
    reason = words.pop("reason", "")
    wanted = _filter(clock.now(), **words)
    async with connected(settings) as client:
        if preview:
            async with client.db.transaction("preview") as tx:
                show_bulk(await preview_bulk(tx, verb, wanted, client.tenant), as_json)
            return 0
        async with listening(client) as bell:
            async with client.db.transaction("bulk") as tx:
                job_id = await begin_bulk(
                    tx, client.engine_context, verb, wanted, by=who(), reason=reason, tenant=client.tenant
                )
                await audit(tx, f"bulk {verb}", job_id, reason=reason)
            if wait:
                return await see_to_end(client, bell, job_id, timeout=timeout, as_json=as_json)
        return await _tell(client, job_id, as_json)


async def _tell(client: Client, job_id: str, as_json: bool) -> int:
    if not as_json:
        say(f"see `cograil bulk show {job_id}`; `cograil cancel {job_id}` stops it")
    return await print_job(client, job_id, as_json)


def _filter(now: datetime, *, is_all: bool, older_than: Any, newer_than: Any, **words: Any) -> JobFilter:
    """The filter that was asked for. Raises UsageError when it says nothing and --all is not given."""
    if older_than is not None:
        words["created_before"] = _one_of(words["created_before"], now - older_than, "before", "older")
    if newer_than is not None:
        words["created_after"] = _one_of(words["created_after"], now - newer_than, "after", "newer")
    wanted = JobFilter(**words | {"labels": read_labels(words["labels"]) or {}})
    if wanted.is_empty and not is_all:
        raise UsageError("say which jobs, such as --workflow NAME or --older-than 1d; or --all")
    return wanted


def _one_of(given: datetime | None, counted: datetime, created: str, than: str) -> datetime:
    if given is not None:
        raise UsageError(f"give --created-{created} or --{than}-than, not both")
    return counted


async def _show(settings: Settings, job: str, as_json: bool) -> None:
    async with connected_to_read(settings) as client, client.db.transaction("show") as tx:
        found = await find_bulk(tx, await resolve_job(tx, job, client.tenant), client.tenant)
    if as_json:
        write_json({"job_id": found.job_id} | outcome_of(found))
    else:
        show_operation(found)
