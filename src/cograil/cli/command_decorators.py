"""The decorators of async commands: one for a server or a database, one for the database only."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from cograil import logs, tracing
from cograil.cli.backends.server_profiles import choose_server
from cograil.cli.backends.target import Target
from cograil.cli.options import CONFIG_KEY, settings_for
from cograil.cli.server_options import given_server_options, server_options
from cograil.processes import run_async

AsyncCommand = Callable[..., Coroutine[Any, Any, Any]]


def chosen_target(data_dir: Path | None) -> Target:
    """Return the server or the database of this command. Raises UsageError or InvalidSettings."""
    context = click.get_current_context(silent=True)
    config = None if context is None else context.meta.get(CONFIG_KEY)
    has_database_option = data_dir is not None or config is not None
    server = choose_server(given_server_options(), has_database_option=has_database_option)
    return Target(server=server) if server is not None else Target(settings_for(data_dir))


def instance_command(
    command: AsyncCommand | None = None, *, creates_jobs: bool = False
) -> Callable[..., Any]:
    """Make a coroutine function the callback of a click command that works on a server or on a database.

    Its first argument is the target; the option --data-dir and the server options are read here. Use it below
    `@instance_options`. With `creates_jobs` the spans of its jobs are exported if tracing is configured.
    """
    if command is None:
        return partial(instance_command, creates_jobs=creates_jobs)

    @wraps(command)
    def run(*, data_dir: Path | None = None, **options: Any) -> Any:
        return _run(command(chosen_target(data_dir), **options), creates_jobs=creates_jobs)

    return server_options(run)


def database_command(
    command: AsyncCommand | None = None, *, creates_jobs: bool = False
) -> Callable[..., Any]:
    """As `instance_command`, for commands that need the database; their first argument is the settings."""
    if command is None:
        return partial(database_command, creates_jobs=creates_jobs)

    @wraps(command)
    def run(*, data_dir: Path | None = None, **options: Any) -> Any:
        return _run(command(settings_for(data_dir), **options), creates_jobs=creates_jobs)

    return run


def _run(main: Coroutine[Any, Any, Any], *, creates_jobs: bool) -> Any:
    if creates_jobs and tracing.is_wanted(os.environ):
        logs.configure("warning")
    return run_async(main, "cli" if creates_jobs else None)
