"""Published workflows and drafts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from cograil.model.workflow import Workflow
from cograil.store.database import Transaction
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
class StoredVersion:
    """One stored version. `is_new` is False when the same content was already stored."""

    definition_id: int
    workflow_id: str
    version: int
    digest: str
    is_new: bool


class ResolvedVersion(NamedTuple):
    """A published version of a workflow."""

    definition_id: int
    version: int
    is_paused: bool  # the workflow is paused


async def store_workflow(
    tx: Transaction, tenant: str, workflow: Workflow, source: str, *, is_draft: bool
) -> StoredVersion:
    """Store this version, or return the stored one of the same name: the caller compares the digests."""
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
    # After waiting for a concurrent publish, only a new statement sees its row.
    rows = await tx.fetch(PUBLISH_WORKFLOW, **params) or await tx.fetch(PUBLISH_WORKFLOW, **params)
    definition_id, digest, is_new = rows[0]
    return StoredVersion(definition_id, workflow.workflow_id, workflow.version, digest, is_new)


async def unpublish_other(tx: Transaction, tenant: str, workflow: Workflow) -> None:
    """Turn the published version of this number into a draft, if it has other content."""
    await tx.execute(
        REPLACE_WORKFLOW,
        tenant=tenant,
        workflow_id=workflow.workflow_id,
        version=workflow.version,
        digest=workflow.digest,
    )


async def find_workflow(
    tx: Transaction, tenant: str, workflow_id: str, version: int | None
) -> ResolvedVersion | None:
    """Return a published version, the latest when `version` is None; None when there is none."""
    rows = await tx.fetch(FIND_WORKFLOW, tenant=tenant, workflow_id=workflow_id, version=version)
    return next((ResolvedVersion(*row) for row in rows), None)


async def is_paused(tx: Transaction, tenant: str, workflow_id: str) -> bool:
    """Return whether this workflow is paused."""
    ((is_paused,),) = await tx.fetch(IS_PAUSED, tenant=tenant, workflow_id=workflow_id)
    return bool(is_paused)


async def load_definitions(tx: Transaction, ids: list[int]) -> dict[int, tuple[dict[str, Any], str | None]]:
    """Return the document of each of these definitions and the app that owns it."""
    rows = await tx.fetch(LOAD_DEFINITIONS, ids=ids)
    return {definition_id: (orjson.loads(document), app) for definition_id, document, app in rows}


async def list_workflows(tx: Transaction, tenant: str) -> list[dict[str, Any]]:
    """Return every published version, newest first within a workflow."""
    return await tx.fetch_dicts(LIST_WORKFLOWS, tenant=tenant)


async def list_versions(tx: Transaction, tenant: str, workflow_id: str) -> list[dict[str, Any]]:
    """Return the published versions of a workflow, newest first."""
    return await tx.fetch_dicts(LIST_VERSIONS, tenant=tenant, workflow_id=workflow_id)


async def show_workflow(
    tx: Transaction, tenant: str, workflow_id: str, version: int | None
) -> dict[str, Any] | None:
    """Return a published version with its definition and source; the newest when `version` is None."""
    rows = await tx.fetch_dicts(SHOW_WORKFLOW, tenant=tenant, workflow_id=workflow_id, version=version)
    return next((row | {"definition": orjson.loads(row["definition"])} for row in rows), None)
