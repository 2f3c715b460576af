"""What one does on the pages. Each form is confirmed, then goes through what serves the API.

So it needs the same role, makes the same checks, and is audited in the same transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from starlette.responses import Response

from cograil import jsontext
from cograil.errors import Conflict, InvalidInput, Problem
from cograil.intake.http import deeds, observing, telling
from cograil.intake.http import schedules as calendar
from cograil.intake.http import workflows as definitions
from cograil.intake.http.door import Call
from cograil.intake.http.reading import Body, as_model
from cograil.intake.http.table import Table
from cograil.model.callers import Role
from cograil.model.workflow import Json
from cograil.ui.rendering import gone_to, page
from cograil.ui.visits import HTML, Visit, as_call, pages, sent_form

actions = pages("actions")
Form = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Action:
    """Something that one does: which role it needs, what is asked first, and what is said afterwards."""

    path: str
    role: Role
    serve: Callable[[Call], Awaitable[Response]]
    read: Callable[[Form], Body]
    question: str
    done: str
    is_grave: bool = False
    has_reason: bool = False


def _with_reason(form: Form) -> Body:
    return as_model({"reason": form.get("reason", "").strip()}, deeds.WithReason)


def says_nothing(form: Form) -> Body:
    return Body()


def _resumption(form: Form) -> Body:
    return as_model({"detach": form.get("detach") == "yes"}, calendar.Resumption)


def _answer(name: str) -> Callable[[Form], Body]:
    def read(form: Form) -> Body:
        said: dict[str, Json] = {"name": name, "node_id": form.get("node_id") or None}
        said["reason"] = form.get("reason", "").strip() or None
        said["by"] = form.get("by", "").strip() or None
        if data := _data(form):
            said["data"] = data
        return as_model(said, deeds.Signal)

    return read


def read_range(form: Form, *, is_preview: bool = False) -> Body:
    """From when to when, as a field for a time gives it: in UTC, without saying so."""
    first, until = (_as_moment(form.get(name, "")) for name in ("first", "until"))
    return as_model({"first": first, "until": until, "preview": is_preview}, calendar.Range)


def _as_moment(text: str) -> str:
    return text if text.endswith("Z") else f"{text}Z"


def _data(form: Form) -> dict[str, Json]:
    """What was filled in, by the names of the fields; what was left empty is not said."""
    found: dict[str, Json] = {}
    for field, text in form.items():
        kind, _, name = field.removeprefix("data.").partition(".")
        if field.startswith("data.") and text.strip():
            found[name] = text if kind == "text" else _as_json(name, text)
    return found


def _as_json(name: str, text: str) -> Json:
    try:
        return jsontext.read(text.encode("utf-8", "replace"), max_bytes=64 * 1024)
    except jsontext.InvalidJson as error:
        raise InvalidInput(
            [Problem("malformed_json", f"{name} is no JSON: {error}", f"/data/{name}")]
        ) from None


ACTIONS = (
    Action(
        "/jobs/{job_id}/cancel",
        "submitter",
        deeds.cancel_job,
        _with_reason,
        "Cancel this job? Running tasks are stopped.",
        "the job was cancelled",
        is_grave=True,
        has_reason=True,
    ),
    Action(
        "/jobs/{job_id}/pause",
        "operator",
        deeds.pause_job,
        _with_reason,
        "Pause this job? Running tasks finish; no new task starts.",
        "the job is paused",
        has_reason=True,
    ),
    Action(
        "/jobs/{job_id}/resume",
        "operator",
        deeds.resume_job,
        says_nothing,
        "Resume this job?",
        "Job resumed",
    ),
    Action(
        "/jobs/{job_id}/approve",
        "operator",
        deeds.send_signal,
        _answer("approve"),
        "Approve this?",
        "approved",
        has_reason=True,
    ),
    Action(
        "/jobs/{job_id}/reject",
        "operator",
        deeds.send_signal,
        _answer("reject"),
        "Reject this?",
        "rejected",
        is_grave=True,
        has_reason=True,
    ),
    Action(
        "/workflows/{workflow_id}/pause",
        "operator",
        definitions.pause_workflow,
        _with_reason,
        "Pause this workflow? Running tasks finish; no new task starts.",
        "the workflow is paused",
        has_reason=True,
    ),
    Action(
        "/workflows/{workflow_id}/resume",
        "operator",
        definitions.resume_workflow,
        says_nothing,
        "Resume this workflow?",
        "Workflow resumed",
    ),
    Action(
        "/queues/{name}/pause",
        "operator",
        observing.pause_queue,
        _with_reason,
        "Pause this queue? Workers claim no more of its tasks.",
        "the queue is paused",
        has_reason=True,
    ),
    Action(
        "/queues/{name}/resume",
        "operator",
        observing.resume_queue,
        says_nothing,
        "Resume this queue?",
        "Queue resumed",
    ),
    Action(
        "/schedules/{schedule}/pause",
        "operator",
        calendar.pause_schedule,
        _with_reason,
        "Pause this schedule? Firings are skipped until it is resumed.",
        "the schedule is paused",
        has_reason=True,
    ),
    Action(
        "/schedules/{schedule}/resume",
        "operator",
        calendar.resume_schedule,
        _resumption,
        "Resume this schedule? It runs again from now on.",
        "Schedule resumed",
    ),
    Action(
        "/schedules/{schedule}/remove",
        "operator",
        calendar.remove_schedule,
        says_nothing,
        "Remove this schedule and its history? Its jobs stay.",
        "Schedule removed",
        is_grave=True,
    ),
    Action(
        "/schedules/{schedule}/backfill",
        "operator",
        calendar.backfill,
        read_range,
        "Submit a job for each time of this range that has none?",
        "Backfill started",
    ),
    Action(
        "/deliveries/{delivery_id}/resend",
        "operator",
        telling.resend,
        says_nothing,
        "Send this again? It is the same event, under the same id.",
        "Sent again",
    ),
)


def _served(action: Action) -> Callable[[Visit], Awaitable[Response]]:
    async def act(visit: Visit) -> Response:
        """Do it, once it is confirmed."""
        form = await sent_form(visit)
        back = _own(form.get("back", ""))
        if form.get("confirmed") != "yes":
            return page(
                visit, "confirm.html", action=action, form=form, place=_place(action, visit), back=back
            )
        call = as_call(visit)
        call.body = action.read(form)
        try:
            await action.serve(call)
        except Conflict as refused:
            if HTML not in visit.headers.get("accept", ""):
                raise
            return page(visit, "refused.html", status=refused.status, detail=str(refused), back=back)
        return gone_to(visit, back, action.done)

    act.__name__ = f"act_{action.path.replace('/', '_').replace('{', '').replace('}', '')}"
    return act


def _place(action: Action, visit: Visit) -> str:
    path = "/ui" + action.path
    for name, value in visit.path.items():
        path = path.replace("{" + name + "}", quote(value, safe=""))
    return path


def _own(place: str) -> str:
    return place if place.startswith("/ui/") and "\\" not in place and "//" not in place else "/ui/"


def add_actions(table: Table, *found: Action) -> None:
    """Serve these in this table."""
    for action in found:
        table.post(action.path, action.role, media_type=HTML)(_served(action))


add_actions(actions, *ACTIONS)
