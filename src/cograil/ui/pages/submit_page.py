"""The submit page: a form for the inputs of a workflow, or the input as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import orjson
from pydantic import Field
from starlette.responses import Response

from cograil.definitions import load_workflow
from cograil.errors import Conflict, InvalidInput, JobNotFound, Problem, WorkflowNotFound
from cograil.http.routes.job_routes import NewJobBody, labels_of, submission_of, submit_once
from cograil.http.server.request_parsing import Query, as_model
from cograil.model.hop_count import HOP
from cograil.model.ids import new_id
from cograil.model.workflow import Json, Workflow
from cograil.store import workflow_queries as store
from cograil.store.job_queries import find_job
from cograil.ui.input_form import MAX_EDITABLE, fields_of, inputs_of
from cograil.ui.page_context import HTML, PageRequest, as_call, pages, sent_form
from cograil.ui.rendering import gone_to, page

submit_pages = pages("submit")


class SubmitQuery(Query):
    """The workflow and its version; `again` is a job whose input fills the form."""

    workflow_id: Annotated[str, Field(max_length=64)] = ""
    version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    again: Annotated[str, Field(max_length=64)] = ""


@submit_pages.get("/submit", "submitter", query=SubmitQuery, media_type=HTML)
async def show_form(request: PageRequest) -> Response:
    """Show the form of a workflow."""
    query: SubmitQuery = request.query
    if query.again:
        return await _form_again(request, query.again)
    return await _form(request, query.workflow_id, query.version)


async def _form_again(request: PageRequest, job_id: str) -> Response:
    """Show the form with the input of an earlier job. Raises JobNotFound."""
    async with request.transaction("show") as tx:
        record = await find_job(tx, job_id, request.caller.tenant) if job_id == job_id.lower() else None
    if record is None:
        raise JobNotFound(job_id)
    job, _ = record
    name, version = job["workflow_id"], job["workflow_version"]
    workflow = await _workflow(request, name, version)
    if len(orjson.dumps(job["input_params"])) > MAX_EDITABLE:
        raise Conflict(
            f"the input of job {job_id} is too large for a form; save it with "
            f"`cograil show {job_id} --json` and submit it with `cograil submit {name} --inputs FILE`"
        )
    labels = {key: value for key, value in (job["labels"] or {}).items() if key != HOP}
    form = fields_of(job["input_params"], workflow) | {
        "way": "form" if workflow.inputs else "json",
        "priority": str(job["priority"]),
        "correlation_id": job["correlation_id"] or "",
        "labels": ", ".join(f"{key}={value}" for key, value in labels.items()),
    }
    return await _form(request, name, version, form, again=job_id)


@submit_pages.post("/submit", "submitter", media_type=HTML)
async def submit_form(request: PageRequest) -> Response:
    """Submit the job of the form. The form is idempotent: sent twice it creates one job."""
    form = await sent_form(request)
    name = form.get("workflow_id", "")
    version = int(form["version"]) if form.get("version", "").isdecimal() else None
    try:
        workflow = await _workflow(request, name, version)
        body = as_model(_body_fields(form, workflow) | {"workflow_id": name, "version": version}, NewJobBody)
        call = as_call(request)
        job, _ = await submit_once(
            call, submission_of(call, body), form.get("once") or new_id(), body.model_dump(mode="json")
        )
    except InvalidInput as error:
        return await _form(request, name, version, form, error.problems, status=422)
    return gone_to(request, f"/ui/jobs/{job['job_id']}", f"{name} was submitted")


async def _workflow(request: PageRequest, name: str, version: int | None) -> Workflow:
    async with request.transaction("show") as tx:
        record = await store.show_workflow(tx, request.caller.tenant, name, version)
    if record is None:
        raise WorkflowNotFound(name[:64], version)
    return await asyncio.to_thread(load_workflow, record["definition"])


def _body_fields(form: Mapping[str, str], workflow: Workflow) -> dict[str, Json]:
    """Return the fields of the request body. Raises InvalidInput."""
    fields: dict[str, Json] = {"input_params": inputs_of(form, workflow)}
    if form.get("priority", "").isdecimal():
        fields["priority"] = int(form["priority"])
    if form.get("correlation_id", "").strip():
        fields["correlation_id"] = form["correlation_id"].strip()
    if labels := {key: value or "" for key, value in labels_of(form.get("labels", "")).items()}:
        fields["labels"] = labels
    return fields


async def _form(
    request: PageRequest,
    name: str,
    version: int | None,
    form: Mapping[str, str] | None = None,
    problems: tuple[Problem, ...] = (),
    status: int = 200,
    again: str = "",
) -> Response:
    tenant = request.caller.tenant
    async with request.transaction("show") as tx:
        workflows = await store.list_workflows(tx, tenant)
    newest: dict[str, Any] = {}
    for candidate in workflows:
        if candidate["version"] >= newest.get(candidate["workflow_id"], candidate)["version"]:
            newest[candidate["workflow_id"]] = candidate
    names = sorted(newest)
    if not name and len(names) == 1:
        name = names[0]
    workflow = await _workflow(request, name, version) if name else None
    return page(
        request,
        "submit.html",
        status=status,
        names=names,
        newest=newest,
        again=again,
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
    """Return the input with the default values."""
    specs = (workflow.inputs or {}) if workflow is not None else {}
    return {spec.name: spec.default for spec in specs.values() if spec.has_default}
