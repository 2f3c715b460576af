"""Submit a job: a form made from the inputs of the workflow, or the input as JSON."""

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

submitting = pages("submit")


class Chosen(Query):
    """Which workflow, and which of its versions; `again` is a job whose input the form begins with."""

    workflow_id: Annotated[str, Field(max_length=64)] = ""
    version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    again: Annotated[str, Field(max_length=64)] = ""


@submitting.get("/submit", "submitter", query=Chosen, media_type=HTML)
async def show_form(request: PageRequest) -> Response:
    """The form of a workflow."""
    asked: Chosen = request.query
    if asked.again:
        return await _form_again(request, asked.again)
    return await _form(request, asked.workflow_id, asked.version)


async def _form_again(request: PageRequest, job_id: str) -> Response:
    """The form with what this job was submitted with. Raises JobNotFound."""
    async with request.transaction("show") as tx:
        found = await find_job(tx, job_id, request.caller.tenant) if job_id == job_id.lower() else None
    if found is None:
        raise JobNotFound(job_id)
    job = found[0]
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


@submitting.post("/submit", "submitter", media_type=HTML)
async def submit_form(request: PageRequest) -> Response:
    """Submit what the form says. Sent twice it makes one job."""
    form = await sent_form(request)
    name = form.get("workflow_id", "")
    version = int(form["version"]) if form.get("version", "").isdecimal() else None
    try:
        workflow = await _workflow(request, name, version)
        given = as_model(_asked(form, workflow) | {"workflow_id": name, "version": version}, NewJobBody)
        call = as_call(request)
        job, _ = await submit_once(
            call, submission_of(call, given), form.get("once") or new_id(), given.model_dump(mode="json")
        )
    except InvalidInput as error:
        return await _form(request, name, version, form, error.problems, status=422)
    return gone_to(request, f"/ui/jobs/{job['job_id']}", f"{name} was submitted")


async def _workflow(request: PageRequest, name: str, version: int | None) -> Workflow:
    async with request.transaction("show") as tx:
        found = await store.show_workflow(tx, request.caller.tenant, name, version)
    if found is None:
        raise WorkflowNotFound(name[:64], version)
    return await asyncio.to_thread(load_workflow, found["definition"])


def _asked(form: Mapping[str, str], workflow: Workflow) -> dict[str, Json]:
    """What the fields say of a job. Raises InvalidInput."""
    asked: dict[str, Json] = {"input_params": inputs_of(form, workflow)}
    if form.get("priority", "").isdecimal():
        asked["priority"] = int(form["priority"])
    if form.get("correlation_id", "").strip():
        asked["correlation_id"] = form["correlation_id"].strip()
    if labels := {key: value or "" for key, value in labels_of(form.get("labels", "")).items()}:
        asked["labels"] = labels
    return asked


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
        known = await store.list_workflows(tx, tenant)
    newest: dict[str, Any] = {}
    for one in known:
        if one["version"] >= newest.get(one["workflow_id"], one)["version"]:
            newest[one["workflow_id"]] = one
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
    """The input that the defaults make, to begin with."""
    specs = (workflow.inputs or {}) if workflow is not None else {}
    return {spec.name: spec.default for spec in specs.values() if spec.has_default}
