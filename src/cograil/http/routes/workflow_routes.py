"""Workflows: publish a version, list and show them, pause and resume."""

from __future__ import annotations

import asyncio
from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from cograil.api_schemas import job_schemas
from cograil.definitions import read_workflow
from cograil.errors import WorkflowNotFound
from cograil.http.routes.job_action_routes import ReasonBody, actor
from cograil.http.server.dispatcher import Call, reply
from cograil.http.server.request_parsing import Body, Query
from cograil.http.server.routing import Router
from cograil.store import workflow_queries as store
from cograil.verbs import pause
from cograil.verbs.file_schedules import sync_schedules
from cograil.verbs.publish import publish

workflows = Router("workflows")
MAX_SOURCE = 256 * 1024


class WorkflowSource(Body):
    """The source of a workflow file."""

    source: Annotated[str, Field(min_length=1, max_length=MAX_SOURCE)]


class Version(Query):
    """A version; the newest by default."""

    version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None


@workflows.post(
    "/workflows",
    "operator",
    body=WorkflowSource,
    responses={
        201: "published",
        200: "the same version was published before",
        409: "the version has other content, or a schedule name is in use",
    },
    response_model=job_schemas.Published,
)
async def publish_workflow(call: Call) -> Response:
    """Publish a version of a workflow, and the schedules of its file."""
    workflow = await asyncio.to_thread(read_workflow, call.body.source)
    async with call.transaction("publish") as tx:
        publication = await publish(tx, workflow, call.body.source, call.caller.tenant)
        engine_context, tenant = call.context.engine_context, call.caller.tenant
        changes = await sync_schedules(tx, engine_context, workflow, tenant, by=actor(call))
        target = f"{workflow.workflow_id} {workflow.version}"
        if publication.is_new:
            await call.audit(tx, "publish", target)
        for change in changes:
            await call.audit(tx, f"{change.verb} schedule", change.name, workflow_id=workflow.workflow_id)
    answer = {
        "workflow_id": workflow.workflow_id,
        "version": workflow.version,
        "is_new": publication.is_new,
        "schedules": [change._asdict() for change in changes],
    }
    return reply(answer, 201 if publication.is_new else 200)


@workflows.get(
    "/workflows",
    "viewer",
    responses={200: "the newest version of each workflow"},
    response_model=job_schemas.WorkflowList,
)
async def list_workflows(call: Call) -> Response:
    """List the published workflows."""
    async with call.transaction("show") as tx:
        return reply({"workflows": await store.list_workflows(tx, call.caller.tenant)})


@workflows.get(
    "/workflows/{workflow_id}",
    "viewer",
    query=Version,
    responses={200: "its definition"},
    response_model=job_schemas.Workflow,
)
async def show_workflow(call: Call) -> Response:
    """Show a version of a workflow."""
    async with call.transaction("show") as tx:
        workflow = await store.show_workflow(
            tx, call.caller.tenant, call.path["workflow_id"], call.query.version
        )
    if workflow is None:
        raise WorkflowNotFound(call.path["workflow_id"][:64], call.query.version)
    return reply(workflow)


@workflows.get(
    "/workflows/{workflow_id}/versions",
    "viewer",
    responses={200: "newest first"},
    response_model=job_schemas.VersionList,
)
async def list_versions(call: Call) -> Response:
    """List the versions of a workflow."""
    async with call.transaction("show") as tx:
        versions = await store.list_versions(tx, call.caller.tenant, call.path["workflow_id"])
    if not versions:
        raise WorkflowNotFound(call.path["workflow_id"][:64])
    return reply({"versions": versions})


@workflows.post(
    "/workflows/{workflow_id}/pause",
    "operator",
    body=ReasonBody,
    is_body_optional=True,
    response_model=job_schemas.PausedWorkflow,
    responses={200: "paused", 409: "it is already paused"},
)
async def pause_workflow(call: Call) -> Response:
    """Pause a workflow: its jobs start no new nodes."""
    name, tenant = call.path["workflow_id"], call.caller.tenant
    async with call.transaction("pause") as tx:
        await pause.pause_workflow(tx, name, by=actor(call), reason=call.body.reason, tenant=tenant)
        await call.audit(tx, "pause workflow", name, reason=call.body.reason)
    return reply({"workflow_id": name, "is_paused": True})


@workflows.post(
    "/workflows/{workflow_id}/resume",
    "operator",
    body=Body,
    is_body_optional=True,
    response_model=job_schemas.PausedWorkflow,
    responses={200: "resumed", 409: "it is not paused"},
)
async def resume_workflow(call: Call) -> Response:
    """Resume a paused workflow."""
    name, tenant = call.path["workflow_id"], call.caller.tenant
    async with call.transaction("resume") as tx:
        await pause.resume_workflow(tx, name, tenant=tenant)
        await call.audit(tx, "resume workflow", name)
    return reply({"workflow_id": name, "is_paused": False})
