"""Writes docs/reference/ from the code: `make docs`. A test fails when the pages are stale."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import json
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import click

import cograil
from cograil import errors, metrics
from cograil.apps.app import installed_apps
from cograil.engine import states
from cograil.intake.cli import cli
from cograil.intake.gateway.openapi import gateway_document
from cograil.intake.http.app import TABLES
from cograil.intake.http.openapi import PROBES, Described, document
from cograil.intake.http.table import Endpoint
from cograil.setting_names import BARE_NAMES
from cograil.settings import Settings, setting_names, variable_of

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
APPS = {app.name: app.described() for app in installed_apps() if app.described}
HEAD = "<!-- Written by `make docs` from the code; do not edit. -->\n\n"


def states_page() -> str:
    """States and moves."""
    lines = ["# States and moves", "", "From `src/cograil/engine/states.py`, the only list.", ""]
    for title, names, moves in (
        ("Job", states.JOB_STATES, states.JOB_MOVES),
        ("Node", states.NODE_STATES, states.NODE_MOVES),
        ("Task", states.TASK_STATES, states.TASK_MOVES),
    ):
        lines += [f"## {title}", "", "States: " + ", ".join(f"`{name}`" for name in names), ""]
        lines += ["| move | from | to |", "|---|---|---|"]
        lines += [f"| {verb} | {', '.join(sorted(source))} | {to} |" for verb, (source, to) in moves.items()]
        lines.append("")
    lines += ["## Events", "", ", ".join(f"`{name}`" for name in states.EVENT_TYPES), ""]
    return "\n".join(lines)


SETTINGS_HEAD = """\
Flags win over the environment, the environment over the settings file, the file over the default. `cograil
config` shows every value and where it comes from.

The settings file is TOML: `cograil.toml` in the working directory, or the file that `--config` or
`COGRAIL_CONFIG` names. A setting `lease.seconds` is the key `seconds` in the table `[lease]`; relative
paths are relative to the file.

```toml
data_dir = "./data"
port = 8081

[worker]
concurrency = 50
```

A variable `COGRAIL_...` or a key of the file that is not a setting is an error, so a misspelt one is
noticed.

