"""The messages of `up`: sentences on a terminal, fields in a log."""

from __future__ import annotations

import os
import shlex
import sys
from importlib.metadata import version as version_of
from pathlib import Path

import structlog

from cograil.app_registry import enabled_apps
from cograil.model.workflow import Workflow
from cograil.processes.database_host import Host
from cograil.processes.invocation import program
from cograil.processes.publish_directory import FilePublication
from cograil.settings import Settings, mask_password

log = structlog.get_logger("up")

EXAMPLES = {
    "string": "text",
    "integer": "1",
    "number": "1.5",
    "boolean": "true",
    "array": "[]",
    "object": "{}",
}


def welcome(
    settings: Settings,
    host: Host,
    url: str,
    files: list[FilePublication],
    apps: dict[str, str],
) -> None:
    """Print what runs, its address, and the next step."""
    published = [file.name for file in files if not file.problem]
    is_watcher = not files and any(app.tells_next_step for app in enabled_apps(settings))
    if not _is_for_people(settings):
        log.info("ready", url=url, data=_place(settings, host), pid=os.getpid(), workflows=published)
        for name, sentence in apps.items():
            log.info(sentence, app=name)
        return
    option = "" if _is_default(settings) else f" --data-dir {shlex.quote(str(settings.data_dir))}"
    first = next((_submit(file.workflow) for file in files if file.workflow and not file.problem), None)
    step = f"{program()} {first or 'init my_project'}{option if first else ''}"
    _say(
        f"cograil {version_of('cograil')} is up: database, orchestrator, worker.",
        "",
        f"  pages      {url}/ui/",
        f"  probes     {url}/readyz",
        f"  data       {_place(settings, host)}",
        *(f"  {name:10} {sentence}" for name, sentence in apps.items()),
        *([f"  workflows  {', '.join(published)}"] if published else []),
        *(f"  {file.name}: NOT published, {file.problem}" for file in files if file.problem),
        *(f"  {file.name}: {warning}" for file in files for warning in file.warnings),
        "",
        *([] if is_watcher else [f"  try        {step}        (in another terminal)"]),
        "  stop       Ctrl-C",
        "",
    )


def tell_worker_error(settings: Settings, error: str, *, is_reloading: bool) -> None:
    """Print why the worker cannot start, as Python prints it, and what happens next."""
    if not _is_for_people(settings):
        log.error("worker cannot start", error=error)
        return
    again = "the worker then starts by itself" if is_reloading else "the worker is started again until then"
    _say(
        "", f"The worker cannot start: {error}", "", f"Jobs wait until the module is corrected; {again}.", ""
    )


def tell_worker_runs(settings: Settings) -> None:
    """Print that a worker runs again after a failed start."""
    if _is_for_people(settings):
        _say("The worker runs again.")
    else:
        log.info("worker runs again")


def _submit(workflow: Workflow) -> str:
    """Return a command that submits a job of this workflow, with its required inputs."""
    arguments = [
        f"--input {shlex.quote(f'{spec.name}={EXAMPLES.get(spec.type, chr(120))}')}"
        for spec in (workflow.inputs or {}).values()
        if spec.required and not spec.has_default
    ]
    return " ".join(["submit", workflow.workflow_id, *arguments, "--wait"])


def goodbye(settings: Settings) -> None:
    """Print that running tasks get their grace period."""
    if _is_for_people(settings):
        seconds = settings.worker.grace_seconds
        _say(f"\nStopping; running tasks have {seconds:g} s to end. Once more to stop at once.")
    else:
        log.info("stopping", grace_seconds=settings.worker.grace_seconds)


def _is_for_people(settings: Settings) -> bool:
    return settings.log.format != "json" and sys.stderr.isatty()


def _is_default(settings: Settings) -> bool:
    """Return whether a command in another terminal finds this instance without options."""
    default: Path = Settings.model_fields["data_dir"].get_default(call_default_factory=True)
    return settings.data_dir == default or bool(settings.database.url)


def _place(settings: Settings, host: Host) -> str:
    return str(settings.data_dir) if host.is_embedded else mask_password(host.conninfo)


def _say(*lines: str) -> None:
    print(*lines, sep="\n", file=sys.stderr, flush=True)
