"""Schedules: what runs by the calendar, what became of it; make one, and make good what was missed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import orjson
from pydantic import Field
from starlette.responses import Response

from cograil.errors import Conflict, InvalidInput, Problem
from cograil.intake.http import schedules as calendar
from cograil.intake.http.reading import Query, as_model
from cograil.model.workflow import Json
from cograil.store import workflows as workflow_store
from cograil.ui.pages.actions import read_range
from cograil.ui.pages.submitting import as_json
from cograil.ui.rendering import gone_to, page
from cograil.ui.visits import HTML, Visit, as_call, pages, sent_form
from cograil.verbs import schedules as verbs

schedules = pages("schedules")
FIRINGS = 50
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
    words = ("name", "workflow_id", "cron", "timezone", "overlap", "missed")
    asked: dict[str, Json] = {name: form[name].strip() for name in words if form.get(name, "").strip()}
    if form.get("input_params", "").strip():
        asked["input_params"] = as_json(form["input_params"], "/input_params")
    return asked


@schedules.get("/schedules/{schedule}", "viewer", query=Stretch, media_type=HTML)
async def show_schedule(visit: Visit) -> Response:
    """One with its last firings, and what making good a stretch of time would do."""
    name, tenant, asked = visit.path["schedule"], visit.caller.tenant, visit.query
    async with visit.transaction("show") as tx:
        shown = await verbs.show_schedule(tx, tenant, name)
        firings = await verbs.list_firings(tx, tenant, name, None, FIRINGS)
    preview, problems = None, tuple[Problem, ...]()
    if asked.first and asked.until and visit.caller.may("operator"):
        call = as_call(visit)
        try:
            call.body = read_range({"first": asked.first, "until": asked.until}, is_preview=True)
            preview = orjson.loads(bytes((await calendar.backfill(call)).body))
        except InvalidInput as error:
            problems = error.problems
    return page(
        visit,
        "schedule.html",
        schedule=shown,
        firings=firings,
        asked=asked,
        preview=preview,
        problems=problems,
    )
