"""Commands that run until they are stopped: up, server, orchestrator, worker, relay, gateway."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cograil.cli.options import config_option, read_settings

Command = TypeVar("Command", bound=Callable[..., Any])


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Combine these options; the help lists them in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


instance = _options(
    click.option("--data-dir", type=click.Path(path_type=Path), help="Data directory. [COGRAIL_DATA_DIR]"),
    config_option,
)
logging = _options(
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        help="Minimum level that is logged.",
    ),
    click.option("--json", "is_json", is_flag=True, help="Log JSON lines, also on a terminal."),
)
handlers = _options(
    click.option(
        "--app", "apps", multiple=True, metavar="MODULE", help="Python module with handlers; repeatable."
    ),
    click.option(
        "--queue", "queues", multiple=True, metavar="NAME", help="Serve only this queue; repeatable."
    ),
    click.option("--concurrency", type=int, help="Maximum number of concurrent coroutine handlers."),
)
enabled_apps = _options(
    click.option(
        "--apps",
        "enabled",
        metavar="NAMES",
        help="The apps to run, separated by commas; `cograil apps` lists them. [COGRAIL_APPS]",
    ),
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
    click.option("--host", help="Address to listen on. [127.0.0.1]"),
    click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 for any free port. [8080]"),
    click.option("--gateway-port", type=click.IntRange(0, 65535), help="Also run a gateway on this port."),
)
@instance
@click.option(
    "--workflows", type=click.Path(path_type=Path), help="Publish the workflow files in this directory."
)
@click.option("--dev", "is_dev", is_flag=True, help="Publish edited workflow files again; implies --reload.")
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

    Stops on Ctrl-C or SIGTERM: running tasks get a grace period, then they are released. With
    COGRAIL_DATABASE_URL that PostgreSQL server is used, and none is started.

    With --reload the worker is restarted when a module that it has imported is edited; its running tasks are
    released without counting the attempt. With --dev, edited workflow files are also published again under
    their version; existing jobs keep their definition.

    \b
    Examples:
      cograil up
      cograil up --dev --workflows flows --app my_handlers
      cograil up --workflows flows --app my_handlers
      cograil up --apps containers,companies
      cograil up --data-dir ./data --port 8081 --queue heavy
    """
    from cograil.processes.up import Development  # noqa: PLC0415  keeps --help fast
    from cograil.processes.up import up as run  # noqa: PLC0415

    development = Development(is_dev, is_reloading or is_dev)
    settings = _settings(flags, host=host, port=port)
    run(settings, apps, workflows, gateway_port, development=development)


@click.command()
@_options(
    click.option("--host", help="Address to listen on. [127.0.0.1]"),
    click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 for any free port. [8080]"),
)
@instance
@enabled_apps
@access_log
@logging
def server(host: str | None, port: int | None, **flags: Any) -> None:
    """Run an additional API server, on COGRAIL_DATABASE_URL or on the instance of the data directory.

    An address other than loopback requires an API key: see `cograil keys create`.

    \b
    Examples:
      COGRAIL_DATABASE_URL=postgresql://... cograil server --host 0.0.0.0
      cograil server --data-dir ./data --port 8082
    """
    from cograil.processes.api_server import server as run  # noqa: PLC0415

    run(_settings(flags, host=host, port=port))


@click.command()
@instance
@health
@logging
def orchestrator(health_port: int | None, **flags: Any) -> None:
    """Run an additional orchestrator, on COGRAIL_DATABASE_URL or on the instance of the data directory.

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
@instance
@health
@logging
def worker(apps: tuple[str, ...], health_port: int | None, **flags: Any) -> None:
    """Run an additional worker, on COGRAIL_DATABASE_URL or on the instance of the data directory.

    \b
    Examples:
      cograil worker --app my_handlers
      cograil worker --app my_handlers --queue heavy --queue light --concurrency 20
    """
    from cograil.processes.standalone import worker as run  # noqa: PLC0415

    run(_settings(flags), apps, health_port)


@click.command()
@instance
@health
@logging
def relay(health_port: int | None, **flags: Any) -> None:
    """Run an additional relay, which delivers events to callbacks and subscriptions.

    `cograil up` includes one. Any number can run, on COGRAIL_DATABASE_URL or on the instance of the data
    directory; when a relay dies, another sends its pending deliveries.

    \b
    Examples:
      COGRAIL_DATABASE_URL=postgresql://... cograil relay --health-port 8083
      cograil relay --data-dir ./data
    """
    from cograil.processes.standalone import relay as run  # noqa: PLC0415

    run(_settings(flags), health_port)


@click.command()
@_options(
    click.option("--host", help="Address to listen on. [127.0.0.1]"),
    click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 for any free port. [8081]"),
)
@instance
@logging
def gateway(host: str | None, port: int | None, **flags: Any) -> None:
    """Run a gateway for external clients: it reads the database and forwards writes to the API.

    Set DATABASE_URL and ORCHESTRATOR_URL to locate them; the default is the instance of the data directory.
    The gateway starts without them, and serves only its probes until both are available.

    \b
    Examples:
      DATABASE_URL=postgresql://... ORCHESTRATOR_URL=http://api:8080 cograil gateway --host 0.0.0.0
      cograil gateway --data-dir ./data --port 8081
    """
    from cograil.processes.gateway_server import gateway as run  # noqa: PLC0415

    run(_settings(flags, ("gateway",), host=host, **{"gateway.port": port}))


def _settings(flags: dict[str, Any], bare_sections: tuple[str, ...] = (), **more: Any) -> Any:
    """Load the settings with these flags."""
    return read_settings(
        {
            "data_dir": flags["data_dir"],
            "log.level": flags["log_level"],
            "log.format": "json" if flags["is_json"] else None,
            "queues.names": flags.get("queues") or None,
            "worker.concurrency": flags.get("concurrency"),
            "apps": flags.get("enabled"),
            "server.access_log": flags.get("is_logging_access") or None,
            **more,
        },
        bare_sections,
    )
