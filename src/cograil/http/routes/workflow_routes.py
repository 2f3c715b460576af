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
from cograil.model.workflow import Json, Workflow
from cograil.store import workflow_queries as store
from cograil.store.database import Transaction
from cograil.verbs import pause
from cograil.verbs.file_schedules import sync_schedules
from cograil.verbs.publish import missing_handlers, publish

workflows = Router("workflows")
MAX_SOURCE = 256 * 1024
MAX_SOURCES = 200
MAX_SOURCES_BODY = 8 * 1024 * 1024


class WorkflowSource(Body):
    """The source of a workflow file."""

    source: Annotated[str, Field(min_length=1, max_length=MAX_SOURCE)]


class Sources(Body):
    """The texts of several workflow files."""

    sources: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=MAX_SOURCE)]],
        Field(min_length=1, max_length=MAX_SOURCES),
    ]


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
        published = await _publish(call, tx, workflow, call.body.source)
    fields = ("workflow_id", "version", "is_new", "schedules")
    return reply({name: published[name] for name in fields}, 201 if published["is_new"] else 200)


@workflows.post(
    "/workflows/batch",
    "operator",
    body=Sources,
    max_body=MAX_SOURCES_BODY,
    responses={
        200: "for each file, in order, what publishing did",
        409: "other content has this version, or a schedule its name",
    },
    response_model=job_schemas.PublishedFiles,
)
async def publish_workflows(call: Call) -> Response:
    """Publish several workflow files and their schedules, all or none."""
    sources = call.body.sources
    workflows = [await asyncio.to_thread(read_workflow, source) for source in sources]
    async with call.transaction("publish") as tx:
        published = [
            await _publish(call, tx, workflow, source)
            for workflow, source in zip(workflows, sources, strict=True)
        ]
    return reply({"workflows": published})


async def _publish(call: Call, tx: Transaction, workflow: Workflow, source: str) -> dict[str, Json]:
    """Publish one version with its schedules, and record both in the audit log."""
    tenant = call.caller.tenant
    published = await publish(tx, workflow, source, tenant)
    changes = await sync_schedules(tx, call.context.engine_context, workflow, tenant, by=actor(call))
    if published.is_new:
        await call.audit(tx, "publish", f"{workflow.workflow_id} {workflow.version}")
    for change in changes:
        await call.audit(tx, f"{change.verb} schedule", change.name, workflow_id=workflow.workflow_id)
    return {
        "workflow_id": published.workflow_id,
        "version": published.version,
        "digest": published.digest,
        "is_new": published.is_new,
        "schedules": [change._asdict() for change in changes],
        "warnings": await missing_handlers(tx, workflow),
    }


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
