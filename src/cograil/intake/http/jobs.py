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
from cograil.definitions.hints import Hints
from cograil.errors import CograilError, InvalidInput, JobNotFound, Problem
from cograil.intake.http.door import UNREACHABLE, Call, reply, written
from cograil.intake.http.gathering import submit_and_show, submit_and_show_within
from cograil.intake.http.once import (
    IDEMPOTENCY_KEY,
    ODD_KEY,
    KeyText,
    idempotency_key,
    name_of,
    once,
    once_within,
)
from cograil.intake.http.problems import Refusal, refusal_of
from cograil.intake.http.reading import Batch, Body, Query, as_model
from cograil.intake.http.table import Table
from cograil.intake.http.waiting import MOST_SECONDS
from cograil.intake.http.words import Labels, Moment, WorkflowName
from cograil.model import shapes
from cograil.model.hops import HOP
from cograil.model.workflow import Json, Workflow
from cograil.store import reading
from cograil.store.board import JobWindow, search_jobs
from cograil.store.database import LOST, Transaction
from cograil.store.keys import AuditEntry
from cograil.store.reading import View
from cograil.verbs import idempotency
from cograil.verbs.submit import Submission, submit

jobs = Table("jobs")

BATCH_BODY = 8 * 1024 * 1024
BATCH_ITEMS = 1000
WHOLE = " whole"  # the key of a batch is another than that of one of its jobs
PREFER_WAIT = re.compile(r"(?:^|[,;]\s*)wait\s*=\s*\"?([0-9]{1,5})\"?(?=$|[,;\s])", re.IGNORECASE)


Word = Annotated[str, Field(min_length=1, max_length=64)]
Status = Literal["pending", "running", "waiting", "completed", "failed", "cancelled"]


SUBMIT = "POST /api/v1/jobs"  # the scope of its idempotency keys


class NewJob(Body):
    """What a caller says of a job."""

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


class NewJobs(Batch):
    """Up to a thousand of them; each is checked by itself."""

    most = BATCH_ITEMS
    jobs: Annotated[list[dict[str, Json]], Field(min_length=1, max_length=BATCH_ITEMS)]


class JobList(Query):
    """Which jobs."""

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
    body=NewJob,
    answers={
        202: "the job",
        200: "the first answer to the same request",
        409: "another request had this key",
        404: "no such workflow",
    },
    gives=shapes.Job,
    heeds=("Idempotency-Key", "Prefer"),
)
async def submit_job(call: Call) -> Response:
    """Submit a job.

    With an idempotency key (header or field) the same request again is answered as the first one was. With
    `Prefer: wait=10` the answer waits so many seconds for the end of the job.
    """
    given: NewJob = call.body
    submission, key = submission_of(call, given), idempotency_key(call, given.idempotency_key)
    if key is None:
        job, status = await call.instance.gatherer.submit(submission, call.entry("submit")), 202
    else:
        job, status = await submit_once(call, submission, key, given.model_dump(mode="json"))
    told = {"Location": f"/api/v1/jobs/{job['job_id']}"}
    if (seconds := _preferred_wait(call)) is not None:
        job = await _waited_for(call, job, seconds)
        told["Preference-Applied"] = f"wait={seconds}"
    return reply(job, status, told)


@jobs.post(
    "/jobs/batch",
    "submitter",
    body=NewJobs,
    max_body=BATCH_BODY,
    answers={
        200: "for each, in order, the job or what is wrong with it",
        409: "another batch had this key",
    },
    gives=shapes.BatchResults,
    heeds=("Idempotency-Key",),
)
async def submit_jobs(call: Call) -> Response:
    """Submit up to 1,000 jobs; each is made or refused by itself.

    With an idempotency key in the header the same batch again is answered as the first one was.
    """
    hints = Hints()
    given = [_read_item(item, hints) for item in call.body.jobs]
    key = idempotency_key(call)
    if key is None:
        return reply({"results": await _submit_each(call, given)})
    asked = [str(item) if isinstance(item, CograilError) else item for item in call.body.jobs]
    name = name_of(call, key, WHOLE)
    request = await asyncio.to_thread(idempotency.fingerprint, asked)  # of megabytes it takes a while
    answer, _ = await once(call, name, request, partial(_submit_all, call, given))
    return reply(answer)


