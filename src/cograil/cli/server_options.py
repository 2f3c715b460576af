"""The options that choose a server, on the program and on each command that a server can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
SERVER_KEY, PROFILE_KEY, KEY_FILE_KEY = "cograil.server", "cograil.profile", "cograil.key_file"


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options --server, --profile and --api-key-file."""

    server: str | None = None
    profile: str | None = None
    key_file: Path | None = None

    @property
    def is_explicit(self) -> bool:
        """Whether an option names a server."""
        return self.server is not None or self.profile is not None


def _keep_given(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Return a callback that keeps the value of an option, if it is given: the group and the command have it."""

    def keep(context: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None:
            context.meta[name] = value

    return keep


def server_options(command: Command) -> Command:
    """Add --server, --profile and --api-key-file, for commands that a server can answer too."""
    server = click.option(
        "--server",
        metavar="URL",
        expose_value=False,
        callback=_keep_given(SERVER_KEY),
        help="Use this server instead of a database. Default: COGRAIL_SERVER_URL, else the profile in use.",
    )
    profile = click.option(
        "--profile",
        metavar="NAME",
        expose_value=False,
        callback=_keep_given(PROFILE_KEY),
        help="Use the server of this profile; see `cograil profiles`. Default: COGRAIL_PROFILE.",
    )
    key_file = click.option(
        "--api-key-file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        expose_value=False,
        callback=_keep_given(KEY_FILE_KEY),
        help="File with the API key for the server. Default: that of the profile, else COGRAIL_API_KEY.",
    )
    return server(profile(key_file(command)))


def given_server_options() -> ServerOptions:
    """Return the server options of the group and the command."""
    context = click.get_current_context(silent=True)
    meta = {} if context is None else context.meta
    return ServerOptions(meta.get(SERVER_KEY), meta.get(PROFILE_KEY), meta.get(KEY_FILE_KEY))
