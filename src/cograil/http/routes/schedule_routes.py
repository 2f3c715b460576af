"""Schedules: workflows that run at the times of a cron expression."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema
from starlette.responses import Response

from cograil.definitions.cron import MAX_CRON
from cograil.http.routes.job_action_routes import ReasonBody, actor
from cograil.http.server.dispatcher import Call, reply
from cograil.http.server.field_types import Moment, WorkflowName
from cograil.http.server.request_parsing import Body, Query
from cograil.http.server.routing import Router
from cograil.model import schedule as model
from cograil.model.schedule import SchedulePlan
from cograil.model.workflow import Json
from cograil.verbs import schedules as verbs

schedules = Router("schedules")

# Any text is valid here: `check_calendar` rejects invalid expressions with their own error code.
Cron = Annotated[str, WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_CRON})]


class ScheduleBody(Body):
    """The workflow of a schedule, and its times."""

    workflow_id: WorkflowName
    cron: Cron
    timezone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    input_params: dict[str, Json] = Field(default_factory=dict)
    version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    due_input: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    priority: Annotated[int, Field(ge=0, le=10)] = 0
    overlap: Literal["skip", "allow", "cancel"] = "skip"
    missed: Literal["once", "all", "skip"] = "once"

    def plan(self) -> SchedulePlan:
        """Return the plan for the engine."""
        fields: dict[str, Any] = self.model_dump(exclude={"name", "input_params"})
        return SchedulePlan(input=self.input_params, **fields)


class SchedulePatch(Body):
    """A partial change; omitted fields keep their values."""

    workflow_id: WorkflowName = ""
    cron: Cron = ""
    timezone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    input_params: dict[str, Json] = Field(default_factory=dict)
    version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    due_input: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    priority: Annotated[int, Field(ge=0, le=10)] = 0
    overlap: Literal["skip", "allow", "cancel"] = "skip"
    missed: Literal["once", "all", "skip"] = "once"

    def changes(self) -> dict[str, Json]:
        """Return the fields of the request, under their names in the plan."""
        fields: dict[str, Json] = self.model_dump(exclude_unset=True)
        if "input_params" in fields:
            fields["input"] = fields.pop("input_params")
        return fields


class NewSchedule(ScheduleBody):
    """A named schedule."""

    name: Annotated[str, Field(min_length=1, max_length=64)]


class Resumption(Body):
    """`detach` resumes a schedule that was removed from its workflow file."""

    detach: bool = False


class BackfillBody(Body):
    """The range of a backfill, both ends included."""

    first: Moment
    until: Moment
    preview: bool = False


class FiringList(Query):
    """The page of the firings."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    cursor: str | None = None


@schedules.post(
    "/schedules",
    "operator",
    body=NewSchedule,
    responses={201: "the schedule", 404: "no such workflow", 409: "the name is in use"},
    response_model=model.ShownSchedule,
)
async def create_schedule(call: Call) -> Response:
    """Create a schedule."""
    body: NewSchedule = call.body
    async with call.transaction("schedule") as tx:
        engine_context, tenant = call.context.engine_context, call.caller.tenant
        schedule = await verbs.create_schedule(
            tx, engine_context, tenant, body.name, body.plan(), by=actor(call)
        )
        await call.audit(tx, "create schedule", body.name, workflow_id=body.workflow_id, cron=body.cron)
    return reply(schedule, 201)


@schedules.get("/schedules", "viewer", responses={200: "all, by name"}, response_model=model.ScheduleList)
async def list_schedules(call: Call) -> Response:
    """List the schedules."""
    async with call.transaction("show") as tx:
        return reply({"schedules": await verbs.list_schedules(tx, call.caller.tenant)})


@schedules.get("/schedules/{schedule}", "viewer", response_model=model.ScheduleWithPassed)
async def show_schedule(call: Call) -> Response:
    """Show one schedule, and why it skipped times since its last job."""
    tenant, name = call.caller.tenant, call.path["schedule"]
    async with call.transaction("show") as tx:
        schedule = await verbs.show_schedule(tx, tenant, name)
        return reply(schedule | {"passed_over": await verbs.passed_over(tx, tenant, name)})


@schedules.post(
    "/schedules/{schedule}",
    "operator",
    body=ScheduleBody,
    responses={
        200: "the schedule as it is now",
        404: "no such schedule, or no such workflow",
        409: "its workflow file defines it",
    },
    response_model=model.ShownSchedule,
)
async def change_schedule(call: Call) -> Response:
    """Replace all fields of a schedule. PATCH changes only the given fields."""
    name, body = call.path["schedule"], call.body
    async with call.transaction("schedule") as tx:
        engine_context, tenant = call.context.engine_context, call.caller.tenant
        schedule = await verbs.change_schedule(tx, engine_context, tenant, name, body.plan())
        await call.audit(tx, "change schedule", name, workflow_id=body.workflow_id, cron=body.cron)
    return reply(schedule)


