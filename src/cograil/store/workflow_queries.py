"""Published workflows and drafts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from cograil.model.workflow import Workflow
from cograil.store.database import Row, Transaction
from cograil.store.statements import statement

PUBLISH_WORKFLOW = statement("publish_workflow")
REPLACE_WORKFLOW = statement("replace_workflow")
FIND_WORKFLOW = statement("find_workflow")
IS_PAUSED = statement("is_paused")
LOAD_DEFINITIONS = statement("load_definitions")
LIST_WORKFLOWS = statement("list_workflows")
LIST_VERSIONS = statement("list_versions")
SHOW_WORKFLOW = statement("show_workflow")


@dataclass(frozen=True, slots=True)
class Published:
    """One stored version. `is_new` False: the very same content was there."""

    definition_id: int
    workflow_id: str
    version: int
    digest: str
    is_new: bool


class Found(NamedTuple):
    """A published version, as it is found by name."""

    definition_id: int
    version: int
    is_paused: bool  # its workflow


async def store_workflow(
    tx: Transaction, tenant: str, workflow: Workflow, source: str, *, is_draft: bool
) -> Published:
    """Keep this version, or find what is kept under its name already: compare the digest."""
    params = {
        "tenant": tenant,
        "workflow_id": workflow.workflow_id,
        "version": workflow.version,
        "is_draft": is_draft,
        "digest": workflow.digest,
        "document": orjson.dumps(workflow.document).decode(),
        "source": source,
        "app": workflow.app,
    }
    # Who waited for somebody publishing the same sees his row only in a new statement.
    rows = await tx.fetch(PUBLISH_WORKFLOW, **params) or await tx.fetch(PUBLISH_WORKFLOW, **params)
    definition_id, digest, is_new = rows[0]
    return Published(definition_id, workflow.workflow_id, workflow.version, digest, is_new)


async def unpublish_other(tx: Transaction, tenant: str, workflow: Workflow) -> None:
    """Make a draft of what is published under this version, if that has other content."""
    await tx.execute(
        REPLACE_WORKFLOW,
        tenant=tenant,
        workflow_id=workflow.workflow_id,
        version=workflow.version,
        digest=workflow.digest,
    )


async def find_workflow(tx: Transaction, tenant: str, workflow_id: str, version: int | None) -> Found | None:
    """A published version; the latest when none is named."""
    rows = await tx.fetch(FIND_WORKFLOW, tenant=tenant, workflow_id=workflow_id, version=version)
    return Found(*rows[0]) if rows else None


async def is_paused(tx: Transaction, tenant: str, workflow_id: str) -> bool:
    """Whether this workflow is paused."""
    return bool((await tx.fetch(IS_PAUSED, tenant=tenant, workflow_id=workflow_id))[0][0])


async def load_definitions(tx: Transaction, ids: list[int]) -> dict[int, tuple[dict[str, Any], str | None]]:
    """The document of each of these definitions, and the app that owns it."""
    rows = await tx.fetch(LOAD_DEFINITIONS, ids=ids)
    return {definition_id: (orjson.loads(document), app) for definition_id, document, app in rows}


def _view(row: Row) -> dict[str, Any]:
    names = ("workflow_id", "version", "name", "digest", "published_at", "node_count")
    return dict(zip(names, row[:6], strict=True))


async def list_workflows(tx: Transaction, tenant: str) -> list[dict[str, Any]]:
    """Every published version, newest first within a workflow."""
    return [_view(row) for row in await tx.fetch(LIST_WORKFLOWS, tenant=tenant)]


async def list_versions(tx: Transaction, tenant: str, workflow_id: str) -> list[dict[str, Any]]:
    """The published versions of a workflow, newest first."""
    rows = await tx.fetch(LIST_VERSIONS, tenant=tenant, workflow_id=workflow_id)
    return [_view(row) for row in rows]


async def show_workflow(
    tx: Transaction, tenant: str, workflow_id: str, version: int | None
) -> dict[str, Any] | None:
    """A published version with its definition and its text; the newest when none is named."""
    rows = await tx.fetch(SHOW_WORKFLOW, tenant=tenant, workflow_id=workflow_id, version=version)
    if not rows:
        return None
    return _view(rows[0]) | {"definition": orjson.loads(rows[0][6]), "source": rows[0][7]}
