"""Submit a job: a form made from the inputs of the workflow, or the input as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from cograil import jsontext
from cograil.definitions import load_workflow
from cograil.errors import InvalidInput, Problem, WorkflowNotFound
from cograil.intake.http.jobs import NewJob, labels_of, submission_of, submit_once
from cograil.intake.http.reading import Query, as_model
from cograil.model.ids import new_id
from cograil.model.workflow import InputSpec, Json, Workflow
from cograil.store import workflows as store
from cograil.ui.rendering import gone_to, page
from cograil.ui.visits import HTML, Visit, as_call, pages, sent_form

submitting = pages("submit")
MAX_VALUE = 256 * 1024


class Chosen(Query):
    """Which workflow, and which of its versions."""

    workflow_id: Annotated[str, Field(max_length=64)] = ""
    version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None


@submitting.get("/submit", "submitter", query=Chosen, media_type=HTML)
async def show_form(visit: Visit) -> Response:
    """The form of a workflow."""
    asked: Chosen = visit.query
    return await _form(visit, asked.workflow_id, asked.version)


@submitting.post("/submit", "submitter", media_type=HTML)
async def submit_form(visit: Visit) -> Response:
    """Submit what the form says. Sent twice it makes one job."""
    form = await sent_form(visit)
    name = form.get("workflow_id", "")
    version = int(form["version"]) if form.get("version", "").isdecimal() else None
    try:
        workflow = await _workflow(visit, name, version)
        given = as_model(_asked(form, workflow) | {"workflow_id": name, "version": version}, NewJob)
        call = as_call(visit)
        job, _ = await submit_once(
            call, submission_of(call, given), form.get("once") or new_id(), given.model_dump(mode="json")
        )
    except InvalidInput as error:
        return await _form(visit, name, version, form, error.problems, status=422)
    return gone_to(visit, f"/ui/jobs/{job['job_id']}", f"{name} was submitted")


async def _workflow(visit: Visit, name: str, version: int | None) -> Workflow:
    async with visit.transaction("show") as tx:
        found = await store.show_workflow(tx, visit.caller.tenant, name, version)
    if found is None:
        raise WorkflowNotFound(name[:64], version)
    return load_workflow(found["definition"])


def _asked(form: Mapping[str, str], workflow: Workflow) -> dict[str, Json]:
    """What the fields say of a job. Raises InvalidInput."""
    if form.get("way") == "json":
        params = as_json(form.get("json", "") or "{}", "/input_params")
    else:
        params = {}
        for spec in (workflow.inputs or {}).values():
            text = form.get(f"input.{spec.name}", "")
            if text:
                params[spec.name] = value_of(spec, text)
    asked: dict[str, Json] = {"input_params": params}
    if form.get("priority", "").isdecimal():
        asked["priority"] = int(form["priority"])
    if form.get("correlation_id", "").strip():
        asked["correlation_id"] = form["correlation_id"].strip()
    if labels := {key: value or "" for key, value in labels_of(form.get("labels", "")).items()}:
        asked["labels"] = labels
    return asked


def value_of(spec: InputSpec, text: str) -> Json:
    """What a field says, as the input wants it. Raises InvalidInput; the rest is checked at the submit."""
    pointer = f"/input_params/{spec.name}"
    if spec.type == "string":
        return text.replace("\r\n", "\n")  # so browsers send the lines of a field
    if spec.type == "boolean":
        return text in ("true", "on", "yes", "1")
    return as_json(text, pointer)


def as_json(text: str, pointer: str) -> Json:
    """What a field says in JSON. Raises InvalidInput with its name."""
    try:
        return jsontext.read(text.encode("utf-8", "replace"), max_bytes=MAX_VALUE)
    except jsontext.InvalidJson as error:
        raise InvalidInput([Problem("malformed_json", f"this is no JSON: {error}", pointer)]) from None


async def _form(
    visit: Visit,
    name: str,
    version: int | None,
    form: Mapping[str, str] | None = None,
    problems: tuple[Problem, ...] = (),
    status: int = 200,
) -> Response:
    tenant = visit.caller.tenant
    async with visit.transaction("show") as tx:
        known = await store.list_workflows(tx, tenant)
    names = sorted({one["workflow_id"] for one in known})
    workflow = await _workflow(visit, name, version) if name else None
    return page(
        visit,
        "submit.html",
        status=status,
        names=names,
        workflow=workflow,
        version=version,
        specs=list((workflow.inputs or {}).values()) if workflow is not None else [],
        example=_example(workflow),
        form=form or {},
        problems=problems,
        wrong={problem.pointer.removeprefix("/input_params/"): problem.message for problem in problems},
        once=(form or {}).get("once") or new_id(),
    )


def _example(workflow: Workflow | None) -> dict[str, Json]:
    """The input that the defaults make, to begin with."""
    specs = (workflow.inputs or {}) if workflow is not None else {}
    return {spec.name: spec.default for spec in specs.values() if spec.has_default}
