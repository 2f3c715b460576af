"""One job: its graph, live and at any moment before, why it waits, its timeline."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from cograil.errors import JobNotFound
from cograil.http.routes.job_routes import find_job
from cograil.http.server.dispatcher import reply
from cograil.http.server.problem_details import Refusal
from cograil.http.server.request_parsing import Query
from cograil.http.streams.event_streams import JobFeed, stream_job
from cograil.model.workflow import Workflow
from cograil.store import job_queries
from cograil.store import job_snapshot as store
from cograil.store.database import Transaction
from cograil.store.job_progress_queries import new_events
from cograil.store.job_queries import View
from cograil.store.job_snapshot import JobSnapshot, NodeSnapshot
from cograil.store.workflow_queries import list_versions
from cograil.ui.failure import Failure, failure_of
from cograil.ui.gantt import chart_of, retold
from cograil.ui.graph_model import board_at, graph_of, state_of
from cograil.ui.page_context import HTML, PageRequest, as_call, pages
from cograil.ui.rendering import page
from cograil.verbs.blockers import JobBlocker
from cograil.verbs.explain import explain

job_pages = pages("job")
EVENTS_SHOWN, BLOCKERS_SHOWN, MAX_EVENTS, QUESTIONS_SHOWN = 40, 12, 500, 5
BUCKETS = 120


class Moment(Query):
    """The number of the event."""

    seq: Annotated[int, Field(ge=1, le=2**31 - 1)]


class EventFilter(Query):
    """Which events of the timeline. What is empty is not asked for."""

    type: Annotated[str, Field(max_length=64)] = ""
    node: Annotated[str, Field(max_length=64)] = ""

    def picks(self, event: View) -> bool:
        """Whether this is one of them."""
        return self.type in ("", event["event_type"]) and self.node in ("", event["node_id"])


async def find(request: PageRequest, tx: Transaction) -> tuple[View, Workflow, JobSnapshot]:
    """The job of the path, its workflow and its board. Raises JobNotFound."""
    job, workflow = await find_job(as_call(request), tx)
    board = await store.load_job_snapshot(tx, job["job_id"], request.caller.tenant)
    if board is None:
        raise JobNotFound(job["job_id"])
    return job, workflow, board


@job_pages.get("/jobs/{job_id}", "viewer", media_type=HTML)
async def show_job(request: PageRequest) -> Response:
    """A job with its graph."""
    tenant, definitions = request.caller.tenant, request.context.engine_context.definitions
    async with request.transaction("show") as tx:
        job, workflow, board = await find(request, tx)
        job_id = job["job_id"]
        why = await explain(tx, definitions, job_id, tenant)
        events = await store.newest_events(tx, job_id, tenant, EVENTS_SHOWN)
        failure = await _find_failure(tx, job, workflow, board)
        questions = await _find_questions(tx, job_id, tenant, why.blockers)
        can_submit = job["completed_at"] is not None and await is_published(tx, job, tenant)
    state = state_of(board, workflow)
    return await asyncio.to_thread(  # a job of a thousand nodes takes a fifth of a second
        page,
        request,
        "job.html",
        job=job,
        workflow=workflow,
        state=state,
        graph=graph_of(workflow),
        blockers=why.blockers[:BLOCKERS_SHOWN],
        failure=failure,
        questions=questions,
        is_published=can_submit,
        events=events,
        address=f"/ui/jobs/{job_id}",
    )


async def _find_failure(tx: Transaction, job: View, workflow: Workflow, board: JobSnapshot) -> Failure | None:
    node_id = (job["error"] or {}).get("node_id")
    traceback = await job_queries.find_traceback(tx, job["job_id"], node_id) if node_id else None
    return failure_of(job, board, workflow, traceback)


async def _find_questions(
    tx: Transaction, job_id: str, tenant: str, blockers: Sequence[JobBlocker]
) -> list[View]:
    """The approvals that wait for an answer, with what they ask and until when."""
    questions = []
    for one in [one for one in blockers if one.kind == "approval" and one.node_id][:QUESTIONS_SHOWN]:
        node = await store.show_node(tx, job_id, one.node_id or "", tenant)
        asked = (node or {}).get("input") or {}
        questions.append(
            {
                "node_id": one.node_id,
                "message": asked.get("message"),
                "approvers": asked.get("approvers"),
                "deadline": one.until,
            }
        )
    return questions


async def is_published(tx: Transaction, job: View, tenant: str) -> bool:
    """Whether jobs of this version can be submitted: a draft cannot."""
    versions = await list_versions(tx, tenant, job["workflow_id"])
    return any(one["version"] == job["workflow_version"] for one in versions)


@job_pages.get("/jobs/{job_id}/state", "viewer")
async def show_state(request: PageRequest) -> Response:
    """How the job stands, for the page that shows it. It asks often: not what the job took and returned."""
    job_id = request.path["job_id"]
    async with request.transaction("show") as tx:
        board = await store.load_job_snapshot(tx, job_id, request.caller.tenant)
        if board is None:
            raise JobNotFound(job_id[:64])
        workflow = await request.context.engine_context.definitions.get(tx, board.definition_id)
    return reply(state_of(board, workflow))


@job_pages.get("/jobs/{job_id}/at", "viewer", query=Moment)
async def show_past(request: PageRequest) -> Response:
    """How the job stood when this event had just happened."""
    async with request.transaction("show") as tx:
        job, workflow = await find_job(as_call(request), tx)
        board = await past_board(request, tx, job["job_id"], workflow, request.query.seq)
    return reply(state_of(board, workflow))


async def past_board(
    request: PageRequest, tx: Transaction, job_id: str, workflow: Workflow, seq: int
) -> JobSnapshot:
    """The board of that moment. Raises Refusal for a number that the job has not come to."""
    tenant = request.caller.tenant
    events = await new_events(tx, job_id, 0, tenant)
    children = await store.children_at(tx, job_id, tenant, seq) if workflow.has_fan_outs else {}
    now = await store.load_job_snapshot(tx, job_id, tenant)
    if not events or now is None or seq > now.seq:
        raise Refusal(404, "not_found", "this job has no such event, or not any more")
    at = await store.find_event_time(tx, job_id, tenant, seq)
    board = board_at(events, children, max(seq, events[0]["seq"]), workflow, at)
    return replace(board, nodes={name: _with_branch(card, now) for name, card in board.nodes.items()})


def _with_branch(card: NodeSnapshot, now: JobSnapshot) -> NodeSnapshot:
    """A branch is taken once: which one, the node knows and its events do not."""
    known = now.nodes.get(card.node_id)
    if known is None or card.status != "completed":
        return card
    return replace(card, taken_branch=known.taken_branch)


@job_pages.get("/jobs/{job_id}/timeline", "viewer", query=EventFilter, media_type=HTML)
async def show_timeline(request: PageRequest) -> Response:
    """When each node ran, and what happened."""
    tenant, asked = request.caller.tenant, request.query
    async with request.transaction("show") as tx:
        job, workflow, board = await find(request, tx)
        events = await new_events(tx, job["job_id"], 0, tenant)
        first: datetime = job["created_at"]
        last: datetime = board.finished_at or board.now
        spread = {}
        if workflow.has_fan_outs:
            spread = await store.spread_of_children(tx, job["job_id"], tenant, first, last, BUCKETS)
    chart = chart_of(board, workflow, retold(events), spread, (first, last), BUCKETS)
    return page(
        request,
        "timeline.html",
        job=job,
        workflow=workflow,
        chart=chart,
        events=[event for event in events if asked.picks(event)][-MAX_EVENTS:],
        most=MAX_EVENTS,
        types=sorted({event["event_type"] for event in events}),
        asked=asked,
        is_over=board.finished_at is not None,
    )


@job_pages.get(
    "/jobs/{job_id}/events/stream", "viewer", query=JobFeed, is_stream=True, headers=("Last-Event-ID",)
)
async def follow_job(request: PageRequest) -> Response:
    """The events of a job."""
    return await stream_job(as_call(request))
