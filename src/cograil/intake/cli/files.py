"""Workflow files: check them, publish them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from cograil.definitions import read_workflow
from cograil.definitions.hints import did_you_mean
from cograil.errors import InvalidWorkflow, Problem, UsageError
from cograil.intake.cli.client import audit, connected, who
from cograil.intake.cli.options import app_option, instance_options, json_option, settings_for, tenant_option
from cograil.intake.cli.output import out, say, warn, write_json
from cograil.intake.cli.words import printable
from cograil.model.workflow import Node, Workflow
from cograil.processes import run_async
from cograil.settings import Settings
from cograil.store.database import Transaction
from cograil.store.reading import list_processes
from cograil.verbs.file_schedules import sync_schedules
from cograil.verbs.publish import publish as publish_workflow

SUFFIXES = (".yaml", ".yml")

files_argument = click.argument(
    "paths", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, path_type=Path)
)


@dataclass(slots=True)
class Checked:
    """A file and what is wrong in it; without problems, its workflow."""

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


def check_file(path: Path) -> Checked:
    """Read and check one file; problems are kept, not raised."""
    checked = Checked(path)
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
    """The workflow in this file and its text. Raises InvalidWorkflow with all that is wrong."""
    checked = check_file(path)
    if checked.workflow is None:
        raise InvalidWorkflow(checked.problems, str(path))
    return checked.workflow, checked.source


def find_files(paths: Iterable[Path]) -> list[Path]:
    """These files, and those in these directories. Raises UsageError for a directory without any."""
    return [file for path in paths for file in (_in_directory(path) if path.is_dir() else [path])]


def _in_directory(path: Path) -> list[Path]:
    found = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if not found:
        raise UsageError(f"there are no .yaml or .yml files in {path}")
    return found


def unknown_handlers(workflow: Workflow, apps: Sequence[str]) -> Iterator[tuple[Node, str]]:
    """Each node whose handler neither cograil nor these modules have, and a sentence that says so."""
    known = handler_names(apps)
    for node in workflow.nodes.values():
        if node.handler and node.handler not in known:
            hint = did_you_mean(node.handler, known) or "; give its module with --app"
            yield node, f"node {node.node_id!r}: no handler {node.handler!r} here{hint}"


async def handlers_nobody_has(tx: Transaction, workflow: Workflow) -> list[str]:
    """A sentence for each handler that none of the workers has that run now; nothing when none runs."""
    workers = [one for one in await list_processes(tx) if one["kind"] == "worker"]
    known = {name for worker in workers for name in worker["handlers"] or ()}
    return [
        f"node {node.node_id!r}: no worker that runs now has a handler {node.handler!r}"
        f"{did_you_mean(node.handler, known)}"
        for node in workflow.nodes.values()
        if workers and node.handler and node.handler not in known
    ]


def handler_names(apps: Sequence[str]) -> set[str]:
    """The handlers that a worker with these modules has. Raises UsageError for a module that fails."""
    from cograil.processes.apps import import_apps  # noqa: PLC0415  only when asked for
    from cograil.runners import builtin, http  # noqa: F401, PLC0415  importing registers
    from cograil.runners.registry import default_registry  # noqa: PLC0415

    import_apps(apps, os.getcwd())
    return set(default_registry.names())


@click.command()
@files_argument
@app_option
@click.option("--strict", is_flag=True, help="Exit 1 when there are warnings.")
@json_option
def check(paths: tuple[Path, ...], apps: tuple[str, ...], strict: bool, as_json: bool) -> int:
    """Find all mistakes in workflow files, each with its line and column.

    A directory stands for the .yaml and .yml files in it. With --app, params are held against the
    signatures of their handlers: unknown names, missing ones, and values that do not fit. Handlers that
    nobody has are warned about. Exits 2 when a file has mistakes.

    \b
    Examples:
      cograil check flows/import.yaml
      cograil check flows --app my_handlers --strict
      cograil check flows/*.yaml --json
    """
    results = [check_file(path) for path in find_files(paths)]
    if apps:
        _check_handlers(results, apps)
    if as_json:
        write_json({"files": [checked.as_json() for checked in results]})
    else:
        for checked in results:
            _show(checked)
    if any(checked.problems for checked in results):
        return 2
    return 1 if strict and any(checked.warnings for checked in results) else 0


def _check_handlers(results: Iterable[Checked], apps: Sequence[str]) -> None:
    """Hold the files against the handlers of these modules and our own."""
    from cograil.intake.cli import handler_checks  # noqa: PLC0415  it loads the handlers
    from cograil.runners.registry import default_registry  # noqa: PLC0415

    handler_names(apps)
    for checked in results:
        if checked.workflow is not None:
            warnings = handler_checks.unknown_handlers(checked.workflow, default_registry, apps)
            checked.warnings.extend(warnings)
            checked.problems.extend(
                handler_checks.param_problems(checked.workflow, checked.source, default_registry)
            )


def _show(checked: Checked) -> None:
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
def publish(paths: tuple[Path, ...], data_dir: Path | None, as_json: bool) -> None:
    """Publish workflow files, all or none.

    A published version never changes: publishing the same again does nothing, other content needs
    another version. The `schedules` of a file are no part of its version: they are created, changed and
    paused as the file says. A directory stands for the .yaml and .yml files in it.

    \b
    Examples:
      cograil publish flows/import.yaml
      cograil publish flows --tenant acme --json
    """
    files = [(path, *read_file(path)) for path in find_files(paths)]
    published = run_async(_publish(settings_for(data_dir), files))
    if as_json:
        write_json({"workflows": published})
        return
    for one in published:
        fate = "published" if one["is_new"] else "was published already"
        say(f"{one['workflow_id']} version {one['version']} {fate}")
        for schedule in one["schedules"]:
            say(f"  schedule {schedule['name']} {schedule['change']}")


async def _publish(settings: Settings, files: list[tuple[Path, Workflow, str]]) -> list[dict[str, Any]]:
    rows = []
    async with connected(settings) as client, client.db.transaction("publish") as tx:
        for path, workflow, source in files:
            done = await publish_workflow(tx, workflow, source, client.tenant)
            if done.is_new:
                await audit(tx, "publish", f"{done.workflow_id} {done.version}")
            changes = await sync_schedules(tx, client.decider, workflow, client.tenant, by=who())
            for one in changes:
                await audit(tx, f"{one.verb} schedule", one.name, workflow_id=workflow.workflow_id)
            for message in await handlers_nobody_has(tx, workflow):
                warn(f"{path}: {message}")
            rows.append(
                {
                    "file": str(path),
                    "workflow_id": done.workflow_id,
                    "version": done.version,
                    "digest": done.digest,
                    "is_new": done.is_new,
                    "schedules": [one._asdict() for one in changes],
                }
            )
    return rows
