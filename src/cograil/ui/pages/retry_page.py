"""Retry on one page: from which node, with which inputs, and what would happen, before it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import orjson
from pydantic import Field
from starlette.responses import Response

from cograil.errors import CograilError, Conflict, InvalidInput, Problem
from cograil.http.routes import job_action_routes
from cograil.http.server.request_parsing import Query, as_model
from cograil.model.states import JOB_TERMINAL
from cograil.model.workflow import Json, NodeType, Workflow
from cograil.store.job_queries import View
from cograil.store.job_snapshot import JobSnapshot
from cograil.ui.failure import fails_again, hint_of
from cograil.ui.input_form import MAX_EDITABLE, fields_of, inputs_of
from cograil.ui.page_context import HTML, PageRequest, as_call, pages, sent_form
from cograil.ui.pages.job_page import find, is_published
from cograil.ui.rendering import gone_to, page

retry_pages = pages("retry")
Form = Mapping[str, str]
MAX_ROWS = 200
NEEDS_NODE = "Choose the node from which to run it again."


class RetryQuery(Query):
    """From which node; empty for all that did not complete."""

    from_node: Annotated[str, Field(max_length=80)] = ""


@dataclass(slots=True)
class Target:
    """The job that is to be retried, as it stands."""

    job: View
    workflow: Workflow
    board: JobSnapshot
    is_published: bool

    @property
    def is_over(self) -> bool:
        return self.board.status in JOB_TERMINAL

    @property
    def can_edit(self) -> bool:
        """Only a new job can have other inputs, and a form holds only so much."""
        return self.is_over and len(orjson.dumps(self.job["input_params"])) <= MAX_EDITABLE

    def status_of(self, node_id: str) -> str:
        card = self.board.nodes.get(node_id)
        return "pending" if card is None else card.status

    def choices(self, chosen: str) -> list[tuple[str, str]]:
        """The nodes from which to run again, with their states; of a running job those that failed."""
        names = [name for name, node in self.workflow.nodes.items() if node.type is not NodeType.END]
        found = [(name, self.status_of(name)) for name in names]
        if not self.is_over:
            found = [(name, status) for name, status in found if status == "failed"]
        is_child = chosen and chosen not in self.workflow.nodes
        return [*found, (chosen, "child")] if is_child else found


@dataclass(slots=True)
class Preview:
    """What a retry would do, or why it cannot be done like that."""

    refusal: str = ""
    problems: tuple[Problem, ...] = ()
    is_in_place: bool = False
    rows: list[View] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    changed: tuple[str, ...] = ()
    more_rows: int = 0

    @property
    def can_go(self) -> bool:
        return not self.refusal and not self.problems


@retry_pages.get("/jobs/{job_id}/retry", "submitter", query=RetryQuery, media_type=HTML)
async def show_retry(request: PageRequest) -> Response:
    """What a retry would do, and how to change it."""
    target = await _find_target(request)
    form = fields_of(target.job["input_params"], target.workflow) | {"from_node": request.query.from_node}
    return _shown(request, target, form, await _preview(request, target, form))


@retry_pages.post("/jobs/{job_id}/retry", "submitter", media_type=HTML)
async def retry_or_preview(request: PageRequest) -> Response:
    """Retry as the form says; or show what that would do, and change nothing."""
    form = await sent_form(request)
    target = await _find_target(request)
    if form.get("do") != "retry":
        return _shown(request, target, form, await _preview(request, target, form))
    try:
        answer = await _ask(request, target, form, is_preview=False)
    except (Conflict, InvalidInput) as error:
        return _shown(request, target, form, _refused(error), status=error.status)
    job_id = orjson.loads(bytes(answer.body))["job_id"]
    said = "a new job was submitted" if target.is_over else "the node runs again"
    return gone_to(request, f"/ui/jobs/{job_id}", said)


async def _find_target(request: PageRequest) -> Target:
    async with request.transaction("show") as tx:
        job, workflow, board = await find(request, tx)
        return Target(job, workflow, board, await is_published(tx, job, request.caller.tenant))


async def _ask(request: PageRequest, target: Target, form: Form, *, is_preview: bool) -> Response:
    """What serves the API, asked as the form says. Raises Conflict and InvalidInput."""
    asked: dict[str, Json] = {"from_node": form.get("from_node") or None, "preview": is_preview}
    asked["new_keys"] = form.get("new_keys") == "yes" and target.is_over
    if target.can_edit:
        asked["input_params"] = _inputs_to_ask(form, target)
    call = as_call(request)
    call.body = as_model(asked, job_action_routes.RetryBody)
    return await job_action_routes.retry_job(call)


def _inputs_to_ask(form: Form, target: Target) -> dict[str, Json] | None:
    """The inputs that the form says. Raises InvalidInput for one that is left out and cannot be empty."""
    given = inputs_of(form, target.workflow)
    problems = []
    for name, value in target.job["input_params"].items():
        if name in given or value in (None, ""):
            continue
        spec = (target.workflow.inputs or {}).get(name)
        if spec is not None and spec.type == "string" and form.get("way") != "json":
            given[name] = ""
        elif spec is not None and not spec.required:
            given[name] = None
        else:
            told = "a retry can change this input and not remove it; submit a new job to leave it out"
            problems.append(Problem("missing_input", told, f"/input_params/{name}"))
    if problems:
        raise InvalidInput(problems)
    return given or None


def _refused(error: CograilError) -> Preview:
    if isinstance(error, InvalidInput):
        return Preview(problems=error.problems)
    return Preview(refusal=str(error))


async def _preview(request: PageRequest, target: Target, form: Form) -> Preview:
    if not target.is_over and not target.choices(""):
        return Preview(
            f"This job is {target.board.status}. It can be retried once it has ended or a node has failed."
        )
    if not form.get("from_node") and (target.board.status == "completed" or not target.is_over):
        return Preview(NEEDS_NODE)
    try:
        answer = await _ask(request, target, form, is_preview=True)
    except (Conflict, InvalidInput) as error:
        return _refused(error)
    return _told(target, orjson.loads(bytes(answer.body)))


def _told(target: Target, seen: View) -> Preview:
    """The preview as a table in the order of the workflow, with what to heed."""
    told = Preview(is_in_place=seen["is_in_place"], changed=tuple(seen["changed"]))
    ways = {name: way for way in ("kept", "reopened", "again", "skipped") for name in seen[way]}
    names = [name for name in target.workflow.nodes if name in ways]
    children = [name for name in (*ways, *seen["same_keys"], *seen["new_keys"]) if name not in names]
    names += list(dict.fromkeys(children))
    told.rows = [_row(target, name, ways.get(name, "again"), seen) for name in names[:MAX_ROWS]]
    told.more_rows = len(names) - len(told.rows)
    told.warnings = _warnings(target, told, seen)
    return told


def _row(target: Target, name: str, way: str, seen: View) -> View:
    key = "same" if name in seen["same_keys"] else "new" if name in seen["new_keys"] else ""
    return {
        "node_id": name,
        "was": target.status_of(name) if name in target.workflow.nodes else "",
        "way": way,
        "outdated": seen["outdated"].get(name, ()),
        "key": key,
    }


def _warnings(target: Target, told: Preview, seen: View) -> list[str]:
    error = target.job["error"] or {}
    code, node_id = str(error.get("code", "")), error.get("node_id")
    if not error or told.changed or node_id not in (*seen["again"], *seen["reopened"]):
        return []
    if not fails_again(code):
        return [f"{node_id} failed with {code}. {hint_of(code)}"]
    failed = f"{node_id} failed with {code}: {error.get('message', '')}"
    return [f"{failed}. Nothing is changed for it. {hint_of(code)}"]


def _shown(request: PageRequest, target: Target, form: Form, preview: Preview, status: int = 200) -> Response:
    chosen = form.get("from_node", "")
    specs = list((target.workflow.inputs or {}).values())
    return page(
        request,
        "retry.html",
        status=status,
        job=target.job,
        workflow=target.workflow,
        target=target,
        preview=preview,
        form=form,
        chosen=chosen,
        choices=target.choices(chosen),
        specs=specs if target.can_edit else [],
        problems=preview.problems,
        wrong={one.pointer.removeprefix("/input_params/"): one.message for one in preview.problems},
        address=f"/ui/jobs/{target.job['job_id']}",
    )
