"""A new file names no handler that belongs to an app, and takes no workflow id of one."""

from __future__ import annotations

from collections.abc import Mapping

from cograil.definitions.diagnostics import Diagnostics
from cograil.definitions.unlinked_nodes import UnlinkedNode
from cograil.model.handler_ownership import is_reserved_workflow, owner_of_handler
from cograil.model.workflow import NodeType


def check_owner(
    workflow_id: str, drafts: Mapping[str, UnlinkedNode], app: str | None, report: Diagnostics
) -> None:
    """Report what in this file only another app may use; `app` is the one that publishes it."""
    if app is None and is_reserved_workflow(workflow_id):
        message = f"workflow ids that begin with 'cograil.' belong to apps; give {workflow_id!r} another name"
        report.add("workflow_reserved", message, "/workflow_id")
    for node_id, draft in drafts.items():
        owner = owner_of_handler(draft.node.handler)
        if owner is not None and owner != app:
            message = (
                f"handler {draft.node.handler!r} belongs to {owner!r} and runs only in jobs that {owner!r} "
                "starts; name a handler of your own"
            )
            keys = "task/handler" if draft.node.type is NodeType.FAN_OUT else "handler"
            report.add("handler_reserved", message, f"/nodes/{node_id}/{keys}")
