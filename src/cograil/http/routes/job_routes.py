"""Jobs: submit one or many, list them, look at one."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from functools import partial
from typing import Annotated, Literal

from pydantic import Field
from starlette.responses import Response

from cograil import tracing
from cograil.api_schemas import job_schemas
from cograil.definitions.suggestions import Suggestions
from cograil.errors import CograilError, InvalidInput, JobNotFound, Problem
from cograil.http.server.dispatcher import DATABASE_UNAVAILABLE, Call, encode_json, reply
from cograil.http.server.field_types import Labels, Moment, WorkflowName
from cograil.http.server.idempotent_requests import (
    IDEMPOTENCY_KEY,
    INVALID_KEY,
    KeyText,
    idempotency_key,
    request_key,
    run_idempotent,
    run_idempotent_in,
)
from cograil.http.server.problem_details import Refusal, refusal_of
from cograil.http.server.request_parsing import BatchBody, Body, Query, as_model
from cograil.http.server.routing import Router
from cograil.http.server.submit_batcher import submit_and_show, submit_and_show_within
from cograil.http.streams.job_waiter import MAX_SECONDS
from cograil.model.hop_count import HOP
from cograil.model.workflow import Json, Workflow
from cograil.store import job_queries
from cograil.store.api_keys import AuditRecord
from cograil.store.database import LOST, Transaction
from cograil.store.job_queries import View
from cograil.store.job_snapshot import JobWindow, search_jobs
from cograil.verbs import idempotency
from cograil.verbs.submit import Submission, submit

jobs = Router("jobs")

BATCH_BODY = 8 * 1024 * 1024
BATCH_ITEMS = 1000
WHOLE = " whole"  # separates the key of a batch from the keys of its jobs
PREFER_WAIT = re.compile(r"(?:^|[,;]\s*)wait\s*=\s*\"?([0-9]{1,5})\"?(?=$|[,;\s])", re.IGNORECASE)


Word = Annotated[str, Field(min_length=1, max_length=64)]
Status = Literal["pending", "running", "waiting", "completed", "failed", "cancelled"]


SUBMIT = "POST /api/v1/jobs"  # the scope of its idempotency keys


class NewJobBody(Body):
    """A job to submit."""

    workflow_id: WorkflowName
    version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    input_params: dict[str, Json] = Field(default_factory=dict)
    priority: Annotated[int, Field(ge=0, le=10)] = 0
    correlation_id: Word | None = None
    submitted_by: Word | None = None
    labels: Labels | None = None
    callback: dict[str, Json] | None = None
    idempotency_key: KeyText | None = None
    not_before: Moment | None = None


class NewJobs(BatchBody):
    """Up to 1,000 jobs; each is checked separately."""

    max_items = BATCH_ITEMS
    jobs: Annotated[list[dict[str, Json]], Field(min_length=1, max_length=BATCH_ITEMS)]


class JobList(Query):
    """Filters of the job list."""

    status: Status | None = None
    workflow_id: str | None = None
    correlation_id: str | None = None
    label: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    search: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    cursor: str | None = None

    @property
    def is_search(self) -> bool:
        return self.label is not None or self.search is not None


@jobs.post(
    "/jobs",
    "submitter",
    body=NewJobBody,
    responses={
        202: "the job",
        200: "the first response to the same request",
        409: "another request used this key",
        404: "no such workflow",
    },
    response_model=job_schemas.Job,
    headers=("Idempotency-Key", "Prefer"),
)
async def submit_job(call: Call) -> Response:
    """Submit a job.

    With an idempotency key (header or field) a repeated request gets the first response again. With
    `Prefer: wait=10` the response waits up to 10 seconds for the end of the job.
    """
    body: NewJobBody = call.body
    submission, key = submission_of(call, body), idempotency_key(call, body.idempotency_key)
    if key is None:
        job, status = await call.context.submit_batcher.submit(submission, call.entry("submit")), 202
    else:
        job, status = await submit_once(call, submission, key, body.model_dump(mode="json"))
    headers = {"Location": f"/api/v1/jobs/{job['job_id']}"}
    if (seconds := _preferred_wait(call)) is not None:
        job = await _wait_for_end(call, job, seconds)
        headers["Preference-Applied"] = f"wait={seconds}"
    return reply(job, status, headers)


@jobs.post(
    "/jobs/batch",
    "submitter",
    body=NewJobs,
    max_body=BATCH_BODY,
    responses={
        200: "for each, in order, the job or its error",
        409: "another batch used this key",
    },
    response_model=job_schemas.BatchResults,
    headers=("Idempotency-Key",),
)
async def submit_jobs(call: Call) -> Response:
    """Submit up to 1,000 jobs; each is created or rejected separately.

    With an idempotency key in the header a repeated batch gets the first response again.
    """
    hints = Suggestions()
    items = [_read_item(item, hints) for item in call.body.jobs]
    key = idempotency_key(call)
    if key is None:
        return reply({"results": await _submit_each(call, items)})
    content = [str(item) if isinstance(item, CograilError) else item for item in call.body.jobs]
    name = request_key(call, key, WHOLE)
    request = await asyncio.to_thread(idempotency.fingerprint, content)  # slow for megabytes
    answer, _ = await run_idempotent(call, name, request, partial(_submit_all, call, items))
    return reply(answer)


@jobs.get(
    "/jobs",
    "viewer",
    query=JobList,
    responses={200: "a page of jobs, newest first; it may be short, see next_cursor"},
    response_model=job_schemas.JobPage,
)
async def list_jobs(call: Call) -> Response:
    """List jobs, newest first.

    `status=waiting` lists the jobs that have a `waiting_for`: none of their nodes runs or is queued, they wait
    for a person or a time. Their `status` is `pending` or `running`, and they are listed under it too.
    `label=customer=acme,urgent` lists the jobs with all of these labels; `search` looks in the input, the
    labels, the id and the submitter. A page of a search reads a bounded number of jobs, and any page ends
    after 32 MiB of inputs and results.
    """
    query: JobList = call.query
    filters = (query.status, query.workflow_id, query.correlation_id)
    search = (query.label, query.search) if query.is_search else ()
    bound = (call.caller.tenant, "jobs", *filters, *search)
    before = None if query.cursor is None else call.context.cursors.read(query.cursor, *bound)
    async with call.transaction("show") as tx:
        jobs, stopped_at = await (_search if query.is_search else _list)(tx, call, before)
    cursor = None if stopped_at is None else call.context.cursors.make(stopped_at, *bound)
    return reply({"jobs": jobs, "next_cursor": cursor})


async def _list(tx: Transaction, call: Call, before: str | None) -> tuple[list[View], str | None]:
    query: JobList = call.query
    jobs = await job_queries.list_jobs(
        tx,
        tenant=call.caller.tenant,
        statuses=None if query.status is None else [query.status],
        workflow=query.workflow_id,
        correlation=query.correlation_id,
        before=before,
        limit=query.limit,
        max_bytes=job_queries.MAX_PAGE_BYTES,
    )
    return jobs, jobs[-1]["job_id"] if jobs.has_more else None


async def _search(tx: Transaction, call: Call, before: str | None) -> tuple[list[View], str | None]:
    query: JobList = call.query
    if query.correlation_id is not None:
        raise Refusal(
            422, "invalid_parameter", "correlation_id cannot be combined with label or search; leave one out"
        )
    return await search_jobs(
        tx,
        call.caller.tenant,
        statuses=None if query.status is None else [query.status],
        workflow=query.workflow_id,
        labels=labels_of(query.label or ""),
        text=query.search,
        window=JobWindow() if before is None else JobWindow(before),
        limit=query.limit,
    )


def labels_of(text: str) -> dict[str, str | None]:
    """Parse labels such as `customer=acme, urgent`. One without a value matches any value."""
    labels: dict[str, str | None] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if name.strip():
            labels[name.strip()] = value.strip() if equals else None
    return labels


class NodeChoice(Query):
    """All nodes, only the nodes of the workflow without the children of fan-outs, or no nodes."""

    nodes: Literal["all", "top", "none"] = "all"


@jobs.get(
    "/jobs/{job_id}",
    "viewer",
    query=NodeChoice,
    responses={200: "the job with its nodes"},
    response_model=job_schemas.JobWithNodes,
)
async def show_job(call: Call) -> Response:
    """Show a job with its nodes.

    `nodes=top` leaves out the children of fan-outs, `nodes=none` all nodes.
    """
    choice = call.query.nodes
    async with call.transaction("show") as tx:
        job, workflow = await find_job(call, tx)
        nodes: list[View] = []
        if choice != "none":
            nodes = await job_queries.list_nodes(
                tx, job["job_id"], workflow, tenant=call.caller.tenant, children=choice == "all"
            )
    summary = Counter(node["status"] for node in nodes)
    return reply({"job": job, "nodes": nodes, "node_summary": summary})


async def find_job(call: Call, tx: Transaction) -> tuple[View, Workflow]:
    """Return the job of the path and its workflow. Raises JobNotFound, also for a job of another tenant."""
    job_id = call.path["job_id"]
    record = await job_queries.find_job(tx, job_id, call.caller.tenant) if job_id == job_id.lower() else None
    if record is None:
        raise JobNotFound(job_id[:64])
    job, definition_id = record
    return job, await call.context.engine_context.definitions.get(tx, definition_id)


# -- submitting -----------------------------------------------------------------------------------------


def submission_of(call: Call, body: NewJobBody) -> Submission:
    """Return the submission. Without `submitted_by` it has the name of the key."""
    return Submission(
        workflow_id=body.workflow_id,
        input=body.input_params,
        version=body.version,
        priority=body.priority,
        correlation_id=body.correlation_id,
        submitted_by=body.submitted_by or call.caller.name or None,
        labels=with_hop(call, body.labels),
        not_before=body.not_before,
        callback=body.callback,
        trace_parent=trace_parent_of(call),
    )


def with_hop(call: Call, labels: dict[str, str] | None) -> dict[str, str] | None:
    """Return these labels with the hop count, if an event of cograil caused this request."""
    hop = call.headers.get(HOP)
    return labels if hop is None else {**(labels or {}), HOP: hop}


def trace_parent_of(call: Call) -> str | None:
    """Return the trace parent of the request, if it has one."""
    return tracing.parse_traceparent(call.headers.get("traceparent"))


async def submit_once(
    call: Call, submission: Submission, key: str, request: dict[str, Json]
) -> tuple[View, int]:
    """Submit under this key: 202 for the first time, 200 with the first answer after that."""
    name, request_hash = request_key(call, key), fingerprint(request)
    job, is_new = await run_idempotent(call, name, request_hash, partial(_make_job, call, submission))
    return job, 202 if is_new else 200


def fingerprint(request: dict[str, Json]) -> str:
    """Return the fingerprint of a request, without its key."""
    return idempotency.fingerprint({**request, "idempotency_key": None})


async def _make_job(call: Call, submission: Submission, tx: Transaction) -> View:
    tenant = call.caller.tenant
    (job_id,) = await submit(tx, call.context.engine_context, [submission], tenant)
    await call.audit(tx, "submit", job_id)
    return (await job_queries.find_jobs(tx, [job_id], tenant))[job_id]


# -- many at once ---------------------------------------------------------------------------------------


async def _submit_each(call: Call, items: list[NewJobBody | CograilError]) -> list[Json]:
    """Submit each item; those with their own key in their own transaction. Returns the results in order."""
    plain = [item for item in items if isinstance(item, NewJobBody) and item.idempotency_key is None]
    new_jobs = await submit_and_show(
        call.context.db, call.context.engine_context, call.caller.tenant, _entries(call, plain)
    )
    outcomes = iter(new_jobs)
    results, unavailable = [], None
    for item in items:
        if isinstance(item, NewJobBody) and item.idempotency_key is not None:
            results.append(unavailable or await _keyed_result(call, item, item.idempotency_key))
            if results[-1].get("error", {}).get("code") == DATABASE_UNAVAILABLE.code:
                unavailable = results[-1]  # do not wait for the database again for each of the others
        else:
            results.append(_result(item if isinstance(item, CograilError) else next(outcomes)))
    return results


def _entries(call: Call, bodies: list[NewJobBody]) -> list[tuple[Submission, AuditRecord]]:
    return [(submission_of(call, body), call.entry("submit")) for body in bodies]


async def _submit_all(call: Call, items: list[NewJobBody | CograilError], tx: Transaction) -> dict[str, Json]:
    """Do the same in one transaction, for a batch with a key. Keys are locked in sorted order."""
    results = {index: _result(item) for index, item in enumerate(items) if isinstance(item, CograilError)}
    bodies = {index: item for index, item in enumerate(items) if isinstance(item, NewJobBody)}
    plain = [index for index, body in bodies.items() if body.idempotency_key is None]
    engine_context, tenant = call.context.engine_context, call.caller.tenant
    new_jobs = await submit_and_show_within(
        tx, engine_context, tenant, _entries(call, [bodies[index] for index in plain])
    )
    results |= {index: _result(outcome) for index, outcome in zip(plain, new_jobs, strict=True)}
    keyed = [
        (body.idempotency_key, index) for index, body in bodies.items() if body.idempotency_key is not None
    ]
    for key, index in sorted(keyed):
        body = bodies[index]
        make, request = partial(_make_job, call, submission_of(call, body)), body.model_dump(mode="json")
        try:
            job, is_new = await run_idempotent_in(tx, request_key(call, key), fingerprint(request), make)
        except CograilError as error:
            results[index] = _result(error)
        else:
            results[index] = {"status": 202 if is_new else 200, "job_id": job["job_id"]}
    return _within_answer_limit({"results": [results[index] for index in range(len(items))]})


def _within_answer_limit(answer: dict[str, Json]) -> dict[str, Json]:
    """Return the answer as it is stored for repeated requests; without error details if it is too large."""
    if len(encode_json(answer)) > idempotency.MAX_ANSWER_BYTES:
        for result in answer["results"]:
            if "error" in result:
                result["error"] |= {"detail": "", "pointer": ""}
    return answer


def _read_item(item: Json, hints: Suggestions) -> NewJobBody | CograilError:
    if isinstance(item, CograilError):
        return item
    try:
        body = as_model(item, NewJobBody, hints)
    except InvalidInput as error:
        return error
    if body.idempotency_key is not None and not IDEMPOTENCY_KEY.fullmatch(body.idempotency_key):
        return InvalidInput([Problem("invalid_idempotency_key", INVALID_KEY, "/idempotency_key")])
    return body


async def _keyed_result(call: Call, body: NewJobBody, key: str) -> Json:
    """Submit one item and return its result. Errors do not affect the items before it."""
    try:
        job, status = await submit_once(call, submission_of(call, body), key, body.model_dump(mode="json"))
    except (CograilError, Refusal) as error:
        return _result(error)
    except LOST:
        return _result(DATABASE_UNAVAILABLE)
    return {"status": status, "job_id": job["job_id"]}


def _result(outcome: View | CograilError | Refusal) -> Json:
    """Return the result of one item."""
    if isinstance(outcome, dict):
        return {"status": 202, "job_id": outcome["job_id"]}
    refusal = outcome if isinstance(outcome, Refusal) else refusal_of(outcome)
    error = {"code": refusal.code, "detail": refusal.detail, "pointer": refusal.pointer}
    return {"status": refusal.status, "error": error}


def _preferred_wait(call: Call) -> int | None:
    """Return the seconds of `Prefer: wait`; None without one. RFC 7240: names are case-insensitive."""
    match = PREFER_WAIT.search(", ".join(call.headers.getlist("prefer")))
    return None if match is None else min(int(match[1]), MAX_SECONDS)


async def _wait_for_end(call: Call, job: View, seconds: int) -> View:
    """Return the job when it has ended, or after `seconds`."""
    if job["completed_at"] is not None:
        return job
    tenant = call.caller.tenant
    await call.context.job_end_listener.wait(job["job_id"], tenant, seconds)
    async with call.transaction("show") as tx:
        return (await job_queries.find_jobs(tx, [job["job_id"]], tenant)).get(job["job_id"], job)
