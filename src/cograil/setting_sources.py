"""Where values of settings come from: the environment and a settings file.

Each source gives flat names ("lease.seconds") with a value and an origin that people can find. A variable or
a key that is not a setting is an error, with the name that was probably meant.
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
from cograil.setting_names import BARE_NAMES, PREFIX, SHORT_NAMES, regular_variable

FILE_NAME = "cograil.toml"
CONFIG_VARIABLE = "COGRAIL_CONFIG"
COMPAT_VARIABLE = "COGRAIL_COMPAT"
MAX_LISTED = 12

# Read where they are used: by the clients and examples, and by the tests.
OTHER_VARIABLES = frozenset(
    {
        CONFIG_VARIABLE,
        COMPAT_VARIABLE,
        "COGRAIL_KEY",
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

# Kubernetes sets these in every container when a Service is called cograil or cograil-something.
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT)(_\w+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_\w+)?$")
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")

_HEADER = re.compile(r"\s*\[\s*([\w.\s-]+?)\s*\]\s*(#.*)?$")
_KEY = re.compile(r"\s*([\w.\s\"'-]+?)\s*=")


class Value(NamedTuple):
    """A value and where it was found."""

    value: Any
    origin: str


def read_environment(names: Iterable[str], bare_parts: Collection[str] = ()) -> dict[str, Value]:
    """The settings that variables set. An empty variable counts as not set, as compose files make them.

    The bare names of `bare_parts` ("documents", "gateway") count too, or of all parts with COGRAIL_COMPAT=1.
    Raises InvalidSettings when two variables give one setting different values.
    """
    values: dict[str, Value] = {}
    for name in names:
        variables = {
            variable: os.environ[variable]
            for variable in _variables_of(name, bare_parts)
            if os.environ.get(variable) and not _is_service_link(variable, os.environ[variable])
        }
        if len(set(variables.values())) > 1:
            first, second, *_ = variables
            raise InvalidSettings(f"{first} and {second} are the same setting and differ; set one of them")
        for variable, text in variables.items():
            values.setdefault(name, Value(text, f"environment {variable}"))
    return values


def _variables_of(name: str, bare_parts: Collection[str]) -> list[str]:
    variables = [SHORT_NAMES[name]] if name in SHORT_NAMES else []
    is_compatible = name.partition(".")[0] in bare_parts or is_compat_mode()
    if name in BARE_NAMES and is_compatible:
        variables.append(BARE_NAMES[name])
    return [*variables, regular_variable(name)]


def is_compat_mode() -> bool:
    """Whether COGRAIL_COMPAT turns on the bare names (DATA_DIR, DATABASE_URL, ...) for every command."""
    return os.environ.get(COMPAT_VARIABLE, "").lower() in ("1", "true", "yes", "on")


def unknown_variables(environ: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """A sentence for each COGRAIL_ variable that is not a setting, with the name that was probably meant."""
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
    """What is wrong with this variable; None for small letters that are not like a setting: another's."""
    capitals = variable.upper()
    if variable != capitals and capitals in known:
        return f"{variable} is not read: variables are written in capitals; set {capitals}"
    section = capitals.removeprefix(PREFIX).rstrip("_").lower()
    if settings := _settings_of(section, names):
        return f"{variable} is a section and not a setting; its settings are {_listed(settings)}"
    suggestion = _suggestion(capitals, known)
    if not variable.startswith(PREFIX) and not suggestion:
        return None
    return f"{variable} is not a setting{suggestion}"


def _settings_of(section: str, names: Iterable[str]) -> list[str]:
    """The variables of the settings of this section; none if there is no such section."""
    return [regular_variable(name) for name in names if name.startswith(f"{section}.")]


def _listed(names: Collection[str]) -> str:
    shown = ", ".join(islice(names, MAX_LISTED))
    left = len(names) - MAX_LISTED
    return f"{shown} and {left} more (`cograil config` lists them)" if left > 0 else shown


def _is_service_link(variable: str, text: str) -> bool:
    return bool(_SERVICE_LINK.search(variable) or _SERVICE_ADDRESS.match(text))


def find_file(config: Path | None = None) -> Path | None:
    """The settings file: this one, that of COGRAIL_CONFIG, or cograil.toml in the working directory.

    Raises InvalidSettings when a file was named and is not there.
    """
    named = config or (Path(text) if (text := os.environ.get(CONFIG_VARIABLE)) else None)
    if named is None:
        return Path(FILE_NAME) if Path(FILE_NAME).is_file() else None
    if not named.is_file():
        raise InvalidSettings(f"there is no settings file {named} (named by --config or {CONFIG_VARIABLE})")
    return named


def read_file(path: Path, names: Collection[str], path_names: Collection[str]) -> dict[str, Value]:
    """The settings in this TOML file. Relative paths (`path_names`) are relative to the file.

    Raises InvalidSettings for a file that is not TOML, and with a line for each key that is not a setting.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidSettings(f"{path} cannot be read: {error}") from error
    lines = _find_lines(text)
    values, problems = {}, []
    for name, value in _flatten(document, names):
        place = f"{path}:{lines[name]}" if name in lines else str(path)
        if name not in names:
            problems.append(f"{place}: {_problem_in_file(name, names)}")
            continue
        is_path = name in path_names and isinstance(value, str)
        used = str(path.parent / Path(value).expanduser()) if is_path else value
        values[name] = Value(used, f"file {place}")
    if problems:
        raise InvalidSettings("\n".join(problems))
    return values


def _problem_in_file(name: str, names: Collection[str]) -> str:
    if settings := [one for one in names if one.startswith(f"{name}.")]:
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
    """The line of each key, as far as a look at single lines can tell; tomllib keeps no positions."""
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
