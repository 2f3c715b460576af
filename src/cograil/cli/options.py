"""Shared command options, and settings from flags."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from cograil.settings import Settings, load_settings

Command = TypeVar("Command", bound=Callable[..., Any])
CONFIG_KEY, TENANT_KEY = "cograil.config", "cograil.tenant"  # keys of click's context


class Amount(click.FloatRange):
    """A finite number within bounds; click's own type accepts `nan` and `inf`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Data directory of the instance. Default: COGRAIL_DATA_DIR, else the user data directory.",
)

wait_option = click.option(
    "--wait", is_flag=True, help="Wait for the job to end; the exit code is its outcome."
)

timeout_option = click.option(
    "--timeout",
    type=Amount(min=0),
    metavar="SECONDS",
    help="Wait at most this long, then exit 5. The job continues.",
)

input_option = click.option(
    "--input",
    "-i",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="Input of the job, parsed by its declared type; without one, as JSON if valid, else as text.",
)

input_file_option = click.option(
    "--input-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="File with a JSON object of inputs; `-` reads stdin. --input overrides it.",
)

app_option = click.option(
    "--app",
    "apps",
    multiple=True,
    metavar="MODULE",
    help="Python module with handlers; repeatable.",
)


def _keep_config(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    context.meta[CONFIG_KEY] = path


config_option = click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    expose_value=False,
    callback=_keep_config,
    help="Settings file. Default: COGRAIL_CONFIG, else cograil.toml in the working directory.",
)


def _keep_tenant(context: click.Context, _: click.Parameter, tenant: str) -> None:
    context.meta[TENANT_KEY] = tenant


tenant_option = click.option(
    "--tenant",
    metavar="NAME",
    default="default",
    show_default=True,
    expose_value=False,
    callback=_keep_tenant,
    help="Tenant of the jobs and workflows.",
)


def chosen_tenant() -> str:
    """Return the tenant given by --tenant."""
    context = click.get_current_context(silent=True)
    return "default" if context is None else context.meta.get(TENANT_KEY, "default")


def instance_options(command: Command) -> Command:
    """Add --data-dir, --config and --json, for commands that connect to an instance."""
    return data_dir_option(config_option(json_option(command)))


def settings_for(data_dir: Path | None) -> Settings:
    """Load the settings of this command. Raises InvalidSettings."""
    return read_settings({"data_dir": data_dir})


def read_settings(flags: Mapping[str, Any] | None = None, bare_sections: Collection[str] = ()) -> Settings:
    """Load the settings, with the file given by --config. Raises InvalidSettings."""
    context = click.get_current_context(silent=True)
    config = None if context is None else context.meta.get(CONFIG_KEY)
    return load_settings(flags, config=config, bare_sections=bare_sections)
