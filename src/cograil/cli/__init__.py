"""The command line: `cograil COMMAND`.

A command is loaded when it is used, so `COMMANDS` is a table of names: what stands in the help, and
`module:attribute` where the command is. A command parses what it was given, opens a transaction,
calls a verb and shows the answer; it decides nothing about jobs. Answers go to standard output,
everything else to standard error. A command returns its exit code, or None for 0.

`main` is the one place where errors become messages and exit codes.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from difflib import get_close_matches
from typing import Any, NamedTuple

import click

from cograil.app_registry import Command, app_commands, installed_apps, load_object
from cograil.errors import CograilError, DatabaseUnavailable, Problems, RolesMissing, UsageError

INTERRUPTED, BROKEN_PIPE, BUG, UNWRITTEN = 130, 141, 70, 74
UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}  # what a full or broken disk says


class Entry(NamedTuple):
    """Where a command is, and its line in the help."""

    place: str
    help: str


COMMANDS: dict[str, dict[str, Entry]] = {
    "Run things": {
        "up": Entry("server_commands:up", "Run everything: database, orchestrator, worker, API."),
        "server": Entry("server_commands:server", "Run one more server of the API."),
        "gateway": Entry("server_commands:gateway", "Run a gateway for callers outside."),
        "orchestrator": Entry("server_commands:orchestrator", "Run one more orchestrator."),
        "worker": Entry("server_commands:worker", "Run one more worker."),
        "relay": Entry("server_commands:relay", "Run one more relay of events."),
        "run": Entry("job_commands:run", "Run a workflow file to its end and show how it goes."),
        "init": Entry("init_command:init", "Make a project: a handler, a workflow, a test."),
        "demo": Entry("demo_command:demo", "See it work: a job with retries, a condition and a fan-out."),
    },
    "Workflows and jobs": {
        "check": Entry("workflow_file_commands:check", "Find all mistakes in workflow files."),
        "publish": Entry("workflow_file_commands:publish", "Publish workflow files."),
        "workflows": Entry("inspect_commands:workflows", "List published workflows."),
        "submit": Entry("job_commands:submit", "Start a job of a published workflow."),
        "jobs": Entry("inspect_commands:jobs", "List jobs."),
        "show": Entry("inspect_commands:show", "Show a job and its nodes."),
        "events": Entry("inspect_commands:events", "Show or follow what happened in a job."),
        "logs": Entry("log_command:logs", "Show what the handlers of a job logged."),
        "explain": Entry("inspect_commands:explain", "Say why a job does not move."),
        "cancel": Entry("job_commands:cancel", "Cancel a job."),
        "approve": Entry("approval_commands:approve", "Approve what a job asks."),
        "reject": Entry("approval_commands:reject", "Reject what a job asks."),
        "signal": Entry("approval_commands:signal", "Send a signal to a job."),
        "retry": Entry("job_commands:retry", "Run what failed in a job again."),
        "bulk": Entry("bulk_commands:bulk", "Cancel or retry many jobs."),
        "pause": Entry("pause_commands:pause", "Pause a job, a queue or a workflow."),
        "resume": Entry("pause_commands:resume", "Let a paused one go on."),
        "pauses": Entry("pause_commands:pauses", "List what is paused, by whom and why."),
    },
    "Look after it": {
        "top": Entry("top_command:top", "Watch jobs, queues and workers, live."),
        "db": Entry("backup_commands:db", "Migrate the schema, set up its roles, back it up."),
        "schedules": Entry("schedule_commands:schedules", "Run workflows by the calendar."),
        "subscriptions": Entry("webhook_commands:subscriptions", "Who is told what happens to jobs."),
        "deliveries": Entry(
            "webhook_commands:deliveries", "What was told, what is on its way, and dead letters."
        ),
        "apps": Entry("app_commands:apps", "List the installed apps and what each adds."),
        "keys": Entry("key_commands:keys", "Keys of those who may call the API."),
        "doctor": Entry("admin_commands:doctor", "Check that everything is as it must be."),
        "config": Entry("admin_commands:config", "Show every setting and where its value comes from."),
        "schema": Entry("admin_commands:schema", "Print the JSON Schema of workflow files."),
    },
}

ENTRIES = {name: entry for section in COMMANDS.values() for name, entry in section.items()}
APPS = "Apps"  # the title of their commands


def _app_commands() -> dict[str, Command]:
    """The commands of the installed apps. An app that cannot be loaded has none here: other commands name it."""
    with suppress(UsageError):
        return {name: entry for name, entry in app_commands(installed_apps()).items() if name not in ENTRIES}
    return {}


class LazyGroup(click.Group):
    """Commands by name, from the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*ENTRIES, *_app_commands()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in ENTRIES:
            return _load(ENTRIES[cmd_name].place)
        of_apps = _app_commands()
        if cmd_name in of_apps:
            command: click.Command = load_object(of_apps[cmd_name].place)
            return command
        if close := get_close_matches(cmd_name, [*ENTRIES, *of_apps], n=1):
            raise click.UsageError(f"There is no command {cmd_name!r}; did you mean {close[0]!r}?", ctx)
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, Mapping[str, Entry | Command]] = {**COMMANDS, APPS: _app_commands()}
        for title, section in sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.help) for name, entry in section.items()], col_max=14)


