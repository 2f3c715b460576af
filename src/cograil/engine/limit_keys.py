"""The rendered key of the limit that a task or a job is under."""

from __future__ import annotations

from cograil.engine.working_copy import WorkingCopy
from cograil.model.job import TaskLimit
from cograil.model.workflow import Json, RenderError, Workflow, WorkflowNode

MAX_KEY_LENGTH = 256


def limit_of(job: WorkingCopy, node: WorkflowNode, extra: dict[str, Json] | None = None) -> TaskLimit | None:
    """Return the limit of a task of this node; None without one. Raises RenderError.

    `extra` holds `item` and `index` for a child of a fan-out.
    """
    limit = node.limit
    if limit is None:
        return None
    key = None if limit.key is None else job.render(limit.key, node, extra)
    name = limit_name(job.state.tenant_id, job.workflow.workflow_id, node.node_id, key)
    return TaskLimit(name, limit.concurrency, limit.rate, limit.per_seconds)


def limit_of_job(tenant: str, workflow: Workflow, inputs: Json) -> TaskLimit | None:
    """Return the limit of a job with these inputs; None without one. Raises RenderError."""
    limit = workflow.limit
    if limit is None:
        return None
    key = None if limit.key is None else limit.key.render({"inputs": inputs})
    name = limit_name(tenant, workflow.workflow_id, "", key)
    return TaskLimit(name, limit.concurrency, limit.rate, limit.per_seconds)


def limit_name(tenant: str, workflow_id: str, node_id: str, key: Json) -> str:
    """Return the name that all versions of a workflow share for this limit. Raises RenderError."""
    if isinstance(key, dict | list):
        raise RenderError(
            "invalid_limit_key", "the key of a limit must be a plain value, not a list or mapping"
        )
    text = "" if key is None else str(key)
    if len(text) > MAX_KEY_LENGTH:
        raise RenderError(
            "invalid_limit_key", f"the key of a limit has more than {MAX_KEY_LENGTH} characters"
        )
    return f"{tenant}/{workflow_id}/{node_id}/{text}"
