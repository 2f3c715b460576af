"""Commands that run until they are told to stop: up, orchestrator, worker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cograil.settings import load_settings

Command = TypeVar("Command", bound=Callable[..., Any])


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """These options, in this order in the help."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


place = _options(
    click.option("--data-dir", type=click.Path(path_type=Path), help="Where the data is. [COGRAIL_DATA_DIR]"),
)
logging = _options(
    click.option(
        "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="What to log."
    ),
    click.option("--json", "is_json", is_flag=True, help="Log JSON lines, also on a terminal."),
)
handlers = _options(
    click.option(
        "--app", "apps", multiple=True, metavar="MODULE", help="Import this module for its handlers."
    ),
    click.option(
        "--queue", "queues", multiple=True, metavar="NAME", help="Serve this queue only (repeatable)."
    ),
    click.option("--concurrency", type=int, help="How many coroutines to run at a time."),
)
health = _options(
    click.option(
        "--health-port", type=click.IntRange(0, 65535), help="Serve /livez and /readyz on this port."
    ),
)


@click.command()
@_options(
    click.option("--host", help="The address to listen on. [127.0.0.1]"),
    click.option("--port", type=click.IntRange(0, 65535), help="The port; 0 for any free one. [8080]"),
)
@place
@click.option(
    "--workflows", type=click.Path(path_type=Path), help="Publish the workflow files in this directory."
)
@handlers
@logging
def up(
    host: str | None,
    port: int | None,
    workflows: Path | None,
    apps: tuple[str, ...],
    **flags: Any,
) -> None:
    """Run everything: PostgreSQL, an orchestrator, a worker and the probes.

    Stops on Ctrl-C or SIGTERM: running tasks get their time, then they are handed back. With
    COGRAIL_DATABASE_URL that PostgreSQL is used, and none is started.

    \b
    Examples:
      cograil up
      cograil up --workflows flows --app my_handlers
      cograil up --data-dir ./data --port 8081 --queue heavy
    """
    from cograil.processes.up import up as run  # noqa: PLC0415  help must be quick

    run(_settings(flags, host=host, port=port), apps, workflows)


@click.command()
@place
@health
@logging
def orchestrator(health_port: int | None, **flags: Any) -> None:
    """Run one more orchestrator, on COGRAIL_DATABASE_URL or on the instance of the data directory.

    \b
    Examples:
      COGRAIL_DATABASE_URL=postgresql://... cograil orchestrator --health-port 8081
      cograil orchestrator --data-dir ./data
    """
    from cograil.processes.parts import orchestrator as run  # noqa: PLC0415

    run(_settings(flags), health_port)


@click.command()
@handlers
@place
@health
@logging
def worker(apps: tuple[str, ...], health_port: int | None, **flags: Any) -> None:
    """Run one more worker, on COGRAIL_DATABASE_URL or on the instance of the data directory.

    \b
    Examples:
      cograil worker --app my_handlers
      cograil worker --app my_handlers --queue heavy --queue light --concurrency 20
    """
    from cograil.processes.parts import worker as run  # noqa: PLC0415

    run(_settings(flags), apps, health_port)


def _settings(flags: dict[str, Any], **more: Any) -> Any:
    """The settings, with the flags that were given."""
    return load_settings(
        {
            "data_dir": flags["data_dir"],
            "log.level": flags["log_level"],
            "log.format": "json" if flags["is_json"] else None,
            "queues.names": flags.get("queues") or None,
            "worker.concurrency": flags.get("concurrency"),
            **more,
        }
    )
