"""Publish: store a version of a workflow permanently."""

from __future__ import annotations

from cograil.definitions.suggestions import did_you_mean
from cograil.errors import VersionTaken
from cograil.model.workflow import Workflow
from cograil.store import workflow_queries
from cograil.store.database import Transaction
from cograil.store.job_queries import list_processes
from cograil.store.workflow_queries import StoredVersion


async def publish(tx: Transaction, workflow: Workflow, source: str, tenant: str = "default") -> StoredVersion:
    """Publish this version. Publishing the same content again changes nothing; other content raises
    VersionTaken.
    """
    published = await workflow_queries.store_workflow(tx, tenant, workflow, source, is_draft=False)
    if published.digest != workflow.digest:
        latest = await workflow_queries.find_workflow(tx, tenant, workflow.workflow_id, None)
        free = (latest[1] if latest else workflow.version) + 1
        raise VersionTaken(
            f"workflow {workflow.workflow_id!r} version {workflow.version} is published with other content; "
            f"the next free version is {free}"
        )
    return published


async def replace(tx: Transaction, workflow: Workflow, source: str, tenant: str = "default") -> StoredVersion:
    """Replace the content of this version, if it exists: for `cograil up --dev` only.

    Jobs that were created from the old content keep it.
    """
    await workflow_queries.unpublish_other(tx, tenant, workflow)
    return await publish(tx, workflow, source, tenant)


async def keep_draft(
    tx: Transaction, workflow: Workflow, source: str, tenant: str = "default"
) -> StoredVersion:
    """Store a draft, identified by its content, for `cograil run FILE`."""
    return await workflow_queries.store_workflow(tx, tenant, workflow, source, is_draft=True)


async def missing_handlers(tx: Transaction, workflow: Workflow) -> list[str]:
    """Return a message for each handler that no running worker has; none when no worker runs."""
    workers = [process for process in await list_processes(tx) if process["kind"] == "worker"]
    known = {name for worker in workers for name in worker["handlers"] or ()}
    return [
        f"node {node.node_id!r}: no running worker has the handler {node.handler!r}"
        f"{did_you_mean(node.handler, known)}"
        for node in workflow.nodes.values()
        if workers and node.handler and node.handler not in known
    ]
