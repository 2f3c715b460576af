"""Commands for workflow files: check, publish."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from cograil.cli.backends.target import Target
from cograil.cli.command_decorators import instance_command
from cograil.cli.display.formatting import printable
from cograil.cli.display.output import out, render, say, warn
from cograil.cli.options import app_option, instance_options, json_option, tenant_option
from cograil.definitions import read_workflow
from cograil.definitions.suggestions import did_you_mean
from cograil.errors import InvalidWorkflow, Problem, UsageError
from cograil.model.workflow import Workflow, WorkflowNode

SUFFIXES = (".yaml", ".yml")

files_argument = click.argument(
    "paths", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, path_type=Path)
)


@dataclass(slots=True)
class CheckedFile:
    """A workflow file with its problems and warnings; without problems, its workflow."""

    path: Path
    source: str = ""
    workflow: Workflow | None = None
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "file": str(self.path),
            "ok": not self.problems,
            "workflow_id": self.workflow.workflow_id if self.workflow else None,
            "version": self.workflow.version if self.workflow else None,
            "problems": [asdict(problem) for problem in self.problems],
            "warnings": self.warnings,
        }


def check_file(path: Path) -> CheckedFile:
    """Read and check one file; problems are collected, not raised."""
    checked = CheckedFile(path)
    try:
        checked.source = path.read_bytes().decode()
        checked.workflow = read_workflow(checked.source, str(path))
    except OSError as error:
        checked.problems.append(Problem("unreadable", f"the file cannot be read: {error.strerror}"))
    except UnicodeDecodeError as error:
        checked.problems.append(_not_utf8(error))
    except InvalidWorkflow as error:
        checked.problems.extend(error.problems)
    return checked


def _not_utf8(error: UnicodeDecodeError) -> Problem:
    before = error.object[: error.start].decode()
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    message = f"the byte 0x{error.object[error.start]:02X} is not UTF-8: {error.reason}"
    return Problem("not_utf8", message, line=line, column=column)


def read_file(path: Path) -> tuple[Workflow, str]:
    """Return the workflow in this file and its text. Raises InvalidWorkflow with all problems."""
    checked = check_file(path)
    if checked.workflow is None:
        raise InvalidWorkflow(checked.problems, str(path))
    return checked.workflow, checked.source


def find_files(paths: Iterable[Path]) -> list[Path]:
    """Return these files and the workflow files in these directories. Raises UsageError when one has none."""
    return [file for path in paths for file in (_list_directory(path) if path.is_dir() else [path])]


def _list_directory(path: Path) -> list[Path]:
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if not files:
        raise UsageError(f"there are no .yaml or .yml files in {path}")
    return files


def unknown_handlers(workflow: Workflow, apps: Sequence[str]) -> Iterator[tuple[WorkflowNode, str]]:
    """Yield each node whose handler is neither built in nor in these modules, with a message."""
    known = handler_names(apps)
    for node in workflow.nodes.values():
        if node.handler and node.handler not in known:
            hint = did_you_mean(node.handler, known) or "; name its module with --app"
            yield node, f"node {node.node_id!r}: no handler {node.handler!r} here{hint}"


def handler_names(apps: Sequence[str]) -> set[str]:
    """Return the handlers of a worker with these modules. Raises UsageError for a module that fails."""
    from cograil.processes.handler_modules import import_apps  # noqa: PLC0415  only with --app
    from cograil.runners import builtin_handlers, http_handler  # noqa: F401, PLC0415  importing registers
    from cograil.runners.handler_registry import default_registry  # noqa: PLC0415

    import_apps(apps, os.getcwd())
    return set(default_registry.names())


@click.command()
@files_argument
@app_option
@click.option("--strict", is_flag=True, help="Exit 1 when there are warnings.")
@json_option
def check(paths: tuple[Path, ...], apps: tuple[str, ...], strict: bool, as_json: bool) -> int:
    """Find all mistakes in workflow files, each with its line and column.

    A directory stands for the .yaml and .yml files in it. With --app, params are checked against the
    signatures of their handlers: unknown names, missing names, and invalid values. Unknown handlers cause a
    warning. Exits 2 when a file has mistakes.

    \b
    Examples:
      cograil check flows/import.yaml
      cograil check flows --app my_handlers --strict
      cograil check flows/*.yaml --json
    """
    results = [check_file(path) for path in find_files(paths)]
    if apps:
        _check_handlers(results, apps)
    render({"files": [checked.as_json() for checked in results]}, lambda: _show_files(results), as_json)
    if any(checked.problems for checked in results):
        return 2
    return 1 if strict and any(checked.warnings for checked in results) else 0


def _check_handlers(results: Iterable[CheckedFile], apps: Sequence[str]) -> None:
    """Check the files against the built-in handlers and those of these modules."""
    from cograil.cli.commands import handler_checks  # noqa: PLC0415  it loads the handlers
    from cograil.runners.handler_registry import default_registry  # noqa: PLC0415

    handler_names(apps)
    for checked in results:
        if checked.workflow is not None:
            warnings = handler_checks.unknown_handlers(checked.workflow, default_registry, apps)
            checked.warnings.extend(warnings)
            checked.problems.extend(
                handler_checks.param_problems(checked.workflow, checked.source, default_registry)
            )


def _show_files(results: Iterable[CheckedFile]) -> None:
    for checked in results:
        _show_file(checked)


def _show_file(checked: CheckedFile) -> None:
    for problem in checked.problems:
        out().print(Text(f"{checked.path}:{printable(problem)}"), soft_wrap=True)
    for message in checked.warnings:
        warn(f"{checked.path}: {message}")
    if (workflow := checked.workflow) is not None and not checked.problems:
        say(f"{checked.path}: ok, {workflow.workflow_id} version {workflow.version}")


@click.command()
@files_argument
@tenant_option
@instance_options
@instance_command
async def publish(target: Target, paths: tuple[Path, ...], as_json: bool) -> None:
    """Publish workflow files, all or none.

    A published version never changes: publishing the same content again does nothing, and new content needs a
    new version. The `schedules` of a file are not part of its version: they are created, changed and paused as
    the file says. A directory stands for the .yaml and .yml files in it.

    \b
    Examples:
      cograil publish flows/import.yaml
      cograil publish flows --tenant acme --json
    """
    files = [(path, *read_file(path)) for path in find_files(paths)]
    published = await _publish(target, files)
    render({"workflows": published}, lambda: _show_published(published), as_json)


def _show_published(published: list[dict[str, Any]]) -> None:
    for workflow in published:
        outcome = "published" if workflow["is_new"] else "was already published"
        say(f"{workflow['workflow_id']} version {workflow['version']} {outcome}")
        for schedule in workflow["schedules"]:
            say(f"  schedule {schedule['name']} {schedule['change']}")


async def _publish(target: Target, files: list[tuple[Path, Workflow, str]]) -> list[dict[str, Any]]:
    async with target.open() as backend:
        published = await backend.publish([(workflow, source) for _, workflow, source in files])
    rows = []
    for (path, _, _), row in zip(files, published, strict=True):
        for message in row.pop("warnings"):
            warn(f"{path}: {message}")
        names = ("workflow_id", "version", "digest", "is_new", "schedules")
        rows.append({"file": str(path)} | {name: row[name] for name in names})
    return rows
