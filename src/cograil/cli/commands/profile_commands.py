"""Commands for server profiles: profiles add, list, use, remove."""

from __future__ import annotations

from pathlib import Path

import click

from cograil.cli.backends.server_profiles import (
    Profile,
    Profiles,
    check_name,
    check_url,
    load_profiles,
    profiles_path,
    read_key,
    save_profiles,
)
from cograil.cli.display.output import out, plain, render, table
from cograil.cli.options import json_option

DATABASE = "-"  # stands for no profile


@click.group()
def profiles() -> None:
    """Manage the servers that commands use, by name.

    They are stored in profiles.toml in the configuration directory of the user, ~/.config/cograil on Linux. A
    profile holds the URL of a server and the path of a key file, never a key.

    \b
    Examples:
      cograil profiles add prod --server https://cograil.example.org --key-file ~/.config/cograil/prod.key
      cograil profiles use prod
      cograil jobs --status failed
      cograil profiles list
    """


@profiles.command("add")
@click.argument("name")
@click.option("--server", "url", metavar="URL", required=True, help="URL of the server.")
@click.option(
    "--key-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File with the API key; it is read by each command. Default: COGRAIL_API_KEY.",
)
@json_option
def add(name: str, url: str, key_file: Path | None, as_json: bool) -> None:
    """Add the profile NAME, or replace it. It is not used until `cograil profiles use`.

    \b
    Examples:
      cograil profiles add prod --server https://cograil.example.org --key-file ~/.config/cograil/prod.key
    """
    check_name(name)
    server = check_url(url)
    if key_file is not None:
        key_file = key_file.expanduser().absolute()
        read_key(key_file)
    stored = load_profiles()
    stored.by_name[name] = Profile(server, None if key_file is None else str(key_file))
    save_profiles(stored)
    render(_view(stored, name), f"profile {name} is {server}", as_json)


@profiles.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the profiles, and which one is in use.

    \b
    Examples:
      cograil profiles list
      cograil profiles list --json
    """
    stored = load_profiles()
    value = {
        "file": str(profiles_path()),
        "profiles": [_view(stored, name) for name in sorted(stored.by_name)],
    }
    render(value, lambda: _show(stored), as_json)


def _view(stored: Profiles, name: str) -> dict[str, str | bool | None]:
    profile = stored.by_name[name]
    return {
        "name": name,
        "server": profile.server,
        "key_file": profile.key_file,
        "is_in_use": stored.current == name,
    }


def _show(stored: Profiles) -> None:
    rows = table("profile", "server", "key file", "")
    for name, profile in sorted(stored.by_name.items()):
        note = "in use" if stored.current == name else ""
        rows.add_row(plain(name), plain(profile.server), plain(profile.key_file or "none"), note)
    out().print(rows if stored.by_name else "no profiles")


@profiles.command("use")
@click.argument("name")
@json_option
def use(name: str, as_json: bool) -> None:
    """Use the server of profile NAME from now on; `-` goes back to the instance on this machine.

    --server, --profile, --data-dir, --config and the variables for these take precedence.

    \b
    Examples:
      cograil profiles use prod
      cograil profiles use -
    """
    stored = load_profiles()
    if name == DATABASE:
        stored.current = None
    else:
        stored.find(name)
        stored.current = name
    save_profiles(stored)
    message = (
        "commands use the instance on this machine"
        if stored.current is None
        else f"commands use {stored.find(name).server}"
    )
    render({"current": stored.current}, message, as_json)


@profiles.command("remove")
@click.argument("name")
@json_option
def remove(name: str, as_json: bool) -> None:
    """Remove the profile NAME. Its key file stays.

    \b
    Examples:
      cograil profiles remove prod
    """
    stored = load_profiles()
    stored.find(name)
    del stored.by_name[name]
    if stored.current == name:
        stored.current = None
    save_profiles(stored)
    render({"name": name, "is_removed": True}, f"profile {name} is removed", as_json)