@jobs.get(
    "/jobs",
    "viewer",
    query=JobList,
    answers={200: "a page of jobs, newest first; it may be short, see next_cursor"},
    gives=shapes.JobPage,
)
async def list_jobs(call: Call) -> Response:
    """List jobs, newest first.

    `status=waiting` lists the jobs that have a `waiting_for`: nothing of them runs or is queued, they wait
    for a person or a moment. Their `status` is `pending` or `running`, and they are listed under it too.
    `label` is `customer=acme,urgent`: those that have all of these; `search` is what is in the input, the
    labels, the id, or who submitted it. A page of those looks through a bounded number of jobs, and any page
    ends after 32 MiB of inputs and results.
    """
    asked: JobList = call.query
    filters = (asked.status, asked.workflow_id, asked.correlation_id)
    sought = (asked.label, asked.search) if asked.is_search else ()
    bound = (call.caller.tenant, "jobs", *filters, *sought)
    before = None if asked.cursor is None else call.instance.cursors.read(asked.cursor, *bound)
    async with call.transaction("show") as tx:
        found, stopped_at = await (_search if asked.is_search else _listed)(tx, call, before)
    cursor = None if stopped_at is None else call.instance.cursors.make(stopped_at, *bound)
    return reply({"jobs": found, "next_cursor": cursor})


async def _listed(tx: Transaction, call: Call, before: str | None) -> tuple[list[View], str | None]:
    asked: JobList = call.query
    found = await reading.list_jobs(
        tx,
        tenant=call.caller.tenant,
        statuses=None if asked.status is None else [asked.status],
        workflow=asked.workflow_id,
        correlation=asked.correlation_id,
        before=before,
        limit=asked.limit,
        most_bytes=reading.MOST_PAGE_BYTES,
    )
    return found, found[-1]["job_id"] if found.has_more else None


async def _search(tx: Transaction, call: Call, before: str | None) -> tuple[list[View], str | None]:
    asked: JobList = call.query
    if asked.correlation_id is not None:
        raise Refusal(
            422, "invalid_parameter", "one correlation id has few jobs: they are listed, not searched"
        )
    return await search_jobs(
        tx,
        call.caller.tenant,
        statuses=None if asked.status is None else [asked.status],
        workflow=asked.workflow_id,
        labels=labels_of(asked.label or ""),
        text=asked.search,
        window=JobWindow() if before is None else JobWindow(before),
        limit=asked.limit,
    )


def labels_of(text: str) -> dict[str, str | None]:
    """Labels as people write them: `customer=acme, urgent`. One without a value is asked for by its name."""
    found: dict[str, str | None] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if name.strip():
            found[name.strip()] = value.strip() if equals else None
    return found


@jobs.get("/jobs/{job_id}", "viewer", answers={200: "the job with its nodes"}, gives=shapes.JobWithNodes)
async def show_job(call: Call) -> Response:
    """Show a job with its nodes."""
    async with call.transaction("show") as tx:
        job, workflow = await find_job(call, tx)
        nodes = await reading.list_nodes(tx, job["job_id"], workflow, tenant=call.caller.tenant)
    summary = Counter(node["status"] for node in nodes)
    return reply({"job": job, "nodes": nodes, "node_summary": summary})


async def find_job(call: Call, tx: Transaction) -> tuple[View, Workflow]:
    """The job that the path names, and its workflow. Raises JobNotFound; a foreign one is unknown too."""
    job_id = call.path["job_id"]
    found = await reading.find_job(tx, job_id, call.caller.tenant) if job_id == job_id.lower() else None
    if found is None:
        raise JobNotFound(job_id[:64])
    job, definition_id = found
    return job, await call.instance.decider.catalog.get(tx, definition_id)


# -- submitting -----------------------------------------------------------------------------------------


def submission_of(call: Call, given: NewJob) -> Submission:
    """What is submitted. Who does not say by whom is called by the name of the key."""
    return Submission(
        workflow_id=given.workflow_id,
        input=given.input_params,
        version=given.version,
        priority=given.priority,
        correlation_id=given.correlation_id,
        submitted_by=given.submitted_by or call.caller.name or None,
        labels=with_hop(call, given.labels),
        not_before=given.not_before,
        callback=given.callback,
        trace_parent=trace_parent_of(call),
    )


def with_hop(call: Call, labels: dict[str, str] | None) -> dict[str, str] | None:
    """These labels with the hop, if this comes from an event of ours."""
    hop = call.headers.get(HOP)
    return labels if hop is None else {**(labels or {}), HOP: hop}


def trace_parent_of(call: Call) -> str | None:
    """The span of whoever calls, if they have one."""
    return tracing.read_parent(call.headers.get("traceparent"))


async def submit_once(
    call: Call, submission: Submission, key: str, request: dict[str, Json]
) -> tuple[View, int]:
    """Submit under this key: 202 for the first time, 200 with the first answer after that."""
    name, asked = name_of(call, key), fingerprint(request)
    job, is_new = await once(call, name, asked, partial(_make_job, call, submission))
    return job, 202 if is_new else 200


def fingerprint(request: dict[str, Json]) -> str:
    """By which a request is known again."""
    return idempotency.fingerprint({**request, "idempotency_key": None})


async def _make_job(call: Call, submission: Submission, tx: Transaction) -> View:
    tenant = call.caller.tenant
    (job_id,) = await submit(tx, call.instance.decider, [submission], tenant)
    await call.audit(tx, "submit", job_id)
    return (await reading.find_jobs(tx, [job_id], tenant))[job_id]


