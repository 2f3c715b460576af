"""Actions of the pages. Each form asks for confirmation, then calls the API route.

So it needs the same role, makes the same checks, and is audited in the same transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from starlette.responses import Response

from cograil import strict_json
from cograil.errors import Conflict, InvalidInput, Problem
from cograil.http.routes import job_action_routes, monitoring_routes, webhook_routes
from cograil.http.routes import schedule_routes as calendar
from cograil.http.routes import workflow_routes as definitions
from cograil.http.server.dispatcher import Call
from cograil.http.server.request_parsing import Body, as_model
from cograil.http.server.routing import Router
from cograil.model.roles import Role
from cograil.model.workflow import Json
from cograil.ui.page_context import HTML, PageRequest, as_call, pages, sent_form
from cograil.ui.rendering import gone_to, page

actions = pages("actions")
Form = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Action:
    """An action: its role, the question before it, and the message after it."""

    path: str
    role: Role
    serve: Callable[[Call], Awaitable[Response]]
    read: Callable[[Form], Body]
    question: str
    done: str
    is_destructive: bool = False
    has_reason: bool = False


def _with_reason(form: Form) -> Body:
    return as_model({"reason": form.get("reason", "").strip()}, job_action_routes.ReasonBody)


def empty_body(form: Form) -> Body:
    return Body()


def _resumption(form: Form) -> Body:
    return as_model({"detach": form.get("detach") == "yes"}, calendar.Resumption)


def _answer(name: str) -> Callable[[Form], Body]:
    def read(form: Form) -> Body:
        signal: dict[str, Json] = {"name": name, "node_id": form.get("node_id") or None}
        signal["reason"] = form.get("reason", "").strip() or None
        signal["by"] = form.get("by", "").strip() or None
        if data := _data(form):
            signal["data"] = data
        return as_model(signal, job_action_routes.Signal)

    return read


def read_range(form: Form, *, is_preview: bool = False) -> Body:
    """Parse the range of a form; its times are in UTC, without an offset."""
    first, until = (_as_moment(form.get(name, "")) for name in ("first", "until"))
    return as_model({"first": first, "until": until, "preview": is_preview}, calendar.BackfillBody)


def _as_moment(text: str) -> str:
    return text if text.endswith("Z") else f"{text}Z"


def _data(form: Form) -> dict[str, Json]:
    """Return the data fields of a form that are not empty."""
    data: dict[str, Json] = {}
    for field, text in form.items():
        kind, _, name = field.removeprefix("data.").partition(".")
        if field.startswith("data.") and text.strip():
            data[name] = text if kind == "text" else _as_json(name, text)
    return data


def _as_json(name: str, text: str) -> Json:
    try:
        return strict_json.read(text.encode("utf-8", "replace"), max_bytes=64 * 1024)
    except strict_json.InvalidJson as error:
        raise InvalidInput(
            [Problem("malformed_json", f"{name} is not valid JSON: {error}", f"/data/{name}")]
        ) from None


ACTIONS = (
    Action(
        "/jobs/{job_id}/cancel",
        "submitter",
        job_action_routes.cancel_job,
        _with_reason,
        "Cancel this job? Running tasks are stopped.",
        "the job was cancelled",
        is_destructive=True,
        has_reason=True,
    ),
    Action(
        "/jobs/{job_id}/pause",
        "operator",
        job_action_routes.pause_job,
        _with_reason,
        "Pause this job? Running tasks finish; no new task starts.",
        "the job is paused",
        has_reason=True,
    ),
    Action(
        "/jobs/{job_id}/resume",
        "operator",
        job_action_routes.resume_job,
        empty_body,
        "Resume this job?",
        "Job resumed",
    ),
    Action(
        "/jobs/{job_id}/approve",
        "operator",
        job_action_routes.send_signal,
        _answer("approve"),
        "Approve this?",
        "approved",
        has_reason=True,
    ),
    Action(
        "/jobs/{job_id}/reject",
        "operator",
        job_action_routes.send_signal,
        _answer("reject"),
        "Reject this?",
        "rejected",
        is_destructive=True,
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
        empty_body,
        "Resume this workflow?",
        "Workflow resumed",
    ),
    Action(
        "/queues/{name}/pause",
        "operator",
        monitoring_routes.pause_queue,
        _with_reason,
        "Pause this queue? Workers claim no more of its tasks.",
        "the queue is paused",
        has_reason=True,
    ),
    Action(
        "/queues/{name}/resume",
        "operator",
        monitoring_routes.resume_queue,
        empty_body,
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
        empty_body,
        "Remove this schedule and its history? Its jobs stay.",
        "Schedule removed",
        is_destructive=True,
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
        webhook_routes.resend,
        empty_body,
        "Send this again? It is the same event, under the same id.",
        "Sent again",
    ),
)


def _action_route(action: Action) -> Callable[[PageRequest], Awaitable[Response]]:
    async def act(request: PageRequest) -> Response:
        """Run the action once it is confirmed."""
        form = await sent_form(request)
        back = _own(form.get("back", ""))
        if form.get("confirmed") != "yes":
            return page(
                request, "confirm.html", action=action, form=form, place=_place(action, request), back=back
            )
        call = as_call(request)
        call.body = action.read(form)
        try:
            await action.serve(call)
        except Conflict as refused:
            if HTML not in request.headers.get("accept", ""):
                raise
            return page(request, "refused.html", status=refused.status, detail=str(refused), back=back)
        return gone_to(request, back, action.done)

    act.__name__ = f"act_{action.path.replace('/', '_').replace('{', '').replace('}', '')}"
    return act


def _place(action: Action, request: PageRequest) -> str:
    path = "/ui" + action.path
    for name, value in request.path.items():
        path = path.replace("{" + name + "}", quote(value, safe=""))
    return path


def _own(place: str) -> str:
    return place if place.startswith("/ui/") and "\\" not in place and "//" not in place else "/ui/"


def add_actions(table: Router, *added: Action) -> None:
    """Add the routes of these actions to this router."""
    for action in added:
        table.post(action.path, action.role, media_type=HTML)(_action_route(action))


add_actions(actions, *ACTIONS)
