"""Commands on many jobs: bulk cancel, bulk retry, bulk show."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from cograil import clock
from cograil.cli.backends.interface import Backend
from cograil.cli.backends.target import Target
from cograil.cli.command_decorators import instance_command
from cograil.cli.commands.job_commands import print_job
from cograil.cli.display.job_result import wait_and_show
from cograil.cli.display.output import render, say
from cograil.cli.display.previews import show_bulk, show_operation
from cograil.cli.input_parsing import Timestamp, read_labels
from cograil.cli.options import instance_options, tenant_option, timeout_option, wait_option
from cograil.errors import UsageError
from cograil.model.states import JOB_STATES
from cograil.verbs.bulk import JobFilter

Command = TypeVar("Command", bound=Callable[..., Any])

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Age(click.ParamType[timedelta]):
    """An age: 90s, 30m, 12h, 7d, 2w."""

    name = "AGE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"(\d{1,6})([smhdw])", str(value))
        if match is None:
            self.fail(f"{value!r} is not an age such as 90s, 30m, 12h, 7d or 2w", param, ctx)
        return timedelta(**{UNITS[match[2]]: int(match[1])})


FILTERS = (
    click.option(
        "--status",
        "statuses",
        multiple=True,
        type=click.Choice(JOB_STATES),
        help="Only jobs in this status; repeatable.",
    ),
    click.option("--workflow", metavar="NAME", help="Only jobs of this workflow."),
    click.option(
        "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only jobs with this label; repeatable."
    ),
    click.option("--correlation-id", help="Only jobs with this correlation id."),
    click.option("--older-than", type=Age(), help="Only jobs created longer ago, such as 12h or 7d."),
    click.option("--newer-than", type=Age(), help="Only jobs created since then, such as 12h or 7d."),
    click.option(
        "--created-before", type=Timestamp(), help="Only jobs created before, such as 2026-01-31T09:00Z."
    ),
    click.option("--created-after", type=Timestamp(), help="Only jobs created then or later."),
    click.option("--all", "is_all", is_flag=True, help="All jobs, when no filter is given."),
    click.option("--preview", is_flag=True, help="Only show how many jobs match, and the first 20 of them."),
)


def filter_options(command: Command) -> Command:
    """Add the options that select jobs, and --preview."""
    for option in reversed(FILTERS):
        command = option(command)
    return command


@click.group()
def bulk() -> None:
    """Cancel or retry many jobs.

    A bulk operation is a job itself: it continues when this command ends or a worker dies. `cancel` stops
    it, `retry` continues it, and each job is processed once. Jobs created after the operation started are not
    included.

    \b
    Examples:
      cograil bulk cancel --workflow import --status pending --preview
      cograil bulk cancel --label team=ops --reason "wrong file" --wait
      cograil bulk retry --workflow import --newer-than 12h --wait
    """


@bulk.command("cancel")
@filter_options
@click.option("--reason", default="", help="Why; stored in the events of the jobs.")
@wait_option
@timeout_option
@tenant_option
@instance_options
@instance_command
async def bulk_cancel(target: Target, **options: Any) -> int:
    """Cancel the matching pending and running jobs, and print the id of the bulk job.

    \b
    Examples:
      cograil bulk cancel --workflow import --preview
      cograil bulk cancel --older-than 1d --status pending --wait
    """
    return await _start_bulk(target, "cancel", **options)


@bulk.command("retry")
@filter_options
@wait_option
@timeout_option
@tenant_option
@instance_options
@instance_command
async def bulk_retry(target: Target, **options: Any) -> int:
    """Retry the matching jobs, and print the id of the bulk job. Without --status, failed jobs are retried.

    A job that was already retried is skipped.

    \b
    Examples:
      cograil bulk retry --workflow import --preview
      cograil bulk retry --status failed --status cancelled --newer-than 2d --wait
    """
    return await _start_bulk(target, "retry", **options)


@bulk.command("show")
@click.argument("job")
@tenant_option
@instance_options
@instance_command
async def bulk_show(target: Target, job: str, as_json: bool) -> None:
    """Show the progress of a bulk operation, and why jobs were skipped or failed. JOB is the bulk job.

    \b
    Examples:
      cograil bulk show 019a8f2e77aa
      cograil bulk show 019a8f2e77aa --json
    """
    async with target.open_to_read() as backend:
        progress = await backend.bulk_progress(job)
    render(progress, lambda: show_operation(progress), as_json)


async def _start_bulk(
    target: Target,
    verb: str,
    *,
    preview: bool,
    wait: bool,
    timeout: float | None,
    as_json: bool,
    **options: Any,
) -> int:
    reason = options.pop("reason", "")
    job_filter = _read_filter(clock.now(), **options)
    async with target.open() as backend:
        if preview:
            show_bulk(await backend.preview_bulk(verb, job_filter), as_json)
            return 0
        async with backend.job_ends() as ends:
            job_id = await backend.begin_bulk(verb, job_filter, reason)
            if wait:
                return await wait_and_show(backend, ends, job_id, timeout=timeout, as_json=as_json)
        return await _show_started(backend, job_id, as_json)


async def _show_started(backend: Backend, job_id: str, as_json: bool) -> int:
    if not as_json:
        say(f"see {backend.command(f'bulk show {job_id}')}; {backend.command(f'cancel {job_id}')} stops it")
    return await print_job(backend, job_id, as_json)


def _read_filter(
    now: datetime, *, is_all: bool, older_than: Any, newer_than: Any, **options: Any
) -> JobFilter:
    """Return the filter of these options. Raises UsageError when it is empty and --all is not given."""
    if older_than is not None:
        options["created_before"] = _require_one(
            options["created_before"], now - older_than, "before", "older"
        )
    if newer_than is not None:
        options["created_after"] = _require_one(options["created_after"], now - newer_than, "after", "newer")
    job_filter = JobFilter(**options | {"labels": read_labels(options["labels"]) or {}})
    if job_filter.is_empty and not is_all:
        raise UsageError("select jobs with a filter such as --workflow NAME or --older-than 1d, or use --all")
    return job_filter


def _require_one(created_at: datetime | None, from_age: datetime, created: str, than: str) -> datetime:
    if created_at is not None:
        raise UsageError(f"use --created-{created} or --{than}-than, not both")
    return from_age