@schedules.patch(
    "/schedules/{schedule}",
    "operator",
    body=SchedulePatch,
    responses={
        200: "the schedule as it is now",
        404: "no such schedule, or no such workflow",
        409: "its workflow file defines it",
    },
    response_model=model.ShownSchedule,
)
async def update_schedule(call: Call) -> Response:
    """Change the given fields of a schedule; `input_params` is replaced as a whole."""
    name, changes = call.path["schedule"], call.body.changes()
    async with call.transaction("schedule") as tx:
        engine_context, tenant = call.context.engine_context, call.caller.tenant
        schedule = await verbs.update_schedule(tx, engine_context, tenant, name, changes)
        new_values = {"workflow_id": schedule["workflow_id"], "cron": schedule["cron"]}
        await call.audit(tx, "change schedule", name, **new_values, changed=sorted(changes))
    return reply(schedule)


@schedules.delete(
    "/schedules/{schedule}",
    "operator",
    responses={200: "removed"},
    response_model=model.RemovedSchedule,
)
async def remove_schedule(call: Call) -> Response:
    """Remove a schedule and its history; its jobs continue."""
    name = call.path["schedule"]
    async with call.transaction("schedule") as tx:
        await verbs.remove_schedule(tx, call.caller.tenant, name)
        await call.audit(tx, "remove schedule", name)
    return reply({"name": name, "is_removed": True})


@schedules.post(
    "/schedules/{schedule}/pause",
    "operator",
    body=ReasonBody,
    is_body_optional=True,
    responses={200: "the schedule", 409: "it is already paused"},
    response_model=model.ShownSchedule,
)
async def pause_schedule(call: Call) -> Response:
    """Pause a schedule: its times are skipped until it is resumed."""
    name = call.path["schedule"]
    async with call.transaction("schedule") as tx:
        by, reason = actor(call), call.body.reason
        schedule = await verbs.pause_schedule(tx, call.caller.tenant, name, by=by, reason=reason)
        await call.audit(tx, "pause schedule", name, reason=reason)
    return reply(schedule)


@schedules.post(
    "/schedules/{schedule}/resume",
    "operator",
    body=Resumption,
    is_body_optional=True,
    responses={200: "the schedule", 409: "it is not paused, or it was removed from its workflow file"},
    response_model=model.ShownSchedule,
)
async def resume_schedule(call: Call) -> Response:
    """Resume a paused schedule.

    A schedule that was removed from its workflow file needs `detach`: afterwards the file no longer changes it.
    """
    name, detach = call.path["schedule"], call.body.detach
    async with call.transaction("schedule") as tx:
        schedule = await verbs.resume_schedule(tx, call.caller.tenant, name, detach=detach)
        data = {"detach": True} if detach else {}
        await call.audit(tx, "resume schedule", name, **data)
    return reply(schedule)


@schedules.post(
    "/schedules/{schedule}/run",
    "operator",
    body=Body,
    is_body_optional=True,
    responses={202: "the submitted job"},
    response_model={202: model.ScheduleRun},
)
async def run_schedule(call: Call) -> Response:
    """Submit a job of a schedule now, in addition to its times."""
    name = call.path["schedule"]
    async with call.transaction("schedule") as tx:
        run = await verbs.run_schedule(tx, call.context.engine_context, call.caller.tenant, name)
        await call.audit(tx, "run schedule", name, job_id=run["job_id"])
    return reply(run, 202, {"Location": f"/api/v1/jobs/{run['job_id']}"})


@schedules.post(
    "/schedules/{schedule}/backfill",
    "operator",
    body=BackfillBody,
    responses={200: "the submitted jobs, or a preview"},
    response_model=model.Backfill,
)
async def backfill(call: Call) -> Response:
    """Submit a job for each time of a range that has none."""
    name, body = call.path["schedule"], call.body
    async with call.transaction("schedule") as tx:
        engine_context, tenant = call.context.engine_context, call.caller.tenant
        result = await verbs.backfill(
            tx, engine_context, tenant, name, body.first, body.until, is_preview=body.preview
        )
        if not body.preview:
            data = {"first": body.first, "until": body.until, "submitted": result["submitted"]}
            await call.audit(tx, "backfill", name, **data)
    return reply(result)


@schedules.get(
    "/schedules/{schedule}/firings",
    "viewer",
    query=FiringList,
    responses={200: "a page of firings, the latest first"},
    response_model=model.FiringPage,
)
async def list_firings(call: Call) -> Response:
    """List the firings of a schedule."""
    name, query, tenant = call.path["schedule"], call.query, call.caller.tenant
    bound = (tenant, "firings", name)
    before = None if query.cursor is None else call.context.cursors.read(query.cursor, *bound)
    async with call.transaction("show") as tx:
        moment = None if before is None else datetime.fromisoformat(before)
        firings = await verbs.list_firings(tx, tenant, name, moment, query.limit)
    is_last = len(firings) < query.limit
    cursor = None if is_last else call.context.cursors.make(firings[-1]["due_at"].isoformat(), *bound)
    return reply({"name": name, "firings": firings, "next_cursor": cursor})
