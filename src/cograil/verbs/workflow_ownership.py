"""Ownership of workflows: only an app starts the workflows of the app."""

from __future__ import annotations

from collections.abc import Mapping

from cograil.errors import WorkflowReserved
from cograil.model.handler_ownership import foreign_handlers
from cograil.model.workflow import Json, Workflow


def check_starter(workflow: Workflow, app: str | None) -> None:
    """Raise WorkflowReserved unless this app (None: any other caller) may start jobs of this workflow."""
    if workflow.app is not None and workflow.app != app:
        raise WorkflowReserved(
            f"workflow {workflow.workflow_id!r} belongs to {workflow.app!r}, which alone starts its jobs"
        )
    for node_id, handler, owner in foreign_handlers(workflow):  # published by an earlier version of the app
        raise WorkflowReserved(
            f"node {node_id!r} of workflow {workflow.workflow_id!r} names the handler {handler!r}, which "
            f"runs only in jobs that {owner!r} starts; publish a version without it"
        )


def check_retry(workflow: Workflow, inputs: Mapping[str, Json] | None) -> None:
    """Raise WorkflowReserved when a retry would give a job of an app inputs that the app did not write."""
    check_starter(workflow, workflow.app)
    if workflow.app is not None and inputs:
        raise WorkflowReserved(
            f"workflow {workflow.workflow_id!r} belongs to {workflow.app!r}; "
            "retry its job without other inputs"
        )
