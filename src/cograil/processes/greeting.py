"""What `up` says: to a person at a terminal in sentences, to a log in fields."""

from __future__ import annotations

import os
import shlex
import sys
from importlib.metadata import version as version_of
from pathlib import Path

import structlog

from cograil.model.workflow import Workflow
from cograil.processes.hosting import Host
from cograil.processes.invocation import program
from cograil.processes.publishing import PublishedFile
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
    files: list[PublishedFile],
    apps: dict[str, str],
) -> None:
    """Say what runs, where, and what to do next."""
    published = [one.name for one in files if not one.problem]
    is_watcher = "documents" in apps and not files  # a folder is watched: nobody is here for workflows
    if not _is_for_people(settings):
        log.info("ready", url=url, data=_place(settings, host), pid=os.getpid(), workflows=published)
        for name, sentence in apps.items():
            log.info(sentence, app=name)
        return
    option = "" if _is_default(settings) else f" --data-dir {shlex.quote(str(settings.data_dir))}"
    first = next((_submit(one.workflow) for one in files if one.workflow and not one.problem), None)
    step = f"{program()} {first or 'init my_project'}{option if first else ''}"
    _say(
        f"cograil {version_of('cograil')} is up: database, orchestrator, worker.",
        "",
        f"  pages      {url}/ui/",
        f"  probes     {url}/readyz",
        f"  data       {_place(settings, host)}",
        *(f"  {name:10} {sentence}" for name, sentence in apps.items()),
        *([f"  workflows  {', '.join(published)}"] if published else []),
        *(f"  {one.name}: NOT published, {one.problem}" for one in files if one.problem),
        *(f"  {one.name}: {warning}" for one in files for warning in one.warnings),
        "",
        *([] if is_watcher else [f"  try        {step}        (in another terminal)"]),
        "  stop       Ctrl-C",
        "",
    )


def tell_worker_error(settings: Settings, error: str, *, is_reloading: bool) -> None:
    """Say why the worker cannot start, as Python prints it, and what happens next."""
    if not _is_for_people(settings):
        log.error("worker cannot start", error=error)
        return
    again = "the worker then starts by itself" if is_reloading else "the worker is started again until then"
    _say(
        "", f"The worker cannot start: {error}", "", f"Jobs wait until the module is corrected; {again}.", ""
    )


def tell_worker_runs(settings: Settings) -> None:
    """Say that a worker runs again after one that could not start."""
    if _is_for_people(settings):
        _say("The worker runs again.")
    else:
        log.info("worker runs again")


def _submit(workflow: Workflow) -> str:
    """A command that submits a job of this workflow as it is printed, with the inputs that it must have."""
    words = [
        f"--input {shlex.quote(f'{spec.name}={EXAMPLES.get(spec.type, chr(120))}')}"
        for spec in (workflow.inputs or {}).values()
        if spec.required and not spec.has_default
    ]
    return " ".join(["submit", workflow.workflow_id, *words, "--wait"])


def goodbye(settings: Settings) -> None:
    """Say that running tasks are given their time."""
    if _is_for_people(settings):
        seconds = settings.worker.grace_seconds
        _say(f"\nStopping; running tasks have {seconds:g} s to end. Once more to stop at once.")
    else:
        log.info("stopping", grace_seconds=settings.worker.grace_seconds)


def _is_for_people(settings: Settings) -> bool:
    return settings.log.format != "json" and sys.stderr.isatty()


def _is_default(settings: Settings) -> bool:
    """Whether a command in another terminal finds this instance by itself."""
    default: Path = Settings.model_fields["data_dir"].get_default(call_default_factory=True)
    return settings.data_dir == default or bool(settings.database.url)


def _place(settings: Settings, host: Host) -> str:
    return str(settings.data_dir) if host.is_embedded else mask_password(host.conninfo)


def _say(*lines: str) -> None:
    print(*lines, sep="\n", file=sys.stderr, flush=True)
