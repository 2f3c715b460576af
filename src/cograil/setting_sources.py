"""Sources of settings: environment variables and the settings file.

Each source maps flat names ("lease.seconds") to a value and its origin. A variable or key that is not a setting
is an error; the message suggests the closest name.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from cograil.errors import InvalidSettings

PREFIX = "COGRAIL_"

# Short names, accepted besides the regular ones such as COGRAIL_DATABASE__URL.
SHORT_NAMES = {
    "database.url": "COGRAIL_DATABASE_URL",
    "server.key_file": "API_KEY_FILE",
}

# Names that other programs use too. Only `cograil gateway` and `cograil documents ...` read them, or every
# command with COGRAIL_COMPAT=1.
BARE_NAMES = {
    "gateway.database_url": "DATABASE_URL",
    "gateway.api_url": "ORCHESTRATOR_URL",
    "gateway.worker_url": "WORKER_URL",
}

FILE_NAME = "cograil.toml"
CONFIG_VARIABLE = "COGRAIL_CONFIG"
COMPAT_VARIABLE = "COGRAIL_COMPAT"
MAX_LISTED = 12

# Variables that are not settings: clients, examples and tests read them.
OTHER_VARIABLES = frozenset(
    {
        CONFIG_VARIABLE,
        COMPAT_VARIABLE,
        "COGRAIL_API_KEY",
        "COGRAIL_KEY",
        "COGRAIL_PROFILE",
        "COGRAIL_SERVER_URL",
        "COGRAIL_URL",
        "COGRAIL_FAULT",
        "COGRAIL_FAULT_LOG",
        "COGRAIL_TESTING",
        "COGRAIL_TEST_PG",
        "COGRAIL_SEEDS",
        "COGRAIL_FIRST_SEED",
        "COGRAIL_EXAMPLES",
    }
)

# Variables of earlier versions, and what to use instead.
REMOVED = {
    f"COGRAIL_{name}__ENABLED": "; COGRAIL_APPS names the apps to run, separated by commas"
    for name in ("CAPTURES", "COMPANIES", "CONTAINERS")
}

# Kubernetes sets these in every container when a Service is named cograil or cograil-something.
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT)(_\w+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_\w+)?$")
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")

_HEADER = re.compile(r"\s*\[\s*([\w.\s-]+?)\s*\]\s*(#.*)?$")
_KEY = re.compile(r"\s*([\w.\s\"'-]+?)\s*=")


def variable_of(name: str) -> str:
    """Return the variable of a setting: COGRAIL_LEASE__SECONDS for lease.seconds."""
    return SHORT_NAMES.get(name) or regular_variable(name)


def regular_variable(name: str) -> str:
    """Return the variable of a setting without regard to short names."""
    return PREFIX + name.replace(".", "__").upper()


class SourcedValue(NamedTuple):
    """A value and its origin."""

    value: Any
    origin: str


def read_environment(
    names: Iterable[str], bare_sections: Collection[str] = (), bare_names: Mapping[str, str] = BARE_NAMES
) -> dict[str, SourcedValue]:
    """Return the settings from environment variables. An empty variable counts as unset, as in compose files.

    The bare names of `bare_sections` ("documents", "gateway") are read too, or those of all sections with
    COGRAIL_COMPAT=1. Raises InvalidSettings when two variables give one setting different values.
    """
    values: dict[str, SourcedValue] = {}
    for name in names:
        variables = {
            variable: os.environ[variable]
            for variable in _variables_of(name, bare_sections, bare_names)
            if os.environ.get(variable) and not _is_service_link(variable, os.environ[variable])
        }
        if len(set(variables.values())) > 1:
            first, second, *_ = variables
            raise InvalidSettings(
                f"{first} and {second} are the same setting and have different values; set only one of them"
            )
        for variable, text in variables.items():
            values.setdefault(name, SourcedValue(text, f"environment {variable}"))
    return values


def _variables_of(name: str, bare_sections: Collection[str], bare_names: Mapping[str, str]) -> list[str]:
    variables = [SHORT_NAMES[name]] if name in SHORT_NAMES else []
    is_compatible = name.partition(".")[0] in bare_sections or is_compat_mode()
    if name in bare_names and is_compatible:
        variables.append(bare_names[name])
    return [*variables, regular_variable(name)]


def is_compat_mode() -> bool:
    """Return whether COGRAIL_COMPAT enables the bare names (DATA_DIR, DATABASE_URL, ...) for every command."""
    return os.environ.get(COMPAT_VARIABLE, "").lower() in ("1", "true", "yes", "on")


def unknown_variables(environ: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """Return a message for each COGRAIL_ variable that is not a setting, with the name that was probably meant."""
    names = list(names)
    known = {regular_variable(name) for name in names} | {*SHORT_NAMES.values(), *OTHER_VARIABLES}
    problems = (
        _problem_of(variable, names, known)
        for variable, text in sorted(environ.items())
        if variable.upper().startswith(PREFIX)
        and variable not in known
        and not _is_service_link(variable.upper(), text)
    )
    return [problem for problem in problems if problem is not None]


def _problem_of(variable: str, names: Collection[str], known: Collection[str]) -> str | None:
    """Return what is wrong with this variable; None for a lower-case name that resembles no setting."""
    capitals = variable.upper()
    if variable != capitals and capitals in known:
        return f"{variable} is not read: variables are written in capitals; set {capitals}"
    section = capitals.removeprefix(PREFIX).rstrip("_").lower()
    if settings := _settings_of(section, names):
        return f"{variable} is a section and not a setting; its settings are {_listed(settings)}"
    suggestion = REMOVED.get(capitals) or _suggestion(capitals, known)
    if not variable.startswith(PREFIX) and not suggestion:
        return None
    return f"{variable} is not a setting{suggestion}"


def _settings_of(section: str, names: Iterable[str]) -> list[str]:
    """Return the variables of the settings of this section; none if the section does not exist."""
    return [regular_variable(name) for name in names if name.startswith(f"{section}.")]


def _listed(names: Collection[str]) -> str:
    listed_names = ", ".join(islice(names, MAX_LISTED))
    left = len(names) - MAX_LISTED
    return f"{listed_names} and {left} more (`cograil config` lists them)" if left > 0 else listed_names


def _is_service_link(variable: str, text: str) -> bool:
    return bool(_SERVICE_LINK.search(variable) or _SERVICE_ADDRESS.match(text))


def find_file(config: Path | None = None) -> Path | None:
    """Return the settings file: `config`, that of COGRAIL_CONFIG, or cograil.toml in the working directory.

    Returns None when there is none. Raises InvalidSettings when the named file does not exist.
    """
    named = config or (Path(text) if (text := os.environ.get(CONFIG_VARIABLE)) else None)
    if named is None:
        return Path(FILE_NAME) if Path(FILE_NAME).is_file() else None
    if not named.is_file():
        raise InvalidSettings(
            f"the settings file {named} (from --config or {CONFIG_VARIABLE}) does not exist"
        )
    return named


def read_file(path: Path, names: Collection[str], path_names: Collection[str]) -> dict[str, SourcedValue]:
    """Return the settings in this TOML file. Relative paths (`path_names`) are relative to the file.

    Raises InvalidSettings for a file that is not TOML, or with one line per key that is not a setting.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidSettings(f"{path} cannot be read: {error}") from error
    lines = _find_lines(text)
    values, problems = {}, []
    for name, value in _flatten(document, names):
        location = f"{path}:{lines[name]}" if name in lines else str(path)
        if name not in names:
            problems.append(f"{location}: {_problem_in_file(name, names)}")
            continue
        is_path = name in path_names and isinstance(value, str)
        path_or_value = str(path.parent / Path(value).expanduser()) if is_path else value
        values[name] = SourcedValue(path_or_value, f"file {location}")
    if problems:
        raise InvalidSettings("\n".join(problems))
    return values


def _problem_in_file(name: str, names: Collection[str]) -> str:
    if settings := [candidate for candidate in names if candidate.startswith(f"{name}.")]:
        return f"{name} is a section and not a setting; its settings are {_listed(settings)}"
    return f"{name} is not a setting{_suggestion(name, names, 0.7)}"


def _flatten(tree: Mapping[str, Any], names: Collection[str], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in tree.items():
        name = prefix + key
        if isinstance(value, dict) and name not in names:
            yield from _flatten(value, names, f"{name}.") if value else ()
        else:
            yield name, value


def _find_lines(text: str) -> dict[str, int]:
    """Find the line number of each key by its text, because tomllib does not report positions."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = header[1].replace(" ", "") + "."
        elif key := _KEY.match(line):
            lines.setdefault(table + re.sub(r"[\s\"']", "", key[1]), number)
    return lines


def _suggestion(name: str, known: Iterable[str], cutoff: float = 0.8) -> str:
    close = get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {close[0]}?" if close else ""
