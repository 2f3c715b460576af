"""The command line: `cograil COMMAND`.

A command is imported when it is used, so `COMMANDS` maps names to a help line and the `module:attribute` of
the command. A command parses its arguments, opens a transaction, calls a verb and shows the result; it makes no
decision about jobs. Results go to standard output, messages to standard error. A command returns its exit
code, or None for 0.

Only `main` turns errors into messages and exit codes.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from difflib import get_close_matches
from typing import Any, NamedTuple

import click

from cograil.app_registry import Command, app_commands, installed_apps, load_object
from cograil.cli.server_options import given_server_options, server_options
from cograil.errors import (
    CograilError,
    DatabaseUnavailable,
    Problems,
    RolesMissing,
    SchemaMismatch,
    UsageError,
)

INTERRUPTED, BROKEN_PIPE, BUG, OUTPUT_FAILED = 130, 141, 70, 74
SERVER_OPTIONS = frozenset({"--server", "--profile", "--api-key-file"})
DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


class Entry(NamedTuple):
    """The location of a command and its line in the help; `is_local` if no server can do it."""

    location: str
    help: str
    is_local: bool = False


COMMANDS: dict[str, dict[str, Entry]] = {
    "Run": {
        "up": Entry(
            "server_commands:up", "Run everything: database, orchestrator, worker, API.", is_local=True
        ),
        "server": Entry("server_commands:server", "Run an additional API server.", is_local=True),
        "gateway": Entry("server_commands:gateway", "Run a gateway for external clients.", is_local=True),
        "orchestrator": Entry(
            "server_commands:orchestrator", "Run an additional orchestrator.", is_local=True
        ),
        "worker": Entry("server_commands:worker", "Run an additional worker.", is_local=True),
        "relay": Entry(
            "server_commands:relay", "Run an additional relay, which delivers events.", is_local=True
        ),
        "run": Entry(
            "run_command:run", "Run a workflow file to its end and show its progress.", is_local=True
        ),
        "init": Entry("init_command:init", "Create a project: a handler, a workflow, a test.", is_local=True),
        "demo": Entry(
            "demo_command:demo", "Run a demo job with retries, a condition and a fan-out.", is_local=True
        ),
    },
    "Workflows and jobs": {
        "check": Entry("workflow_file_commands:check", "Check workflow files for mistakes."),
        "publish": Entry("workflow_file_commands:publish", "Publish workflow files."),
        "workflows": Entry("inspect_commands:workflows", "List published workflows."),
        "submit": Entry("job_commands:submit", "Submit a job of a published workflow."),
        "jobs": Entry("inspect_commands:jobs", "List jobs."),
        "show": Entry("inspect_commands:show", "Show a job and its nodes."),
        "events": Entry("inspect_commands:events", "Show or follow the events of a job."),
        "logs": Entry("log_command:logs", "Show the log lines of a job."),
        "explain": Entry("inspect_commands:explain", "Explain why a job does not progress."),
        "cancel": Entry("job_commands:cancel", "Cancel a job."),
        "approve": Entry("approval_commands:approve", "Approve a waiting approval."),
        "reject": Entry("approval_commands:reject", "Reject a waiting approval."),
        "signal": Entry("approval_commands:signal", "Send a signal to a job."),
        "retry": Entry("job_commands:retry", "Run the failed nodes of a job again."),
        "bulk": Entry("bulk_commands:bulk", "Cancel or retry many jobs."),
        "pause": Entry("pause_commands:pause", "Pause a job, a queue or a workflow."),
        "resume": Entry("pause_commands:resume", "Resume a paused job, queue or workflow."),
        "pauses": Entry("pause_commands:pauses", "List paused jobs, queues and workflows."),
    },
    "Operations": {
        "top": Entry("top_command:top", "Show a live overview of jobs, queues and workers."),
        "db": Entry("backup_commands:db", "Migrate, back up and inspect the database.", is_local=True),
        "schedules": Entry("schedule_commands:schedules", "Manage cron schedules of workflows."),
        "subscriptions": Entry("webhook_commands:subscriptions", "Manage webhook subscriptions."),
        "deliveries": Entry(
            "webhook_commands:deliveries", "List event deliveries and dead letters; resend them."
        ),
        "keys": Entry("key_commands:keys", "Manage API keys."),
        "profiles": Entry("profile_commands:profiles", "Manage servers that commands use, by name."),
        "doctor": Entry("admin_commands:doctor", "Check the health of an instance."),
        "config": Entry(
            "admin_commands:config", "Show every setting with its value and origin.", is_local=True
        ),
        "apps": Entry("app_commands:apps", "List the installed apps and what each adds.", is_local=True),
        "schema": Entry("admin_commands:schema", "Print the JSON Schema of workflow files."),
    },
}

ENTRIES = {name: entry for section in COMMANDS.values() for name, entry in section.items()}


APPS = "Apps"  # the title of their commands


def _app_commands() -> dict[str, Command]:
    """Return the commands of the installed apps; none when an app cannot be loaded, which other commands report."""
    with suppress(UsageError):
        return {name: entry for name, entry in app_commands(installed_apps()).items() if name not in ENTRIES}
    return {}


class LazyGroup(click.Group):
    """Imports commands by name, from the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*ENTRIES, *_app_commands()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in ENTRIES:
            return _load(ENTRIES[cmd_name].location)
        entries = _app_commands()
        if cmd_name in entries:
            command: click.Command = load_object(entries[cmd_name].place)
            return command
        if close := get_close_matches(cmd_name, [*ENTRIES, *entries], n=1):
            raise click.UsageError(f"No such command {cmd_name!r}; did you mean {close[0]!r}?", ctx)
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, Mapping[str, Entry | Command]] = {**COMMANDS, APPS: _app_commands()}
        for title, section in sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.help) for name, entry in section.items()], col_max=14)