def _load(place: str) -> click.Command:
    module, _, attribute = place.partition(":")
    command: click.Command = getattr(importlib.import_module(f"{__name__}.commands.{module}"), attribute)
    return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="cograil", message="%(prog)s %(version)s")
def cli() -> None:
    """Durable jobs and workflows on nothing but PostgreSQL.

    \b
    Examples:
      cograil demo
      cograil init my_project
      cograil up --dev --workflows workflows --app handlers
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code. An error that a person can mend is one clear message."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    is_json = "--json" in given
    try:
        _refuse_what_is_no_text(given)
        code = cli.main(given, prog_name="cograil", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:  # whoever read us has seen enough
        _write_no_more()
        return BROKEN_PIPE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.ClickException as error:
        return _say_usage(error, is_json)
    except CograilError as error:
        return _say(error, is_json)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in UNWRITABLE and error.filename is None:
            _write_no_more()
            click.echo(f"error: the output cannot be written: {error.strerror}", err=True)
            return UNWRITTEN
        if refusal := _missing_privilege(error):
            return _say(RolesMissing(refusal), is_json)
        if _is_lost_connection(error):
            return _say(DatabaseUnavailable(f"PostgreSQL does not answer: {error}".strip()), is_json)
        return _say_bug(error, is_json)


def _refuse_what_is_no_text(given: Sequence[str]) -> None:
    """Bytes that are no UTF-8 could be passed on to nobody: not to the database, not to the terminal."""
    for word in given:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UsageError(f"the argument {os.fsencode(word)[:80]!r} is not UTF-8 text") from None


def _write_no_more() -> None:
    """Python must not try again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(error: CograilError, is_json: bool) -> int:
    if not is_json:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    facts: dict[str, Any] = {"code": error.code, "message": str(error)}
    if isinstance(error, Problems):
        facts |= {"source": error.source, "problems": [asdict(problem) for problem in error.problems]}
    _print_json(facts)
    return error.exit_code


def _say_usage(error: click.ClickException, is_json: bool) -> int:
    if is_json:
        _print_json({"code": "usage", "message": error.format_message()})
    else:
        error.show()
    return error.exit_code


def _say_bug(error: Exception, is_json: bool) -> int:
    click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    click.echo("This is a bug in cograil. Please report it with the lines above.", err=True)
    if is_json:
        _print_json({"code": "bug", "message": f"{type(error).__name__}: {error}"})
    return BUG


def _print_json(facts: dict[str, Any]) -> None:
    click.echo(json.dumps({"error": facts}))


def _missing_privilege(error: Exception) -> str | None:
    """What to do when PostgreSQL denied a right to the login; None for any other error."""
    driver = sys.modules.get("psycopg")  # loaded by commands that connect
    if driver is None or not isinstance(error, driver.errors.InsufficientPrivilege):
        return None
    return (
        f"PostgreSQL refuses this login: {str(error).strip()}; `cograil db status` shows which roles and "
        "grants are missing, `cograil db roles` sets them up"
    )


def _is_lost_connection(error: Exception) -> bool:
    driver = sys.modules.get("psycopg")  # loaded by commands that connect
    return driver is not None and isinstance(error, driver.OperationalError)
