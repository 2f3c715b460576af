"""Publish the workflows of a directory when an instance starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from cograil.definitions import read_workflow
from cograil.definitions.suggestions import did_you_mean
from cograil.errors import CograilError, UsageError, VersionTaken
from cograil.model.workflow import Workflow
from cograil.store.database import Database
from cograil.verbs.advance import EngineContext
from cograil.verbs.file_schedules import ScheduleChange, sync_schedules
from cograil.verbs.publish import publish, replace

log = structlog.get_logger("up")

ENDINGS = (".yaml", ".yml")


def workflow_files(directory: Path) -> list[Path]:
    """The workflow files of this directory, by name. Raises UsageError when the directory does not exist."""
    if not directory.is_dir():
        raise UsageError(f"--workflows {directory}: the directory does not exist")
    return sorted(path for path in directory.iterdir() if path.suffix in ENDINGS and path.is_file())


@dataclass(frozen=True, slots=True)
class FilePublication:
    """A workflow file and the result of publishing it."""

    path: Path
    workflow: Workflow | None = None
    problem: str = ""  # the reason why it is not published
    is_new: bool = False
    schedules: tuple[ScheduleChange, ...] = ()  # what changed
    warnings: tuple[str, ...] = ()  # warnings about the published version

    @property
    def name(self) -> str:
        return self.path.stem if self.workflow is None else self.workflow.workflow_id


async def publish_files(
    db: Database,
    engine_context: EngineContext,
    files: list[Path],
    handlers: Collection[str],
    *,
    is_dev: bool = False,
) -> list[FilePublication]:
    """Publish these files; with `is_dev` they replace old content. A bad file is reported and left out."""
    published = []
    for path in files:
        file = await _publish_file(db, engine_context, path, is_dev)
        if file.workflow is not None and not file.problem:
            file = dataclasses.replace(file, warnings=tuple(_missing_handlers(file.workflow, handlers)))
        published.append(file)
        for schedule in file.schedules:
            log.info(
                f"schedule {schedule.change}", schedule=schedule.name, workflow=file.name, file=str(path)
            )
        if file.workflow is None or file.problem:
            log.error("workflow not published", file=str(path), error=file.problem)
        for warning in file.warnings:
            log.warning("a handler of a workflow is missing", file=str(path), warning=warning)
    return published


async def _publish_file(
    db: Database, engine_context: EngineContext, path: Path, is_dev: bool
) -> FilePublication:
    workflow = None
    try:
        text = _read(path)
        workflow = read_workflow(text, str(path))
        async with db.transaction("publish") as tx:
            done = await (replace if is_dev else publish)(tx, workflow, text)
            schedules = await sync_schedules(tx, engine_context, workflow, by="cograil up")
    except VersionTaken as error:
        return FilePublication(
            path, workflow, f"version {workflow.version if workflow else ''} differs: {error}"
        )
    except (CograilError, OSError, UnicodeDecodeError) as error:
        return FilePublication(path, None, str(error))
    return FilePublication(path, workflow, is_new=done.is_new, schedules=tuple(schedules))


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _missing_handlers(workflow: Workflow, handlers: Collection[str]) -> Iterator[str]:
    """Yield a message for each node whose handler is not among these."""
    for node in workflow.nodes.values():
        if node.handler and node.handler not in handlers:
            hint = did_you_mean(node.handler, sorted(handlers))
            yield f"node {node.node_id!r}: no worker here has a handler {node.handler!r}{hint}"