# -- many at once ---------------------------------------------------------------------------------------


async def _submit_each(call: Call, given: list[NewJob | CograilError]) -> list[Json]:
    """What becomes of each; those with a key of their own in a transaction of their own."""
    plain = [one for one in given if isinstance(one, NewJob) and one.idempotency_key is None]
    made = await submit_and_show(
        call.instance.db, call.instance.decider, call.caller.tenant, _entries(call, plain)
    )
    outcomes = iter(made)
    results, away = [], None
    for one in given:
        if isinstance(one, NewJob) and one.idempotency_key is not None:
            results.append(away or await _keyed_result(call, one, one.idempotency_key))
            if results[-1].get("error", {}).get("code") == UNREACHABLE.code:
                away = results[-1]  # the database; nobody waits for it once more for each of the others
        else:
            results.append(_result(one if isinstance(one, CograilError) else next(outcomes)))
    return results


def _entries(call: Call, given: list[NewJob]) -> list[tuple[Submission, AuditEntry]]:
    return [(submission_of(call, one), call.entry("submit")) for one in given]


async def _submit_all(call: Call, given: list[NewJob | CograilError], tx: Transaction) -> dict[str, Json]:
    """The same in one transaction, for a batch that has a key itself. Keys are locked in their order."""
    results = {place: _result(one) for place, one in enumerate(given) if isinstance(one, CograilError)}
    jobs = {place: one for place, one in enumerate(given) if isinstance(one, NewJob)}
    plain = [place for place, one in jobs.items() if one.idempotency_key is None]
    decider, tenant = call.instance.decider, call.caller.tenant
    made = await submit_and_show_within(tx, decider, tenant, _entries(call, [jobs[one] for one in plain]))
    results |= {place: _result(one) for place, one in zip(plain, made, strict=True)}
    keyed = [(one.idempotency_key, place) for place, one in jobs.items() if one.idempotency_key is not None]
    for key, place in sorted(keyed):
        one = jobs[place]
        make, asked = partial(_make_job, call, submission_of(call, one)), one.model_dump(mode="json")
        try:
            job, is_new = await once_within(tx, name_of(call, key), fingerprint(asked), make)
        except CograilError as error:
            results[place] = _result(error)
        else:
            results[place] = {"status": 202 if is_new else 200, "job_id": job["job_id"]}
    return _kept({"results": [results[place] for place in range(len(given))]})


def _kept(answer: dict[str, Json]) -> dict[str, Json]:
    """The answer for all who ask again; if it says too much of what is wrong, only what that is called."""
    if len(written(answer)) > idempotency.MAX_ANSWER_BYTES:
        for one in answer["results"]:
            if "error" in one:
                one["error"] |= {"detail": "", "pointer": ""}
    return answer


def _read_item(item: Json, hints: Hints) -> NewJob | CograilError:
    if isinstance(item, CograilError):
        return item
    try:
        given = as_model(item, NewJob, hints)
    except InvalidInput as error:
        return error
    if given.idempotency_key is not None and not IDEMPOTENCY_KEY.fullmatch(given.idempotency_key):
        return InvalidInput([Problem("invalid_idempotency_key", ODD_KEY, "/idempotency_key")])
    return given


async def _keyed_result(call: Call, one: NewJob, key: str) -> Json:
    """What becomes of one; whatever it is, those before it were made."""
    try:
        job, status = await submit_once(call, submission_of(call, one), key, one.model_dump(mode="json"))
    except (CograilError, Refusal) as error:
        return _result(error)
    except LOST:
        return _result(UNREACHABLE)
    return {"status": status, "job_id": job["job_id"]}


def _result(one: View | CograilError | Refusal) -> Json:
    """What became of one of many."""
    if isinstance(one, dict):
        return {"status": 202, "job_id": one["job_id"]}
    refusal = one if isinstance(one, Refusal) else refusal_of(one)
    error = {"code": refusal.code, "detail": refusal.detail, "pointer": refusal.pointer}
    return {"status": refusal.status, "error": error}


def _preferred_wait(call: Call) -> int | None:
    """For how many seconds the caller wants to wait; RFC 7240 has it that capitals do not matter."""
    found = PREFER_WAIT.search(", ".join(call.headers.getlist("prefer")))
    return None if found is None else min(int(found[1]), MOST_SECONDS)


async def _waited_for(call: Call, job: View, seconds: int) -> View:
    """The job when it has ended, or after so long."""
    if job["completed_at"] is not None:
        return job
    tenant = call.caller.tenant
    await call.instance.doorbell.wait(job["job_id"], tenant, seconds)
    async with call.transaction("show") as tx:
        return (await reading.find_jobs(tx, [job["job_id"]], tenant)).get(job["job_id"], job)
