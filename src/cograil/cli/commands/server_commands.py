"""Commands that run until they are told to stop: up, server, orchestrator, worker, relay, gateway."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cograil.cli.options import config_option, read_settings

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
    config_option,
)
logging = _options(
    click.option(
        "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="What to log."
    ),
    click.option("--json", "is_json", is_flag=True, help="Log JSON lines, also on a terminal."),
)
enabled_apps = _options(
    click.option(
        "--apps",
        "enabled",
        metavar="NAMES",
        help="The apps to run, separated by commas; `cograil apps` lists them. [COGRAIL_APPS]",
    ),
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
access_log = _options(
    click.option(
        "--access-log",
        "is_logging_access",
        is_flag=True,
        help="Log each request. [COGRAIL_SERVER__ACCESS_LOG]",
    ),
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
    click.option("--gateway-port", type=click.IntRange(0, 65535), help="Run a gateway on this port too."),
)
@place
@click.option(
    "--workflows", type=click.Path(path_type=Path), help="Publish the workflow files in this directory."
)
@click.option("--dev", "is_dev", is_flag=True, help="Edited files replace what is published; with --reload.")
@click.option("--reload", "is_reloading", is_flag=True, help="Restart the worker when a handler is edited.")
@handlers
@enabled_apps
@access_log
@logging
def up(
    host: str | None,
    port: int | None,
    workflows: Path | None,
    apps: tuple[str, ...],
    gateway_port: int | None,
    is_dev: bool,
    is_reloading: bool,
    **flags: Any,
) -> None:
    """Run everything: PostgreSQL, an orchestrator, a worker and the API.

    Stops on Ctrl-C or SIGTERM: running tasks get their time, then they are handed back. With
    COGRAIL_DATABASE_URL that PostgreSQL is used, and none is started.

    With --reload the worker is restarted when a module that it has imported is edited; what it runs is
    handed back and not counted. With --dev edited workflow files are published again under their version as
    well; jobs that were made before keep what they were made of.

    \b
    Examples:
      cograil up
      cograil up --dev --workflows flows --app my_handlers
      cograil up --workflows flows --app my_handlers
      cograil up --data-dir ./data --port 8081 --queue heavy
      cograil up --apps containers,companies
    """
    from cograil.processes.up import Development  # noqa: PLC0415  help must be quick
    from cograil.processes.up import up as run  # noqa: PLC0415

    development = Development(is_dev, is_reloading or is_dev)
    settings = _settings(flags, host=host, port=port)
    run(settings, apps, workflows, gateway_port, development=development)


@click.command()
@_options(
    click.option("--host", help="The address to listen on. [127.0.0.1]"),
    click.option("--port", type=click.IntRange(0, 65535), help="The port; 0 for any free one. [8080]"),
)
@place
@enabled_apps
@access_log
@logging
def server(host: str | None, port: int | None, **flags: Any) -> None:
    """Run one more server of the API, on COGRAIL_DATABASE_URL or on the instance of the data directory.

    Listens on other addresses than loopback only when there are keys: see `cograil keys create`.

    \b
    Examples:
      COGRAIL_DATABASE_URL=postgresql://... cograil server --host 0.0.0.0
      cograil server --data-dir ./data --port 8082
    """
    from cograil.processes.api_server import server as run  # noqa: PLC0415

    run(_settings(flags, host=host, port=port))


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
    from cograil.processes.standalone import orchestrator as run  # noqa: PLC0415

    run(_settings(flags), health_port)


@click.command()
@handlers
@enabled_apps
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
    from cograil.processes.standalone import worker as run  # noqa: PLC0415

    run(_settings(flags), apps, health_port)


@click.command()
@place
@health
@logging
def relay(health_port: int | None, **flags: Any) -> None:
    """Run one more relay, which delivers events to callbacks and subscriptions.

    `cograil up` has one. Any number may run, on COGRAIL_DATABASE_URL or on the instance of the data
    directory; what one had in hand when it died is sent by another.

    \b
    Examples:
      COGRAIL_DATABASE_URL=postgresql://... cograil relay --health-port 8083
      cograil relay --data-dir ./data
    """
    from cograil.processes.standalone import relay as run  # noqa: PLC0415

    run(_settings(flags), health_port)


@click.command()
@_options(
    click.option("--host", help="The address to listen on. [127.0.0.1]"),
    click.option("--port", type=click.IntRange(0, 65535), help="The port; 0 for any free one. [8081]"),
)
@place
@logging
def gateway(host: str | None, port: int | None, **flags: Any) -> None:
    """Run a gateway for callers outside: it reads the database, and sends every change to the API.

    Where they are is said by DATABASE_URL and ORCHESTRATOR_URL, else it is the instance of the data
    directory. It starts without them, and serves nothing but its probes until they are there.

    \b
    Examples:
      DATABASE_URL=postgresql://... ORCHESTRATOR_URL=http://api:8080 cograil gateway --host 0.0.0.0
      cograil gateway --data-dir ./data --port 8081
    """
    from cograil.processes.gateway_server import gateway as run  # noqa: PLC0415

    run(_settings(flags, ("gateway",), host=host, **{"gateway.port": port}))


def _settings(flags: dict[str, Any], bare_sections: tuple[str, ...] = (), **more: Any) -> Any:
    """The settings, with the flags that were given."""
    return read_settings(
        {
            "data_dir": flags["data_dir"],
            "log.level": flags["log_level"],
            "log.format": "json" if flags["is_json"] else None,
            "apps": flags.get("enabled"),
            "queues.names": flags.get("queues") or None,
            "worker.concurrency": flags.get("concurrency"),
            "server.access_log": flags.get("is_logging_access") or None,
            **more,
        },
        bare_sections,
    )
