"""Start jobs of an app. The app publishes the workflow in its own name, and only the app starts it."""

from __future__ import annotations

from typing import Any

from cograil.definitions import read_workflow
from cograil.store.database import Transaction
from cograil.verbs.advance import EngineContext
from cograil.verbs.publish import publish
from cograil.verbs.submit import Submission, submit


async def submit_app_job(
    tx: Transaction,
    engine_context: EngineContext,
    app: str,
    workflow: str,
    inputs: dict[str, Any],
    tenant: str = "default",
    **options: Any,
) -> str:
    """Submit a job of the workflow in this YAML text and return its id. A new workflow is published first.

    The workflow's id must begin with `cograil.`. `options` are further fields of `Submission`, such as
    labels.
    """
    published = await publish(tx, read_workflow(workflow, app=app), workflow, tenant)
    workflow_id = read_workflow(workflow, app=app).workflow_id
    submission = Submission(workflow_id, inputs, definition_id=published.definition_id, app=app, **options)
    (job_id,) = await submit(tx, engine_context, [submission], tenant)
    return job_id
