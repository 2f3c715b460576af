"""The page of a job: its graph, live and at any earlier event, why it waits, its timeline."""

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
from cograil.ui.failure import JobFailure, failure_of
from cograil.ui.gantt import chart_of, time_spans
from cograil.ui.graph_model import board_at, graph_of, state_of
from cograil.ui.page_context import HTML, PageRequest, as_call, pages
from cograil.ui.rendering import page
from cograil.verbs.blockers import JobBlocker
from cograil.verbs.explain import explain

job_pages = pages("job")
EVENTS_SHOWN, BLOCKERS_SHOWN, MAX_EVENTS, QUESTIONS_SHOWN = 40, 12, 500, 5
BUCKETS = 120


class EventNumber(Query):
    """The number of an event."""

    seq: Annotated[int, Field(ge=1, le=2**31 - 1)]


class EventFilter(Query):
    """The filter of the timeline. An empty field does not filter."""

    type: Annotated[str, Field(max_length=64)] = ""
    node: Annotated[str, Field(max_length=64)] = ""

    def matches(self, event: View) -> bool:
        """Return whether the filter matches this event."""
        return self.type in ("", event["event_type"]) and self.node in ("", event["node_id"])


async def find(request: PageRequest, tx: Transaction) -> tuple[View, Workflow, JobSnapshot]:
    """Return the job of the path, its workflow and its snapshot. Raises JobNotFound."""
    job, workflow = await find_job(as_call(request), tx)
    board = await store.load_job_snapshot(tx, job["job_id"], request.caller.tenant)
    if board is None:
        raise JobNotFound(job["job_id"])
    return job, workflow, board


@job_pages.get("/jobs/{job_id}", "viewer", media_type=HTML)
async def show_job(request: PageRequest) -> Response:
    """Show a job with its graph."""
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


async def _find_failure(
    tx: Transaction, job: View, workflow: Workflow, board: JobSnapshot
) -> JobFailure | None:
    node_id = (job["error"] or {}).get("node_id")
    traceback = await job_queries.find_traceback(tx, job["job_id"], node_id) if node_id else None
    return failure_of(job, board, workflow, traceback)


async def _find_questions(
    tx: Transaction, job_id: str, tenant: str, blockers: Sequence[JobBlocker]
) -> list[View]:
    """Return the waiting approvals, with their messages and deadlines."""
    questions = []
    for blocker in [blocker for blocker in blockers if blocker.kind == "approval" and blocker.node_id][
        :QUESTIONS_SHOWN
    ]:
        node = await store.show_node(tx, job_id, blocker.node_id or "", tenant)
        node_input = (node or {}).get("input") or {}
        questions.append(
            {
                "node_id": blocker.node_id,
                "message": node_input.get("message"),
                "approvers": node_input.get("approvers"),
                "deadline": blocker.until,
            }
        )
    return questions


async def is_published(tx: Transaction, job: View, tenant: str) -> bool:
    """Return whether the version of this job is published; a draft cannot be submitted."""
    versions = await list_versions(tx, tenant, job["workflow_id"])
    return any(version["version"] == job["workflow_version"] for version in versions)


@job_pages.get("/jobs/{job_id}/state", "viewer")
async def show_state(request: PageRequest) -> Response:
    """Return the state of a job for its page. Polled often, so without inputs and outputs."""
    job_id = request.path["job_id"]
    async with request.transaction("show") as tx:
        board = await store.load_job_snapshot(tx, job_id, request.caller.tenant)
        if board is None:
            raise JobNotFound(job_id[:64])
        workflow = await request.context.engine_context.definitions.get(tx, board.definition_id)
    return reply(state_of(board, workflow))


@job_pages.get("/jobs/{job_id}/at", "viewer", query=EventNumber)
async def show_past(request: PageRequest) -> Response:
    """Return the state of the job just after this event."""
    async with request.transaction("show") as tx:
        job, workflow = await find_job(as_call(request), tx)
        board = await past_board(request, tx, job["job_id"], workflow, request.query.seq)
    return reply(state_of(board, workflow))


async def past_board(
    request: PageRequest, tx: Transaction, job_id: str, workflow: Workflow, seq: int
) -> JobSnapshot:
    """Return the snapshot at this event. Raises Refusal for an event that does not exist."""
    tenant = request.caller.tenant
    events = await new_events(tx, job_id, 0, tenant)
    children = await store.children_at(tx, job_id, tenant, seq) if workflow.has_fan_outs else {}
    now = await store.load_job_snapshot(tx, job_id, tenant)
    if not events or now is None or seq > now.seq:
        raise Refusal(404, "not_found", "this job does not have this event, or no longer")
    at = await store.find_event_time(tx, job_id, tenant, seq)
    board = board_at(events, children, max(seq, events[0]["seq"]), workflow, at)
    return replace(board, nodes={name: _with_branch(card, now) for name, card in board.nodes.items()})


def _with_branch(card: NodeSnapshot, now: JobSnapshot) -> NodeSnapshot:
    """Return the node with its branch, which its events do not contain."""
    known = now.nodes.get(card.node_id)
    if known is None or card.status != "completed":
        return card
    return replace(card, taken_branch=known.taken_branch)


@job_pages.get("/jobs/{job_id}/timeline", "viewer", query=EventFilter, media_type=HTML)
async def show_timeline(request: PageRequest) -> Response:
    """Show when each node ran, and the events."""
    tenant, query = request.caller.tenant, request.query
    async with request.transaction("show") as tx:
        job, workflow, board = await find(request, tx)
        events = await new_events(tx, job["job_id"], 0, tenant)
        first: datetime = job["created_at"]
        last: datetime = board.finished_at or board.now
        spread = {}
        if workflow.has_fan_outs:
            spread = await store.spread_of_children(tx, job["job_id"], tenant, first, last, BUCKETS)
    chart = chart_of(board, workflow, time_spans(events), spread, (first, last), BUCKETS)
    return page(
        request,
        "timeline.html",
        job=job,
        workflow=workflow,
        chart=chart,
        events=[event for event in events if query.matches(event)][-MAX_EVENTS:],
        most=MAX_EVENTS,
        types=sorted({event["event_type"] for event in events}),
        filters=query,
        is_over=board.finished_at is not None,
    )


@job_pages.get(
    "/jobs/{job_id}/events/stream", "viewer", query=JobFeed, is_stream=True, headers=("Last-Event-ID",)
)
async def follow_job(request: PageRequest) -> Response:
    """Stream the events of a job."""
    return await stream_job(as_call(request))
