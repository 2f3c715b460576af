"""Publish the workflows of a directory when an instance starts."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import structlog

from cograil.definitions import read_workflow
from cograil.errors import CograilError, UsageError
from cograil.model.workflow import Workflow
from cograil.store.database import Database
from cograil.verbs.publish import publish

log = structlog.get_logger("up")

ENDINGS = (".yaml", ".yml")


def workflow_files(directory: Path) -> list[Path]:
    """The workflow files of this directory, by name. Raises UsageError when there is no such directory."""
    if not directory.is_dir():
        raise UsageError(f"--workflows {directory}: there is no such directory")
    return sorted(path for path in directory.iterdir() if path.suffix in ENDINGS and path.is_file())


async def publish_files(db: Database, files: list[Path], handlers: Collection[str]) -> list[str]:
    """Publish these files; the names of those that are. A bad file is reported, and the rest goes on."""
    published = []
    for path in files:
        try:
            workflow = await _publish(db, path, _read(path))
        except (CograilError, OSError, UnicodeDecodeError) as error:
            log.error("workflow not published", file=str(path), error=str(error))
            continue
        published.append(workflow.workflow_id)
        if unknown := sorted(_handlers(workflow) - set(handlers)):
            log.warning("no handler here for tasks of a workflow", file=str(path), handlers=unknown)
    return published


async def _publish(db: Database, path: Path, text: str) -> Workflow:
    workflow = read_workflow(text, str(path))
    async with db.transaction("publish") as tx:
        await publish(tx, workflow, text)
    return workflow


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _handlers(workflow: Workflow) -> set[str]:
    return {node.handler for node in workflow.nodes.values() if node.handler}
