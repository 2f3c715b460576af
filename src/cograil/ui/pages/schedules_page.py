"""Schedules: what runs by the calendar and its firings; create, change and backfill one."""

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
    """The time to backfill, previewed first; the clocks are of `zone`."""

    first: Word = ""
    until: Word = ""
    zone: Annotated[str, Field(max_length=64)] = "UTC"


@schedules.get("/schedules", "viewer", media_type=HTML)
async def list_schedules(request: PageRequest) -> Response:
    """All of them, by name."""
    return await _listed(request)


async def _listed(
    request: PageRequest,
    form: Mapping[str, str] | None = None,
    problems: tuple[Problem, ...] = (),
    status: int = 200,
) -> Response:
    async with request.transaction("show") as tx:
        found = await verbs.list_schedules(tx, request.caller.tenant)
        known = await workflow_store.list_workflows(tx, request.caller.tenant)
    return page(
        request,
        "schedules.html",
        status=status,
        schedules=found,
        workflows=sorted({one["workflow_id"] for one in known}),
        form=form or {},
        problems=problems,
    )


@schedules.post("/schedules", "operator", media_type=HTML)
async def create_schedule(request: PageRequest) -> Response:
    """Create a schedule from the form."""
    form = await sent_form(request)
    call = as_call(request)
    try:
        call.body = as_model(_asked(form), calendar.NewSchedule)
        await calendar.create_schedule(call)
    except InvalidInput as error:
        return await _listed(request, form, error.problems, status=422)
    except Conflict as error:  # the name is taken: what was written stays on the page
        taken = Problem(error.code, str(error), "/name")
        return await _listed(request, form, (taken,), status=error.status)
    return gone_to(request, "/ui/schedules", f"Schedule {call.body.name} created")


def _asked(form: Mapping[str, str]) -> dict[str, Json]:
    asked: dict[str, Json] = {name: form[name].strip() for name in WORDS if form.get(name, "").strip()}
    for name in NUMBERS:
        if text := form.get(name, "").strip():
            asked[name] = int(text) if text.isdecimal() else text  # what is no number is refused by its name
    if form.get("input_params", "").strip():
        asked["input_params"] = as_json(form["input_params"], "/input_params")
    return asked


@schedules.get("/schedules/{schedule}", "viewer", query=BackfillRange, media_type=HTML)
async def show_schedule(request: PageRequest) -> Response:
    """One schedule with its last firings, and the preview of a backfill."""
    return await _shown(request, request.query)


@schedules.post("/schedules/{schedule}", "operator", media_type=HTML)
async def change_schedule(request: PageRequest) -> Response:
    """Run what the form says instead, from now on."""
    form = await sent_form(request)
    call, name = as_call(request), request.path["schedule"]
    try:
        call.body = as_model(_asked(form), calendar.ScheduleBody)
        await calendar.change_schedule(call)
    except InvalidInput as error:
        return await _shown(request, BackfillRange(), form, error.problems, status=422)
    return gone_to(request, f"/ui/schedules/{quote(name, safe='')}", f"Schedule {name} changed")


async def _shown(
    request: PageRequest,
    asked: BackfillRange,
    form: Mapping[str, str] | None = None,
    wrong: tuple[Problem, ...] = (),
    status: int = 200,
) -> Response:
    name, tenant = request.path["schedule"], request.caller.tenant
    async with request.transaction("show") as tx:
        shown = await verbs.show_schedule(tx, tenant, name)
        firings = await verbs.list_firings(tx, tenant, name, None, FIRINGS)
        known = await workflow_store.list_workflows(tx, tenant)
    asked, preview, problems = await _preview(request, asked)
    return page(
        request,
        "schedule.html",
        status=status,
        schedule=shown,
        firings=firings,
        coming=_coming(shown),
        zone=shown["timezone"],
        workflows=sorted({one["workflow_id"] for one in known}),
        form=form or _as_form(shown),
        wrong=wrong,
        asked=asked,
        preview=preview,
        problems=problems,
    )


async def _preview(
    request: PageRequest, asked: BackfillRange
) -> tuple[BackfillRange, Json, tuple[Problem, ...]]:
    """The range in UTC, and what a backfill of it would submit; or why it is refused."""
    if not (asked.first and asked.until and request.caller.may("operator")):
        return asked, None, ()
    call = as_call(request)
    try:
        asked = _in_utc(asked)
        call.body = read_range({"first": asked.first, "until": asked.until}, is_preview=True)
        preview = orjson.loads(bytes((await calendar.backfill(call)).body))
    except InvalidInput as error:
        return asked, None, error.problems
    return asked, preview | {"moments": [datetime.fromisoformat(at) for at in preview["moments"]]}, ()


def _in_utc(asked: BackfillRange) -> BackfillRange:
    """The same range with its clocks in UTC. Raises InvalidInput for what is not a time."""
    clocks = {}
    for name in ("first", "until"):
        try:
            at = read_wall_time(getattr(asked, name), asked.zone)
        except ValueError as error:
            raise InvalidInput([Problem("invalid_value", f"{name}: {error}", f"/{name}")]) from None
        clocks[name] = f"{at:%Y-%m-%dT%H:%M}"
    return BackfillRange(**clocks, zone="UTC")


def _coming(shown: View) -> list[datetime]:
    """The next times at which the schedule fires."""
    if shown["next_at"] is None or shown["paused_at"] is not None:
        return []
    return [
        shown["next_at"],
        *islice(moments(shown["cron"], shown["timezone"], shown["next_at"]), COMING - 1),
    ]


def _as_form(shown: View) -> dict[str, str]:
    """The fields of a form that would change nothing."""
    fields = {name: str(shown[name]) for name in (*WORDS, *NUMBERS) if shown[name] is not None}
    return fields | {"input_params": pretty(shown["input_params"], most=2**31)}
