"""The retry page: the node to retry from, the inputs, and a preview."""

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
    """The node to retry from; empty for all nodes that did not complete."""

    from_node: Annotated[str, Field(max_length=80)] = ""


@dataclass(slots=True)
class RetryTarget:
    """The job to retry, with its current state."""

    job: View
    workflow: Workflow
    board: JobSnapshot
    is_published: bool

    @property
    def is_over(self) -> bool:
        return self.board.status in JOB_TERMINAL

    @property
    def can_edit(self) -> bool:
        """Whether the inputs can be edited: only for a new job, and up to the size limit of a form."""
        return self.is_over and len(orjson.dumps(self.job["input_params"])) <= MAX_EDITABLE

    def status_of(self, node_id: str) -> str:
        card = self.board.nodes.get(node_id)
        return "pending" if card is None else card.status

    def choices(self, chosen: str) -> list[tuple[str, str]]:
        """Return the nodes to retry from, with their states; of a running job only the failed ones."""
        names = [name for name, node in self.workflow.nodes.items() if node.type is not NodeType.END]
        choices = [(name, self.status_of(name)) for name in names]
        if not self.is_over:
            choices = [(name, status) for name, status in choices if status == "failed"]
        is_child = chosen and chosen not in self.workflow.nodes
        return [*choices, (chosen, "child")] if is_child else choices


@dataclass(slots=True)
class Preview:
    """The effect of a retry, or why it is not possible."""

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
    """Show the preview of a retry, and its options."""
    target = await _find_target(request)
    form = fields_of(target.job["input_params"], target.workflow) | {"from_node": request.query.from_node}
    return _shown(request, target, form, await _preview(request, target, form))


@retry_pages.post("/jobs/{job_id}/retry", "submitter", media_type=HTML)
async def retry_or_preview(request: PageRequest) -> Response:
    """Retry with the options of the form; or show the preview, without a change."""
    form = await sent_form(request)
    target = await _find_target(request)
    if form.get("do") != "retry":
        return _shown(request, target, form, await _preview(request, target, form))
    try:
        answer = await _call_retry(request, target, form, is_preview=False)
    except (Conflict, InvalidInput) as error:
        return _shown(request, target, form, _refused(error), status=error.status)
    job_id = orjson.loads(bytes(answer.body))["job_id"]
    message = "a new job was submitted" if target.is_over else "the node runs again"
    return gone_to(request, f"/ui/jobs/{job_id}", message)


async def _find_target(request: PageRequest) -> RetryTarget:
    async with request.transaction("show") as tx:
        job, workflow, board = await find(request, tx)
        return RetryTarget(job, workflow, board, await is_published(tx, job, request.caller.tenant))


async def _call_retry(request: PageRequest, target: RetryTarget, form: Form, *, is_preview: bool) -> Response:
    """Call the API route with the options of the form. Raises Conflict and InvalidInput."""
    fields: dict[str, Json] = {"from_node": form.get("from_node") or None, "preview": is_preview}
    fields["new_keys"] = form.get("new_keys") == "yes" and target.is_over
    if target.can_edit:
        fields["input_params"] = _form_inputs(form, target)
    call = as_call(request)
    call.body = as_model(fields, job_action_routes.RetryBody)
    return await job_action_routes.retry_job(call)


def _form_inputs(form: Form, target: RetryTarget) -> dict[str, Json] | None:
    """Return the inputs of the form. Raises InvalidInput for a missing one that cannot be empty."""
    inputs = inputs_of(form, target.workflow)
    problems = []
    for name, value in target.job["input_params"].items():
        if name in inputs or value in (None, ""):
            continue
        spec = (target.workflow.inputs or {}).get(name)
        if spec is not None and spec.type == "string" and form.get("way") != "json":
            inputs[name] = ""
        elif spec is not None and not spec.required:
            inputs[name] = None
        else:
            message = "a retry can change this input but not remove it; submit a new job to omit it"
            problems.append(Problem("missing_input", message, f"/input_params/{name}"))
    if problems:
        raise InvalidInput(problems)
    return inputs or None


def _refused(error: CograilError) -> Preview:
    if isinstance(error, InvalidInput):
        return Preview(problems=error.problems)
    return Preview(refusal=str(error))


async def _preview(request: PageRequest, target: RetryTarget, form: Form) -> Preview:
    if not target.is_over and not target.choices(""):
        return Preview(
            f"This job is {target.board.status}. It can be retried once it has ended or a node has failed."
        )
    if not form.get("from_node") and (target.board.status == "completed" or not target.is_over):
        return Preview(NEEDS_NODE)
    try:
        answer = await _call_retry(request, target, form, is_preview=True)
    except (Conflict, InvalidInput) as error:
        return _refused(error)
    return _preview_of(target, orjson.loads(bytes(answer.body)))


def _preview_of(target: RetryTarget, answer: View) -> Preview:
    """Return the preview as rows in the order of the workflow, with warnings."""
    preview = Preview(is_in_place=answer["is_in_place"], changed=tuple(answer["changed"]))
    ways = {name: way for way in ("kept", "reopened", "again", "skipped") for name in answer[way]}
    names = [name for name in target.workflow.nodes if name in ways]
    children = [name for name in (*ways, *answer["same_keys"], *answer["new_keys"]) if name not in names]
    names += list(dict.fromkeys(children))
    preview.rows = [_row(target, name, ways.get(name, "again"), answer) for name in names[:MAX_ROWS]]
    preview.more_rows = len(names) - len(preview.rows)
    preview.warnings = _warnings(target, preview, answer)
    return preview


def _row(target: RetryTarget, name: str, way: str, answer: View) -> View:
    key = "same" if name in answer["same_keys"] else "new" if name in answer["new_keys"] else ""
    return {
        "node_id": name,
        "was": target.status_of(name) if name in target.workflow.nodes else "",
        "way": way,
        "outdated": answer["outdated"].get(name, ()),
        "key": key,
    }


def _warnings(target: RetryTarget, preview: Preview, answer: View) -> list[str]:
    error = target.job["error"] or {}
    code, node_id = str(error.get("code", "")), error.get("node_id")
    if not error or preview.changed or node_id not in (*answer["again"], *answer["reopened"]):
        return []
    if not fails_again(code):
        return [f"{node_id} failed with {code}. {hint_of(code)}"]
    failed = f"{node_id} failed with {code}: {error.get('message', '')}"
    return [f"{failed}. Nothing is changed for it. {hint_of(code)}"]


def _shown(
    request: PageRequest, target: RetryTarget, form: Form, preview: Preview, status: int = 200
) -> Response:
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
        wrong={
            problem.pointer.removeprefix("/input_params/"): problem.message for problem in preview.problems
        },
        address=f"/ui/jobs/{target.job['job_id']}",
    )
