"""/v1/jobs: container jobs, in the format of the API that this app replaces.

Every error is `{"error": ...}`; an invalid request is always 400.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self, cast

import orjson
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from cograil import metrics, strict_json
from cograil.apps.containers import jobs
from cograil.apps.containers.jobs import ContainerCaller
from cograil.apps.containers.metrics import count_end, counted
from cograil.apps.containers.request import ContainerRequest, read_request
from cograil.apps.containers.schemas import AcceptedContainer, ShownContainer, ShownContainers
from cograil.apps.containers.settings import ContainerSettings
from cograil.http.routes.job_action_routes import actor
from cograil.http.routes.job_routes import trace_parent_of
from cograil.http.server.dispatcher import ApiContext, Call, Dispatcher, reply
from cograil.http.server.openapi import JSON, ApiDescription, ApiInfo, operation_id_from_function
from cograil.http.server.problem_details import Refusal
from cograil.http.server.request_parsing import Body
from cograil.http.server.routing import Router

PREFIX = "/v1/jobs"
UNREADABLE = frozenset({413, 422})
SHARED = {"access-control-allow-origin": "*"}
PREFLIGHT = SHARED | {
    "access-control-allow-methods": "GET, POST, DELETE, OPTIONS",
    "access-control-allow-headers": "authorization, content-type",
    "access-control-max-age": "600",
}

ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}

containers = Router("containers", "/v1")


class NewContainerJob(Body):
    """The body of POST /v1/jobs."""

    request: ContainerRequest

    @classmethod
    def of_bytes(cls, raw: bytes, max_bytes: int) -> Self:
        made = cls.model_construct(request=read_request(strict_json.read(raw, max_bytes=max_bytes)))
        return cast("Self", made)


@containers.post(
    "/jobs",
    "submitter",
    body=NewContainerJob,
    request_model=ContainerRequest,
    response_model=AcceptedContainer,
    is_type_optional=True,
    responses={202: "the container will run", 409: "another container job has this id"},
)
async def create_container_job(call: Call) -> Response:
    """Run a container."""
    request: ContainerRequest = call.body.request
    async with call.transaction("submit") as tx:
        job_id = await jobs.make(tx, call.context.engine_context, request, _caller(call))
        await call.audit(tx, "submit", job_id, container_job=request.id)
    metrics.container_jobs.inc()
    return reply({"id": request.id, "status": "accepted"}, 202)


@containers.get("/jobs", "viewer", response_model=ShownContainers)
async def list_container_jobs(call: Call) -> Response:
    """List container jobs that run or ended recently."""
    async with call.transaction("show") as tx:
        return reply({"jobs": await jobs.list_all(tx, _caller(call))})


@containers.get("/jobs/{id}", "viewer", response_model=ShownContainer)
async def show_container_job(call: Call) -> Response:
    """Show a container job."""
    async with call.transaction("show") as tx:
        return reply(await jobs.show(tx, call.path["id"], _caller(call)))


@containers.delete("/jobs/{id}", "submitter", responses={204: "the job has ended, or will soon"})
async def stop_container_job(call: Call) -> Response:
    """Cancel a container job; one that has ended is unchanged."""
    async with call.transaction("cancel") as tx:
        job_id, end = await jobs.stop(tx, call.context.engine_context, call.path["id"], _caller(call))
        if job_id is not None:
            await call.audit(tx, "cancel", job_id, container_job=call.path["id"])
    count_end(end)
    return Response(status_code=204)


def _caller(call: Call) -> ContainerCaller:
    settings = call.context.settings.section(ContainerSettings)
    by, trace_parent = actor(call) or None, trace_parent_of(call)
    return ContainerCaller(call.caller.tenant, by, settings.retention_seconds, trace_parent)


def render_error(refusal: Refusal, request_id: str) -> Response:
    """The error response of this API."""
    status = 400 if refusal.status in UNREADABLE else refusal.status
    body = orjson.dumps({"error": refusal.detail})
    return Response(body, status, media_type="application/json", headers={**refusal.headers})


DESCRIBED = ApiDescription(
    ApiInfo(
        "cograil containers",
        ("Error", ERROR),
        JSON,
        probes=(),
        operation_id=operation_id_from_function,
        statuses_sent_as_400=UNREADABLE,
    ),
    (containers,),
)


def containers_app(instance: ApiContext) -> ASGIApp:
    """The ASGI application of /v1/jobs.

    Where keys are required, pages of any origin may call it (CORS): browsers do not send keys by themselves.
    """
    dispatcher = Dispatcher(replace(instance), [containers], render_error)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        is_shared = scope["type"] == "http" and await instance.keys.has_keys()
        if is_shared and scope["method"] == "OPTIONS":
            await Response(status_code=204, headers=PREFLIGHT)(scope, receive, send)
            return

        async def send_shared(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(name.encode(), value.encode()) for name, value in SHARED.items()]
            await send(message)

        await dispatcher(scope, receive, send_shared if is_shared else send)

    return counted(serve)


def app_routes(instance: ApiContext) -> dict[str, ASGIApp]:
    """The applications of this app by path prefix."""
    return {PREFIX: containers_app(instance)}


def described() -> ApiDescription:
    """The description of these routes, for the API reference."""
    return DESCRIBED
