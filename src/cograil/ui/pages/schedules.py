"""Schedules: what runs by the calendar, what became of it; make one, and make good what was missed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import Annotated
from urllib.parse import quote
from zoneinfo import ZoneInfo

import orjson
from pydantic import Field
from starlette.responses import Response

from cograil.definitions.calendar import moments
from cograil.errors import Conflict, InvalidInput, Problem
from cograil.intake.http import schedules as calendar
from cograil.intake.http.reading import Query, as_model
from cograil.model.workflow import Json
from cograil.store import workflows as workflow_store
from cograil.store.reading import View
from cograil.ui.pages.actions import read_range
from cograil.ui.pages.submitting import as_json
from cograil.ui.rendering import gone_to, page, pretty
from cograil.ui.visits import HTML, Visit, as_call, pages, sent_form
from cograil.verbs import schedules as verbs

schedules = pages("schedules")
FIRINGS, COMING = 50, 5
WORDS = ("name", "workflow_id", "cron", "timezone", "overlap", "missed", "due_input")
NUMBERS = ("version", "priority")
Word = Annotated[str, Field(max_length=40)]


class Stretch(Query):
    """The time to make good, to be looked at first."""

    first: Word = ""
    until: Word = ""


@schedules.get("/schedules", "viewer", media_type=HTML)
async def list_schedules(visit: Visit) -> Response:
    """All of them, by name."""
    return await _listed(visit)


async def _listed(
    visit: Visit, form: Mapping[str, str] | None = None, problems: tuple[Problem, ...] = (), status: int = 200
) -> Response:
    async with visit.transaction("show") as tx:
        found = await verbs.list_schedules(tx, visit.caller.tenant)
        known = await workflow_store.list_workflows(tx, visit.caller.tenant)
    return page(
        visit,
        "schedules.html",
        status=status,
        schedules=found,
        workflows=sorted({one["workflow_id"] for one in known}),
        form=form or {},
        problems=problems,
    )


@schedules.post("/schedules", "operator", media_type=HTML)
async def create_schedule(visit: Visit) -> Response:
    """Make a schedule of what the form says."""
    form = await sent_form(visit)
    call = as_call(visit)
    try:
        call.body = as_model(_asked(form), calendar.NewSchedule)
        await calendar.create_schedule(call)
    except InvalidInput as error:
        return await _listed(visit, form, error.problems, status=422)
    except Conflict as error:  # the name is taken: what was written stays on the page
        taken = Problem(error.code, str(error), "/name")
        return await _listed(visit, form, (taken,), status=error.status)
    return gone_to(visit, "/ui/schedules", f"the schedule {call.body.name} was made")


def _asked(form: Mapping[str, str]) -> dict[str, Json]:
    asked: dict[str, Json] = {name: form[name].strip() for name in WORDS if form.get(name, "").strip()}
    for name in NUMBERS:
        if text := form.get(name, "").strip():
            asked[name] = int(text) if text.isdecimal() else text  # what is no number is refused by its name
    if form.get("input_params", "").strip():
        asked["input_params"] = as_json(form["input_params"], "/input_params")
    return asked


@schedules.get("/schedules/{schedule}", "viewer", query=Stretch, media_type=HTML)
async def show_schedule(visit: Visit) -> Response:
    """One with its last firings, and what making good a stretch of time would do."""
    return await _shown(visit, visit.query)


@schedules.post("/schedules/{schedule}", "operator", media_type=HTML)
async def change_schedule(visit: Visit) -> Response:
    """Run what the form says instead, from now on."""
    form = await sent_form(visit)
    call, name = as_call(visit), visit.path["schedule"]
    try:
        call.body = as_model(_asked(form), calendar.Calendar)
        await calendar.change_schedule(call)
    except InvalidInput as error:
        return await _shown(visit, Stretch(), form, error.problems, status=422)
    return gone_to(visit, f"/ui/schedules/{quote(name, safe='')}", f"the schedule {name} was changed")


async def _shown(
    visit: Visit,
    asked: Stretch,
    form: Mapping[str, str] | None = None,
    wrong: tuple[Problem, ...] = (),
    status: int = 200,
) -> Response:
    name, tenant = visit.path["schedule"], visit.caller.tenant
    async with visit.transaction("show") as tx:
        shown = await verbs.show_schedule(tx, tenant, name)
        firings = await verbs.list_firings(tx, tenant, name, None, FIRINGS)
        known = await workflow_store.list_workflows(tx, tenant)
    preview, problems = await _preview(visit, asked)
    return page(
        visit,
        "schedule.html",
        status=status,
        schedule=shown,
        firings=firings,
        coming=_coming(shown),
        workflows=sorted({one["workflow_id"] for one in known}),
        form=form or _as_form(shown),
        wrong=wrong,
        asked=asked,
        preview=preview,
        problems=problems,
    )


async def _preview(visit: Visit, asked: Stretch) -> tuple[Json, tuple[Problem, ...]]:
    """What a backfill would do; or why there can be none."""
    if not (asked.first and asked.until and visit.caller.may("operator")):
        return None, ()
    call = as_call(visit)
    try:
        call.body = read_range({"first": asked.first, "until": asked.until}, is_preview=True)
        return orjson.loads(bytes((await calendar.backfill(call)).body)), ()
    except InvalidInput as error:
        return None, error.problems


def _coming(shown: View) -> list[tuple[datetime, str]]:
    """The next moments, and what a clock of its time zone says then."""
    if shown["next_at"] is None or shown["paused_at"] is not None:
        return []
    cron, zone = shown["cron"], shown["timezone"]
    found = (shown["next_at"], *islice(moments(cron, zone, shown["next_at"]), COMING - 1))
    return [(moment, f"{moment.astimezone(ZoneInfo(zone)):%a %-d %b %Y, %H:%M}") for moment in found]


def _as_form(shown: View) -> dict[str, str]:
    """The fields of a form that would change nothing."""
    fields = {name: str(shown[name]) for name in (*WORDS, *NUMBERS) if shown[name] is not None}
    return fields | {"input_params": pretty(shown["input_params"], most=2**31)}
