"""Under which limit a task or a job is: its key, rendered."""

from __future__ import annotations

from cograil.engine.working_copy import WorkingCopy
from cograil.model.job import TaskLimit
from cograil.model.workflow import Json, Node, RenderError, Workflow

MAX_KEY = 256


def limit_of(job: WorkingCopy, node: Node, extra: dict[str, Json] | None = None) -> TaskLimit | None:
    """The limit of a task of this node; `extra` has item and index for a child. Raises RenderError."""
    limit = node.limit
    if limit is None:
        return None
    key = None if limit.key is None else job.render(limit.key, node, extra)
    name = limit_name(job.state.tenant_id, job.workflow.workflow_id, node.node_id, key)
    return TaskLimit(name, limit.concurrency, limit.rate, limit.per_seconds)


def limit_of_job(tenant: str, workflow: Workflow, given: Json) -> TaskLimit | None:
    """The limit under which a job with this input begins. Raises RenderError."""
    limit = workflow.limit
    if limit is None:
        return None
    key = None if limit.key is None else limit.key.render({"inputs": given})
    name = limit_name(tenant, workflow.workflow_id, "", key)
    return TaskLimit(name, limit.concurrency, limit.rate, limit.per_seconds)


def limit_name(tenant: str, workflow_id: str, node_id: str, key: Json) -> str:
    """One name for all that share a limit, whatever the version of the workflow. Raises RenderError."""
    if isinstance(key, dict | list):
        raise RenderError(
            "invalid_limit_key", "the key of a limit must be a plain value, not a list or mapping"
        )
    shown = "" if key is None else str(key)
    if len(shown) > MAX_KEY:
        raise RenderError("invalid_limit_key", f"the key of a limit has more than {MAX_KEY} characters")
    return f"{tenant}/{workflow_id}/{node_id}/{shown}"