def _load(location: str) -> click.Command:
    module, _, attribute = location.partition(":")
    command: click.Command = getattr(importlib.import_module(f"{__name__}.commands.{module}"), attribute)
    return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="cograil", message="%(prog)s %(version)s")
@server_options
@click.pass_context
def cli(context: click.Context) -> None:
    """Durable jobs and workflows on nothing but PostgreSQL.

    \b
    Examples:
      cograil demo
      cograil init my_project
      cograil up --dev --workflows workflows --app handlers
      cograil --server https://cograil.example.org jobs
    """
    name = context.invoked_subcommand or ""
    if given_server_options().is_explicit and _is_local(name):
        raise UsageError(needs_machine(name))


def _is_local(name: str) -> bool:
    """Return whether a command needs this machine or the database; those of apps do."""
    return name not in ENTRIES or ENTRIES[name].is_local


def needs_machine(name: str) -> str:
    """Return the message for a command that no server can do."""
    return (
        f"`cograil {name}` runs on this machine or on its database and not through a server; use it without "
        "--server and --profile"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. A CograilError is printed as one message."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    is_json = "--json" in arguments
    try:
        _require_utf8(arguments)
        code = cli.main(arguments, prog_name="cograil", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:  # the reader closed the pipe
        _discard_stdout()
        return BROKEN_PIPE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.ClickException as error:
        return _report_usage(error, is_json)
    except CograilError as error:
        return _report(error, is_json)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in DISK_ERRORS and error.filename is None:
            _discard_stdout()
            click.echo(f"error: the output cannot be written: {error.strerror}", err=True)
            return OUTPUT_FAILED
        if message := _missing_privilege(error):
            return _report(RolesMissing(message), is_json)
        if message := _missing_app(error):
            return _report(SchemaMismatch(message), is_json)
        if _is_lost_connection(error):
            return _report(DatabaseUnavailable(f"PostgreSQL does not answer: {error}".strip()), is_json)
        return _report_bug(error, is_json)


def _path_of(context: click.Context) -> str:
    """Return the name of the command without that of the program: `db migrate`."""
    return context.command_path.partition(" ")[2]


def _require_utf8(arguments: Sequence[str]) -> None:
    """Raise UsageError for bytes that are not UTF-8: neither the database nor the terminal accepts them."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UsageError(f"the argument {os.fsencode(argument)[:80]!r} is not UTF-8 text") from None


def _discard_stdout() -> None:
    """Redirect stdout to /dev/null, so that Python does not write to it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(error: CograilError, is_json: bool) -> int:
    if not is_json:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    fields: dict[str, Any] = {"code": error.code, "message": str(error)}
    if isinstance(error, Problems):
        fields |= {"source": error.source, "problems": [asdict(problem) for problem in error.problems]}
    _print_json(fields)
    return error.exit_code


def _report_usage(error: click.ClickException, is_json: bool) -> int:
    if (
        isinstance(error, click.NoSuchOption)
        and error.option_name in SERVER_OPTIONS
        and error.ctx is not None
    ):
        return _report(UsageError(needs_machine(_path_of(error.ctx))), is_json)
    if is_json:
        _print_json({"code": "usage", "message": error.format_message()})
    else:
        error.show()
    return error.exit_code


def _report_bug(error: Exception, is_json: bool) -> int:
    click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    click.echo("This is a bug in cograil. Please report it with the lines above.", err=True)
    if is_json:
        _print_json({"code": "bug", "message": f"{type(error).__name__}: {error}"})
    return BUG


def _print_json(fields: dict[str, Any]) -> None:
    click.echo(json.dumps({"error": fields}))


def _missing_privilege(error: Exception) -> str | None:
    """Return a message when PostgreSQL denied a privilege; None for any other error."""
    driver = sys.modules.get("psycopg")  # loaded by commands that connect
    if driver is None or not isinstance(error, driver.errors.InsufficientPrivilege):
        return None
    return (
        f"PostgreSQL denied a privilege: {str(error).strip()}; `cograil db status` shows which roles and "
        "grants are missing, `cograil db roles` sets them up"
    )


def _missing_app(error: Exception) -> str | None:
    """Return a message when the tables of an app do not exist; None for any other error."""
    driver = sys.modules.get("psycopg")  # loaded by commands that connect
    if driver is None or not isinstance(error, driver.errors.UndefinedTable):
        return None
    match = re.search(r'"(?:cograil_(\w+)|vault_secure)\.', str(error))
    if match is None:
        return None
    app = match[1] or "captures"
    return (
        f"the database has no tables of the app {app!r}: start `cograil up` with --apps containers,{app}, or run "
        f"`cograil db migrate` with COGRAIL_APPS=containers,{app}"
    )


def _is_lost_connection(error: Exception) -> bool:
    driver = sys.modules.get("psycopg")  # loaded by commands that connect
    return driver is not None and isinstance(error, driver.OperationalError)
