"""Servers of the user: named profiles in a file, and the choice of this command.

A profile holds a URL and the path of a key file, never a key.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from platformdirs import user_config_path

from cograil.cli.server_options import ServerOptions
from cograil.errors import NotFound, UsageError

FILE_NAME = "profiles.toml"
SERVER_VARIABLE, KEY_VARIABLE, PROFILE_VARIABLE = "COGRAIL_SERVER_URL", "COGRAIL_API_KEY", "COGRAIL_PROFILE"
DATABASE_VARIABLES = (
    *("COGRAIL_DATA_DIR", "COGRAIL_DATABASE_URL", "COGRAIL_DATABASE__URL", "COGRAIL_CONFIG"),
)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True)
class Server:
    """A server to speak to. `options` are those that address it again: `--profile prod`."""

    url: str
    key: str = field(default="", repr=False)
    options: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """A server with a name."""

    server: str
    key_file: str | None = None


@dataclass(slots=True)
class Profiles:
    """The profiles of the user, and the one in use."""

    current: str | None = None
    by_name: dict[str, Profile] = field(default_factory=dict)

    def find(self, name: str) -> Profile:
        """Return this profile. Raises NotFound, which lists the others."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none; `cograil profiles add` adds one"
            raise NotFound(f"profile {name!r} does not exist; there are {known}")
        return self.by_name[name]


def profiles_path() -> Path:
    """Return the path of the profiles file."""
    return user_config_path("cograil") / FILE_NAME


def load_profiles() -> Profiles:
    """Return the profiles in the file; none if it does not exist. Raises UsageError for a damaged file."""
    path = profiles_path()
    try:
        document = tomllib.loads(path.read_text("utf-8"))
        profiles = {
            name: Profile(str(fields["server"]), fields.get("key_file"))
            for name, fields in document.get("profiles", {}).items()
        }
    except FileNotFoundError:
        return Profiles()
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise UsageError(f"{path} cannot be read: {error}; correct or delete it") from error
    return Profiles(document.get("current"), profiles)


def save_profiles(profiles: Profiles) -> None:
    """Replace the profiles file; only the user can read it."""
    path = profiles_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f"{FILE_NAME}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write("".join(_lines(profiles)))
    temporary.replace(path)


def _lines(profiles: Profiles) -> list[str]:
    lines = [] if profiles.current is None else [f"current = {json.dumps(profiles.current)}\n"]
    for name, profile in sorted(profiles.by_name.items()):
        lines += [f"\n[profiles.{name}]\n", f"server = {json.dumps(profile.server)}\n"]
        if profile.key_file is not None:
            lines.append(f"key_file = {json.dumps(profile.key_file)}\n")
    return lines


def check_name(name: str) -> None:
    """Raise UsageError for text that cannot name a profile."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name a profile; use up to 63 letters, digits, - and _, a letter or digit first"
        )


def check_url(url: str) -> str:
    """Return the URL without a trailing slash. Raises UsageError unless it is http:// or https:// and a host."""
    try:
        parts = urlsplit(url)
        is_server = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_server = False
    if not is_server or parts.username or parts.query or parts.fragment:
        raise UsageError(f"{url!r} is not the URL of a server such as https://cograil.example.org")
    return url.rstrip("/")


def choose_server(
    options: ServerOptions, *, has_database_option: bool, environ: Mapping[str, str] = os.environ
) -> Server | None:
    """Return the server that this command speaks to, or None for the database.

    The first of these decides: --server or --profile, --data-dir, COGRAIL_SERVER_URL, COGRAIL_PROFILE, a variable
    that names a database or a data directory, the profile in use. Raises UsageError when options contradict each
    other.
    """
    if options.server is not None and options.profile is not None:
        raise UsageError("use --server or --profile, not both")
    if options.is_explicit and has_database_option:
        raise UsageError(
            "--data-dir and --config are for an instance on this machine; use them without --server and --profile"
        )
    if options.server is not None:
        return _by_url(options.server, options.key_file, environ)
    if options.profile is not None:
        return _by_profile(options.profile, options.key_file, environ)
    if has_database_option:
        return None
    if url := environ.get(SERVER_VARIABLE):
        return _by_url(url, options.key_file, environ)
    name = environ.get(PROFILE_VARIABLE)
    if not name and not any(environ.get(variable) for variable in DATABASE_VARIABLES):
        name = load_profiles().current
    return _by_profile(name, options.key_file, environ) if name else None


def _by_url(url: str, key_file: Path | None, environ: Mapping[str, str]) -> Server:
    key = environ.get(KEY_VARIABLE, "").strip() if key_file is None else read_key(key_file)
    return Server(check_url(url), key, f"--server {shlex.quote(url)}")


def _by_profile(name: str, key_file: Path | None, environ: Mapping[str, str]) -> Server:
    profile = load_profiles().find(name)
    if key_file is None and profile.key_file is not None:
        key_file = Path(profile.key_file)
    key = environ.get(KEY_VARIABLE, "").strip() if key_file is None else read_key(key_file)
    return Server(check_url(profile.server), key, f"--profile {shlex.quote(name)}")


def read_key(file: Path) -> str:
    """Return the API key in this file. Raises UsageError when it has none, or more than one line."""
    try:
        key = file.expanduser().read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"the key file {file} cannot be read: {reason}") from error
    if not key or not key.isascii() or any(character.isspace() for character in key):
        raise UsageError(f"the key file {file} does not contain one API key")
    return key
