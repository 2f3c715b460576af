"""Cancel or retry many jobs from the list: preview, start, and progress.

The work is done by a job of `cograil.bulk`, as for `cograil bulk cancel`; see docs/explanation/decisions/0009-bulk.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from cograil.errors import NotFound
from cograil.http.routes.job_action_routes import actor
from cograil.http.routes.job_routes import labels_of
from cograil.http.server.problem_details import Refusal
from cograil.model.ids import is_id
from cograil.store import job_queries
from cograil.ui.page_context import HTML, PageRequest, as_call, pages, sent_form
from cograil.ui.pages.job_list_page import PAGE, JobFilters, range_of
from cograil.ui.rendering import gone_to, page
from cograil.verbs.bulk import STATUSES, JobFilter, begin_bulk, find_bulk, outcome_of, preview_bulk

bulk = pages("bulk")
SELECTED = "job."  # each checkbox has its own name: of two fields with one name only the last is read
FILTERS = ("status", "workflow_id", "label", "period", "since", "until")
MAX_REASON = 2000


@bulk.post("/jobs/bulk", "operator", media_type=HTML)
async def preview(request: PageRequest) -> Response:
    """Show which jobs would be cancelled or retried; or start it, once that is confirmed."""
    form = await sent_form(request)
    verb, job_filter = _read(form)
    if form.get("confirmed") == "yes":
        return await _start(request, verb, job_filter, form.get("reason", "").strip()[:MAX_REASON])
    tenant = request.caller.tenant
    async with request.transaction("preview") as tx:
        forecast = await preview_bulk(tx, verb, job_filter, tenant)
        jobs = await job_queries.find_jobs(tx, forecast.ids, tenant)
    filters = {name: form[name] for name in FILTERS if form.get(name)}
    return page(
        request,
        "bulk.html",
        verb=verb,
        count=forecast.count,
        selected=len(job_filter.ids),
        jobs=[jobs[job_id] for job_id in forecast.ids if job_id in jobs],
        statuses=job_filter.statuses,
        fields=dict.fromkeys(map(SELECTED.__add__, job_filter.ids), "on") if job_filter.ids else filters,
        filters={} if job_filter.ids else filters,
    )


async def _start(request: PageRequest, verb: str, job_filter: JobFilter, reason: str) -> Response:
    by = actor(as_call(request))
    async with request.transaction("bulk") as tx:
        job_id = await begin_bulk(
            tx,
            request.context.engine_context,
            verb,
            job_filter,
            by=by,
            reason=reason,
            tenant=request.caller.tenant,
        )
        await request.audit(tx, f"bulk {verb}", job_id, reason=reason, filter=job_filter.as_json())
    return gone_to(request, f"/ui/jobs/bulk/{job_id}", "Started")


def _read(form: Mapping[str, str]) -> tuple[str, JobFilter]:
    """Return the verb and the jobs. Raises Refusal for an incomplete form."""
    verb, _, scope = form.get("verb", "").partition(" ")  # "cancel" for the selected jobs, "cancel matching"
    if verb not in STATUSES:
        raise Refusal(422, "invalid_value", f"an action is one of {', '.join(STATUSES)}")
    if scope == "matching":
        return verb, _matching(verb, form)
    ids = tuple(name.removeprefix(SELECTED) for name in form if name.startswith(SELECTED))
    if len(ids) > PAGE or not all(map(is_id, ids)):
        raise Refusal(422, "invalid_value", f"select up to {PAGE} jobs of the list")
    if not ids:
        raise Refusal(422, "nothing_selected", "select at least one job in the list")
    return verb, JobFilter(ids=ids, statuses=STATUSES[verb])


def _matching(verb: str, form: Mapping[str, str]) -> JobFilter:
    """Return the filters of the list as a filter of bulk actions."""
    filters = JobFilters(**{name: form[name] for name in FILTERS if name in form}).named()
    status = filters.get("status")
    if status is not None and status not in STATUSES[verb]:
        allowed = " or ".join(STATUSES[verb])
        raise Refusal(422, "invalid_value", f"{verb} is for jobs that are {allowed}, not {status}")
    labels = labels_of(filters.get("label", ""))
    if None in labels.values():
        raise Refusal(422, "invalid_value", "a bulk action needs labels with values, such as team=ops")
    first, last = range_of(filters)
    return JobFilter(
        statuses=(status,) if status else (),
        workflow=filters.get("workflow_id"),
        labels={name: value for name, value in labels.items() if value is not None},
        created_after=first,
        created_before=last,
    )


@bulk.get("/jobs/bulk/{job_id}", "viewer", media_type=HTML)
async def show_progress(request: PageRequest) -> Response:
    """Show the progress of a bulk action, and why jobs were skipped or failed."""
    job_id, tenant = request.path["job_id"], request.caller.tenant
    async with request.transaction("show") as tx:
        job = (await job_queries.find_jobs(tx, [job_id], tenant)).get(job_id) if is_id(job_id) else None
        if job is None:
            raise NotFound("unknown bulk action")
        operation = await find_bulk(tx, job_id, tenant)
    return page(request, "bulk_progress.html", job=job, operation=operation, outcome=outcome_of(operation))
