"""Schedules: workflows that run by the calendar."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema
from starlette.responses import Response

from cograil.definitions.calendar import LONGEST_CRON
from cograil.intake.http.deeds import WithReason, by_whom
from cograil.intake.http.door import Call, reply
from cograil.intake.http.reading import Body, Query
from cograil.intake.http.table import Table
from cograil.intake.http.words import Moment, WorkflowName
from cograil.model import schedules as model
from cograil.model.schedules import Plan
from cograil.model.workflow import Json
from cograil.verbs import schedules as verbs

schedules = Table("schedules")

# Whatever it is, it is called by its own name: what is no calendar is refused by `check_calendar`.
Cron = Annotated[str, WithJsonSchema({"type": "string", "minLength": 1, "maxLength": LONGEST_CRON})]


class Calendar(Body):
    """What runs, and when."""

    workflow_id: WorkflowName
    cron: Cron
    timezone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    input_params: dict[str, Json] = Field(default_factory=dict)
    version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    due_input: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    priority: Annotated[int, Field(ge=0, le=10)] = 0
    overlap: Literal["skip", "allow", "cancel"] = "skip"
    missed: Literal["once", "all", "skip"] = "once"

    def plan(self) -> Plan:
        """As the engine knows it."""
        facts: dict[str, Any] = self.model_dump(exclude={"name", "input_params"})
        return Plan(input=self.input_params, **facts)


class CalendarChange(Body):
    """What changes; what is left out stays as it is."""

    workflow_id: WorkflowName = ""
    cron: Cron = ""
    timezone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    input_params: dict[str, Json] = Field(default_factory=dict)
    version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    due_input: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    priority: Annotated[int, Field(ge=0, le=10)] = 0
    overlap: Literal["skip", "allow", "cancel"] = "skip"
    missed: Literal["once", "all", "skip"] = "once"

    def facts(self) -> dict[str, Json]:
        """What the caller named, under the names of the plan."""
        facts: dict[str, Json] = self.model_dump(exclude_unset=True)
        if "input_params" in facts:
            facts["input"] = facts.pop("input_params")
        return facts


class NewSchedule(Calendar):
    """The same under a name."""

    name: Annotated[str, Field(min_length=1, max_length=64)]


class Resumption(Body):
    """With `detach`, one that was removed from its workflow file runs without the file."""

    detach: bool = False


class Range(Body):
    """From when to when, both included."""

    first: Moment
    until: Moment
    preview: bool = False


class FiringList(Query):
    """How many, and from where on."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    cursor: str | None = None


@schedules.post(
    "/schedules",
    "operator",
    body=NewSchedule,
    answers={201: "the schedule", 404: "no such workflow", 409: "there is one of this name"},
    gives=model.ShownSchedule,
)
async def create_schedule(call: Call) -> Response:
    """Run a workflow by the calendar from now on."""
    given: NewSchedule = call.body
    async with call.transaction("schedule") as tx:
        decider, tenant = call.instance.decider, call.caller.tenant
        made = await verbs.create_schedule(tx, decider, tenant, given.name, given.plan(), by=by_whom(call))
        await call.audit(tx, "create schedule", given.name, workflow_id=given.workflow_id, cron=given.cron)
    return reply(made, 201)


@schedules.get("/schedules", "viewer", answers={200: "all, by name"}, gives=model.ScheduleList)
async def list_schedules(call: Call) -> Response:
    """List the schedules."""
    async with call.transaction("show") as tx:
        return reply({"schedules": await verbs.list_schedules(tx, call.caller.tenant)})


@schedules.get("/schedules/{schedule}", "viewer", gives=model.ScheduleWithPassed)
async def show_schedule(call: Call) -> Response:
    """Show one schedule, and why it passed over moments since its last job."""
    tenant, name = call.caller.tenant, call.path["schedule"]
    async with call.transaction("show") as tx:
        shown = await verbs.show_schedule(tx, tenant, name)
        return reply(shown | {"passed_over": await verbs.passed_over(tx, tenant, name)})


@schedules.post(
    "/schedules/{schedule}",
    "operator",
    body=Calendar,
    answers={
        200: "the schedule as it is now",
        404: "no such schedule, or no such workflow",
        409: "it is in the file of its workflow",
    },
    gives=model.ShownSchedule,
)
async def change_schedule(call: Call) -> Response:
    """Change what a schedule runs, and when; all of it is given anew. PATCH changes only what it names."""
    name, given = call.path["schedule"], call.body
    async with call.transaction("schedule") as tx:
        decider, tenant = call.instance.decider, call.caller.tenant
        changed = await verbs.change_schedule(tx, decider, tenant, name, given.plan())
        await call.audit(tx, "change schedule", name, workflow_id=given.workflow_id, cron=given.cron)
    return reply(changed)