Some settings of `documents` and `gateway` also have the bare names of the programs that they replace. Other
programs use such names too, so they count for `cograil documents ...` and `cograil gateway` only, each for
its own part; with `COGRAIL_COMPAT=1` they count for every command."""


def settings_page() -> str:
    """Every setting."""
    lines = ["# Settings", "", SETTINGS_HEAD, ""]
    lines += ["| setting | variable | default | meaning |", "|---|---|---|---|"]
    for name in setting_names():
        bare = f"; bare `{BARE_NAMES[name]}`" if name in BARE_NAMES else ""
        lines.append(f"| `{name}` | `{variable_of(name)}`{bare} | {_default(name)} | {_meaning(name)} |")
    return "\n".join([*lines, ""])


def _field(name: str) -> tuple[type, str]:
    model: type = Settings
    *parts, last = name.split(".")
    for part in parts:
        model = model.model_fields[part].annotation  # type: ignore[attr-defined]
    return model, last


OF_THE_MACHINE = {
    "data_dir": "the XDG data home + `cograil`",
    "worker.threads": "cores + 4, at most 32",
    "worker.processes": "cores",
}


def _default(name: str) -> str:
    if name in OF_THE_MACHINE:
        return OF_THE_MACHINE[name]
    model, last = _field(name)
    value = model.model_fields[last].get_default(call_default_factory=True)  # type: ignore[attr-defined]
    return f"`{value}`"


def _meaning(name: str) -> str:
    """The docstring below the setting, from the source: pydantic would read it at every start."""
    model, last = _field(name)
    (definition,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(definition, ast.ClassDef)
    for field, below in pairwise(definition.body):
        is_it = isinstance(field, ast.AnnAssign) and getattr(field.target, "id", "") == last
        if is_it and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            return str(below.value.value)
    raise SystemExit(f"the setting {name} says nothing of itself: give it a docstring in settings.py")


def errors_page() -> str:
    """Every error a person can meet."""
    for module in pkgutil.walk_packages(cograil.__path__, "cograil."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    lines = ["# Errors", "", "| code | exit code | meaning |", "|---|---|---|"]
    for one in _errors(errors.CograilError):
        lines.append(f"| `{one.code}` | {one.exit_code} | {(one.__doc__ or '').splitlines()[0]} |")
    return "\n".join([*lines, ""])


def _errors(root: type[errors.CograilError]) -> Iterator[type[errors.CograilError]]:
    for one in sorted(root.__subclasses__(), key=lambda kind: kind.__name__):
        yield one
        yield from _errors(one)


def commands_page() -> str:
    """Every command, as `--help` shows it."""
    lines = ["# Commands", ""]
    for path, command in _commands("cograil", cli):
        context = click.Context(
            command,
            info_name=path,
            max_content_width=100,
            terminal_width=100,
            help_option_names=["-h", "--help"],
        )
        fresh = copy.copy(command)
        fresh._help_option = None  # click keeps that of the first call, which may have had other names
        lines += [f"## {path}", "", "```", fresh.get_help(context), "```", ""]
    return "\n".join(lines)


def _commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                yield from _commands(f"{path} {name}", found)


def api_page() -> str:
    """The routes of the API: who may call them, what they take and what they answer."""
    lines = [
        "# The API",
        "",
        "The same as OpenAPI 3.1, with what each route answers: [openapi.json](openapi.json), and from a",
        "server at `/api/v1/openapi.json`. That of the [gateway](../gateway.md):",
        "[gateway-openapi.json](gateway-openapi.json).",
        "",
    ]
    endpoints = [endpoint for table in TABLES for endpoint in [*table.endpoints, *table.sockets]]
    for tag in dict.fromkeys(endpoint.tag for endpoint in endpoints):
        lines += [f"## {tag}", "", *_routes(endpoint for endpoint in endpoints if endpoint.tag == tag)]
    for name, described in APPS.items():
        lines += [f"## {name}", "", f"An app with a door of its own: [{name}](../{name}.md), as OpenAPI"]
        lines += [f"[{name}-openapi.json]({name}-openapi.json).", "", *_routes(described.endpoints)]
    lines += ["## probes", "", "They need no key.", "", "| route | what it does |", "|---|---|"]
    lines += [f"| `GET {probe.path}` | {probe.summary} |" for probe in PROBES]
    return "\n".join([*lines, ""])


def _routes(endpoints: Iterable[Endpoint]) -> Iterator[str]:
    yield from ("| route | what it does | role | body, parameters |", "|---|---|---|---|")
    for one in endpoints:
        models = [model for model in (one.takes or one.body, one.query) if model is not None]
        takes = " ".join(
            f"`{field.alias or name}`" for model in models for name, field in model.model_fields.items()
        )
        roles = " or ".join(one.requires)
        yield f"| `{one.method} {one.path}` | {one.summary} | {roles} | {takes} |"
    yield ""


def openapi_document() -> str:
    """All of it for programs."""
    endpoints = [endpoint for table in TABLES for endpoint in table.endpoints]
    return json.dumps(document(endpoints), indent=1) + "\n"


def gateway_openapi_document() -> str:
    """The same of the gateway."""
    return json.dumps(gateway_document(), indent=1) + "\n"


def metrics_page() -> str:
    """Everything on /metrics."""
    lines = [
        "# Metrics",
        "",
        "What `/metrics` of each process tells; [observability](../observability.md)",
        "",
    ]
    lines[-2] += " says who has it where, and what to do with it. Labels are words of ours and the names of"
    lines[-2] += " queues; of more than 100 queues the deepest have their names, and the rest is `others`."
    for title, families in (
        ("Counted by the process itself", metrics.COUNTED),
        ("Asked of the database, at most every other second", metrics.FOUND),
    ):
        lines += [f"## {title}", "", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
        for name, (kind, labels, text) in families.items():
            words = ", ".join(f"`{label}`" for label in labels)
            lines.append(f"| `{name}` | {kind} | {words} | {text} |")
        lines.append("")
    lines += ["And of the process itself `process_cpu_seconds_total`, `process_resident_memory_bytes`,"]
    lines += ["`process_open_fds` and their like.", ""]
    return "\n".join(lines)


def _document_of(described: Described) -> Callable[[], str]:
    return lambda: json.dumps(described.document(), indent=1) + "\n"


DOCUMENTS = {
    "openapi.json": openapi_document,
    "gateway-openapi.json": gateway_openapi_document,
    **{f"{name}-openapi.json": _document_of(described) for name, described in APPS.items()},
}
PAGES = {
    "api.md": api_page,
    "states.md": states_page,
    "settings.md": settings_page,
    "errors.md": errors_page,
    "commands.md": commands_page,
    "metrics.md": metrics_page,
}


def main() -> None:
    """Write all pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(HEAD + page(), "utf-8")
    for name, document_of in DOCUMENTS.items():
        (FOLDER / name).write_text(document_of(), "utf-8")


if __name__ == "__main__":
    main()
