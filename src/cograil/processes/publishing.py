"""Publish the workflows of a directory when an instance starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from cograil.definitions import read_workflow
from cograil.definitions.hints import did_you_mean
from cograil.errors import CograilError, UsageError, VersionTaken
from cograil.model.workflow import Workflow
from cograil.store.database import Database
from cograil.verbs.advance import Decider
from cograil.verbs.file_schedules import ScheduleChange, sync_schedules
from cograil.verbs.publish import publish, replace

log = structlog.get_logger("up")

ENDINGS = (".yaml", ".yml")


def workflow_files(directory: Path) -> list[Path]:
    """The workflow files of this directory, by name. Raises UsageError when there is no such directory."""
    if not directory.is_dir():
        raise UsageError(f"--workflows {directory}: there is no such directory")
    return sorted(path for path in directory.iterdir() if path.suffix in ENDINGS and path.is_file())


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A workflow file, and what became of it."""

    path: Path
    workflow: Workflow | None = None
    problem: str = ""  # why it is not published
    is_new: bool = False
    schedules: tuple[ScheduleChange, ...] = ()  # what changed
    warnings: tuple[str, ...] = ()  # of what is published

    @property
    def name(self) -> str:
        return self.path.stem if self.workflow is None else self.workflow.workflow_id


async def publish_files(
    db: Database, decider: Decider, files: list[Path], handlers: Collection[str], *, is_dev: bool = False
) -> list[PublishedFile]:
    """Publish these files; with `is_dev` they replace old content. A bad file is reported and left out."""
    published = []
    for path in files:
        one = await _publish_file(db, decider, path, is_dev)
        if one.workflow is not None and not one.problem:
            one = dataclasses.replace(one, warnings=tuple(_missing_handlers(one.workflow, handlers)))
        published.append(one)
        for schedule in one.schedules:
            log.info(f"schedule {schedule.change}", schedule=schedule.name, workflow=one.name, file=str(path))
        if one.workflow is None or one.problem:
            log.error("workflow not published", file=str(path), error=one.problem)
        for warning in one.warnings:
            log.warning("a handler of a workflow is missing", file=str(path), warning=warning)
    return published


async def _publish_file(db: Database, decider: Decider, path: Path, is_dev: bool) -> PublishedFile:
    workflow = None
    try:
        text = _read(path)
        workflow = read_workflow(text, str(path))
        async with db.transaction("publish") as tx:
            done = await (replace if is_dev else publish)(tx, workflow, text)
            schedules = await sync_schedules(tx, decider, workflow, by="cograil up")
    except VersionTaken as error:
        return PublishedFile(
            path, workflow, f"version {workflow.version if workflow else ''} differs: {error}"
        )
    except (CograilError, OSError, UnicodeDecodeError) as error:
        return PublishedFile(path, None, str(error))
    return PublishedFile(path, workflow, is_new=done.is_new, schedules=tuple(schedules))


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _missing_handlers(workflow: Workflow, handlers: Collection[str]) -> Iterator[str]:
    """A sentence for each node whose handler is not among these."""
    for node in workflow.nodes.values():
        if node.handler and node.handler not in handlers:
            hint = did_you_mean(node.handler, sorted(handlers))
            yield f"node {node.node_id!r}: no worker here has a handler {node.handler!r}{hint}"
