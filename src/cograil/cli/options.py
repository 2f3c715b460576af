"""Options that many commands share, and settings from flags."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from cograil.settings import Settings, load_settings

Command = TypeVar("Command", bound=Callable[..., Any])
CONFIG_KEY, TENANT_KEY = "cograil.config", "cograil.tenant"  # of click's context


class Amount(click.FloatRange):
    """A number within its bounds; `nan` and `inf`, which are within any, are none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number of anything.", param, ctx)
        return number


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout, for programs.")

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the instance lives. Default: COGRAIL_DATA_DIR, else your data home.",
)

wait_option = click.option("--wait", is_flag=True, help="Wait for the end; the exit code tells the outcome.")

timeout_option = click.option(
    "--timeout",
    type=Amount(min=0),
    metavar="SECONDS",
    help="Wait at most this long, then exit 5. The job goes on.",
)

input_option = click.option(
    "--input",
    "-i",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="An input of the job, read by its declared type; otherwise as JSON if it is, else as text.",
)

input_file_option = click.option(
    "--input-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="A JSON object with inputs; `-` reads stdin. --input wins over it.",
)

app_option = click.option(
    "--app",
    "apps",
    multiple=True,
    metavar="MODULE",
    help="A Python module whose handlers to use; repeatable.",
)


def _keep_config(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    context.meta[CONFIG_KEY] = path


config_option = click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    expose_value=False,
    callback=_keep_config,
    help="The settings file. Default: COGRAIL_CONFIG, else cograil.toml in this directory.",
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
    help="Whose jobs and workflows.",
)


def chosen_tenant() -> str:
    """The tenant that --tenant names."""
    context = click.get_current_context(silent=True)
    return "default" if context is None else context.meta.get(TENANT_KEY, "default")


def instance_options(command: Command) -> Command:
    """--data-dir, --config and --json: for every command that talks to an instance."""
    return data_dir_option(config_option(json_option(command)))


def settings_for(data_dir: Path | None) -> Settings:
    """The settings of this command. Raises InvalidSettings."""
    return read_settings({"data_dir": data_dir})


def read_settings(flags: Mapping[str, Any] | None = None, bare_sections: Collection[str] = ()) -> Settings:
    """The settings, with the file that --config names. Raises InvalidSettings."""
    context = click.get_current_context(silent=True)
    config = None if context is None else context.meta.get(CONFIG_KEY)
    return load_settings(flags, config=config, bare_sections=bare_sections)