@schedules.patch(
    "/schedules/{schedule}",
    "operator",
    body=CalendarChange,
    answers={
        200: "the schedule as it is now",
        404: "no such schedule, or no such workflow",
        409: "it is in the file of its workflow",
    },
    gives=model.ShownSchedule,
)
async def update_schedule(call: Call) -> Response:
    """Change some of a schedule; what is left out stays, and input_params is replaced as a whole."""
    name, facts = call.path["schedule"], call.body.facts()
    async with call.transaction("schedule") as tx:
        decider, tenant = call.instance.decider, call.caller.tenant
        changed = await verbs.update_schedule(tx, decider, tenant, name, facts)
        shown = {"workflow_id": changed["workflow_id"], "cron": changed["cron"]}
        await call.audit(tx, "change schedule", name, **shown, changed=sorted(facts))
    return reply(changed)


@schedules.delete(
    "/schedules/{schedule}",
    "operator",
    answers={200: "nothing more of it is fired"},
    gives=model.RemovedSchedule,
)
async def remove_schedule(call: Call) -> Response:
    """Remove a schedule and its history; jobs of it go on."""
    name = call.path["schedule"]
    async with call.transaction("schedule") as tx:
        await verbs.remove_schedule(tx, call.caller.tenant, name)
        await call.audit(tx, "remove schedule", name)
    return reply({"name": name, "is_removed": True})


@schedules.post(
    "/schedules/{schedule}/pause",
    "operator",
    body=WithReason,
    is_body_optional=True,
    answers={200: "the schedule", 409: "it is paused already"},
    gives=model.ShownSchedule,
)
async def pause_schedule(call: Call) -> Response:
    """Pass over the moments of a schedule until it is resumed."""
    name = call.path["schedule"]
    async with call.transaction("schedule") as tx:
        by, reason = by_whom(call), call.body.reason
        shown = await verbs.pause_schedule(tx, call.caller.tenant, name, by=by, reason=reason)
        await call.audit(tx, "pause schedule", name, reason=reason)
    return reply(shown)


@schedules.post(
    "/schedules/{schedule}/resume",
    "operator",
    body=Resumption,
    is_body_optional=True,
    answers={200: "the schedule", 409: "it is not paused, or it was removed from its workflow file"},
    gives=model.ShownSchedule,
)
async def resume_schedule(call: Call) -> Response:
    """Run a paused schedule again, from now on.

    One that was removed from its workflow file needs `detach`: the file no longer changes it then.
    """
    name, detach = call.path["schedule"], call.body.detach
    async with call.transaction("schedule") as tx:
        shown = await verbs.resume_schedule(tx, call.caller.tenant, name, detach=detach)
        facts = {"detach": True} if detach else {}
        await call.audit(tx, "resume schedule", name, **facts)
    return reply(shown)


@schedules.post(
    "/schedules/{schedule}/run",
    "operator",
    body=Body,
    is_body_optional=True,
    answers={202: "the job that was submitted"},
    gives={202: model.ScheduleRun},
)
async def run_schedule(call: Call) -> Response:
    """Submit a job of a schedule now, besides its calendar."""
    name = call.path["schedule"]
    async with call.transaction("schedule") as tx:
        done = await verbs.run_schedule(tx, call.instance.decider, call.caller.tenant, name)
        await call.audit(tx, "run schedule", name, job_id=done["job_id"])
    return reply(done, 202, {"Location": f"/api/v1/jobs/{done['job_id']}"})


@schedules.post(
    "/schedules/{schedule}/backfill",
    "operator",
    body=Range,
    answers={200: "what was submitted, or would be"},
    gives=model.Backfill,
)
async def backfill(call: Call) -> Response:
    """Submit a job for each moment of a range of time that has led to none."""
    name, given = call.path["schedule"], call.body
    async with call.transaction("schedule") as tx:
        decider, tenant = call.instance.decider, call.caller.tenant
        done = await verbs.backfill(
            tx, decider, tenant, name, given.first, given.until, is_preview=given.preview
        )
        if not given.preview:
            told = {"first": given.first, "until": given.until, "submitted": done["submitted"]}
            await call.audit(tx, "backfill", name, **told)
    return reply(done)


@schedules.get(
    "/schedules/{schedule}/firings",
    "viewer",
    query=FiringList,
    answers={200: "a page of them, the latest first"},
    gives=model.FiringPage,
)
async def list_firings(call: Call) -> Response:
    """List what became of the moments of a schedule."""
    name, asked, tenant = call.path["schedule"], call.query, call.caller.tenant
    bound = (tenant, "firings", name)
    before = None if asked.cursor is None else call.instance.cursors.read(asked.cursor, *bound)
    async with call.transaction("show") as tx:
        moment = None if before is None else datetime.fromisoformat(before)
        found = await verbs.list_firings(tx, tenant, name, moment, asked.limit)
    is_last = len(found) < asked.limit
    cursor = None if is_last else call.instance.cursors.make(found[-1]["due_at"].isoformat(), *bound)
    return reply({"name": name, "firings": found, "next_cursor": cursor})
