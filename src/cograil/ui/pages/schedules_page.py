"""Schedules and their firings: list, create, change and backfill."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import Annotated
from urllib.parse import quote

import orjson
from pydantic import Field
from starlette.responses import Response

from cograil.definitions.cron import moments
from cograil.errors import Conflict, InvalidInput, Problem
from cograil.http.routes import schedule_routes as calendar
from cograil.http.server.request_parsing import Query, as_model
from cograil.model.workflow import Json
from cograil.store import workflow_queries as workflow_store
from cograil.store.job_queries import View
from cograil.ui.input_form import as_json
from cograil.ui.page_context import HTML, PageRequest, as_call, pages, sent_form
from cograil.ui.pages.action_forms import read_range
from cograil.ui.rendering import gone_to, page, pretty
from cograil.ui.times import read_wall_time
from cograil.verbs import schedules as verbs

schedules = pages("schedules")
FIRINGS, COMING = 50, 5
WORDS = ("name", "workflow_id", "cron", "timezone", "overlap", "missed", "due_input")
NUMBERS = ("version", "priority")
Word = Annotated[str, Field(max_length=40)]


class BackfillRange(Query):
    """The range of a backfill; its times are in `zone`."""

    first: Word = ""
    until: Word = ""
    zone: Annotated[str, Field(max_length=64)] = "UTC"


@schedules.get("/schedules", "viewer", media_type=HTML)
async def list_schedules(request: PageRequest) -> Response:
    """Show all schedules, by name."""
    return await _listed(request)


async def _listed(
    request: PageRequest,
    form: Mapping[str, str] | None = None,
    problems: tuple[Problem, ...] = (),
    status: int = 200,
) -> Response:
    async with request.transaction("show") as tx:
        schedule_list = await verbs.list_schedules(tx, request.caller.tenant)
        workflows = await workflow_store.list_workflows(tx, request.caller.tenant)
    return page(
        request,
        "schedules.html",
        status=status,
        schedules=schedule_list,
        workflows=sorted({workflow["workflow_id"] for workflow in workflows}),
        form=form or {},
        problems=problems,
    )


@schedules.post("/schedules", "operator", media_type=HTML)
async def create_schedule(request: PageRequest) -> Response:
    """Create a schedule from the form."""
    form = await sent_form(request)
    call = as_call(request)
    try:
        call.body = as_model(_body_fields(form), calendar.NewSchedule)
        await calendar.create_schedule(call)
    except InvalidInput as error:
        return await _listed(request, form, error.problems, status=422)
    except Conflict as error:  # the name is in use: the page keeps the entered values
        problem = Problem(error.code, str(error), "/name")
        return await _listed(request, form, (problem,), status=error.status)
    return gone_to(request, "/ui/schedules", f"Schedule {call.body.name} created")


def _body_fields(form: Mapping[str, str]) -> dict[str, Json]:
    fields: dict[str, Json] = {name: form[name].strip() for name in WORDS if form.get(name, "").strip()}
    for name in NUMBERS:
        if text := form.get(name, "").strip():
            fields[name] = (
                int(text) if text.isdecimal() else text
            )  # the schema rejects other text, with the name of the field
    if form.get("input_params", "").strip():
        fields["input_params"] = as_json(form["input_params"], "/input_params")
    return fields


@schedules.get("/schedules/{schedule}", "viewer", query=BackfillRange, media_type=HTML)
async def show_schedule(request: PageRequest) -> Response:
    """Show one schedule with its last firings, and the preview of a backfill."""
    return await _shown(request, request.query)


@schedules.post("/schedules/{schedule}", "operator", media_type=HTML)
async def change_schedule(request: PageRequest) -> Response:
    """Change a schedule to the values of the form."""
    form = await sent_form(request)
    call, name = as_call(request), request.path["schedule"]
    try:
        call.body = as_model(_body_fields(form), calendar.ScheduleBody)
        await calendar.change_schedule(call)
    except InvalidInput as error:
        return await _shown(request, BackfillRange(), form, error.problems, status=422)
    return gone_to(request, f"/ui/schedules/{quote(name, safe='')}", f"Schedule {name} changed")


async def _shown(
    request: PageRequest,
    backfill: BackfillRange,
    form: Mapping[str, str] | None = None,
    wrong: tuple[Problem, ...] = (),
    status: int = 200,
) -> Response:
    name, tenant = request.path["schedule"], request.caller.tenant
    async with request.transaction("show") as tx:
        schedule = await verbs.show_schedule(tx, tenant, name)
        firings = await verbs.list_firings(tx, tenant, name, None, FIRINGS)
        workflows = await workflow_store.list_workflows(tx, tenant)
    backfill, preview, problems = await _preview(request, backfill)
    return page(
        request,
        "schedule.html",
        status=status,
        schedule=schedule,
        firings=firings,
        coming=_coming(schedule),
        zone=schedule["timezone"],
        workflows=sorted({workflow["workflow_id"] for workflow in workflows}),
        form=form or _as_form(schedule),
        wrong=wrong,
        backfill_range=backfill,
        preview=preview,
        problems=problems,
    )


async def _preview(
    request: PageRequest, backfill: BackfillRange
) -> tuple[BackfillRange, Json, tuple[Problem, ...]]:
    """Return the range in UTC, and the preview of its backfill, or the problems."""
    if not (backfill.first and backfill.until and request.caller.may("operator")):
        return backfill, None, ()
    call = as_call(request)
    try:
        backfill = _in_utc(backfill)
        call.body = read_range({"first": backfill.first, "until": backfill.until}, is_preview=True)
        preview = orjson.loads(bytes((await calendar.backfill(call)).body))
    except InvalidInput as error:
        return backfill, None, error.problems
    return backfill, preview | {"moments": [datetime.fromisoformat(at) for at in preview["moments"]]}, ()


def _in_utc(backfill: BackfillRange) -> BackfillRange:
    """Return the range in UTC. Raises InvalidInput for an invalid time."""
    clocks = {}
    for name in ("first", "until"):
        try:
            at = read_wall_time(getattr(backfill, name), backfill.zone)
        except ValueError as error:
            raise InvalidInput([Problem("invalid_value", f"{name}: {error}", f"/{name}")]) from None
        clocks[name] = f"{at:%Y-%m-%dT%H:%M}"
    return BackfillRange(**clocks, zone="UTC")


def _coming(schedule: View) -> list[datetime]:
    """Return the next times of the schedule."""
    if schedule["next_at"] is None or schedule["paused_at"] is not None:
        return []
    return [
        schedule["next_at"],
        *islice(moments(schedule["cron"], schedule["timezone"], schedule["next_at"]), COMING - 1),
    ]


def _as_form(schedule: View) -> dict[str, str]:
    """Return the form fields of the current schedule."""
    fields = {name: str(schedule[name]) for name in (*WORDS, *NUMBERS) if schedule[name] is not None}
    return fields | {"input_params": pretty(schedule["input_params"], max_length=2**31)}
