"""The page of a node or a child: attempts, input and output, logs, checkpoints, children."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from cograil.errors import NodeNotFound
from cograil.http.routes.job_routes import find_job
from cograil.http.server.dispatcher import reply
from cograil.http.server.request_parsing import Query
from cograil.model.states import NODE_STATES
from cograil.model.workflow import Json, NodeType, Workflow
from cograil.store import job_queries
from cograil.store import job_snapshot as store
from cograil.store.database import Transaction
from cograil.store.job_queries import View
from cograil.ui.graph_model import child_at, strip_at
from cograil.ui.page_context import HTML, PageRequest, as_call, pages
from cograil.ui.pages.job_page import past_board
from cograil.ui.pages.logs_page import in_order
from cograil.ui.rendering import page
from cograil.ui.times import span

node_pages = pages("node")
CHILDREN = 50
EVENTS = 300
BARS = 24
FAR = 20


class NodeView(Query):
    """The event to show, and the filter of the children."""

    at: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    status: Annotated[str, Field(max_length=20)] = ""
    after: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None


@dataclass
class ChildrenView:
    """The children of a fan-out: the state of each, one page, and their durations."""

    states: Sequence[str] = ()
    page: Sequence[View] = ()
    seconds: Sequence[float] = ()


@node_pages.get("/jobs/{job_id}/nodes/{node_id}", "viewer", query=NodeView, media_type=HTML)
async def show_node(request: PageRequest) -> Response:
    """Show a node, now or at an earlier event."""
    query: NodeView = request.query
    node_id, tenant = request.path["node_id"], request.caller.tenant
    async with request.transaction("show") as tx:
        job, workflow = await find_job(as_call(request), tx)
        job_id = job["job_id"]
        node = await _find(tx, job_id, node_id, workflow, tenant)
        events = await store.newest_node_events(tx, job_id, node_id, tenant, EVENTS)
        logs = await store.newest_logs(tx, job_id, node_id, tenant)
        has_child = node["type"] == NodeType.SUBWORKFLOW and node["status"] == "failed"
        traceback = await job_queries.find_traceback(tx, job_id, node_id) if has_child else None
        inputs = (*node["earlier_inputs"], {"until": None, "input": node["input"]})
        board = None
        if query.at is not None:
            board = await past_board(request, tx, job_id, workflow, query.at)
            children = await _past_children(tx, job_id, node, tenant, board, query)
            node = _as_it_was(node, board, events, query.at)
            events, logs = [event for event in events if event["seq"] <= query.at], []
        else:
            children = await _children(tx, job_id, node, tenant, query)
    return page(
        request,
        "node.html",
        job=job,
        node=node,
        definition=workflow.nodes.get(node["parent_node_id"] or node_id),
        attempts=attempts_of(events, inputs),
        traceback=traceback,
        events=events[-60:],
        logs=in_order(logs),
        strip="".join(LETTER_OF[state] for state in children.states),
        bars=histogram(children.seconds),
        children=children.page,
        child_counts=_counts(children.states),
        child_status=query.status,
        more_after=children.page[-1]["index"] if len(children.page) == CHILDREN else None,
        at_seq=query.at,
        as_of=None if board is None else board.now,
        can_retry=can_retry(job, node),
        states=NODE_STATES,
    )


async def _find(tx: Transaction, job_id: str, node_id: str, workflow: Workflow, tenant: str) -> View:
    """Return the node with its type. Raises NodeNotFound."""
    record = await store.show_node(tx, job_id, node_id, tenant)
    if record is None and node_id not in workflow.nodes:
        raise NodeNotFound(job_id, node_id[:80])
    node = record or job_queries.pending_view(node_id) | {"earlier_inputs": [], "checkpoint": None}
    definition = workflow.nodes.get(node_id)
    kind = NodeType.TASK if definition is None else definition.type
    handler = node["handler"] or (workflow.nodes[node["parent_node_id"] or node_id].handler or None)
    return node | {"type": kind.value, "handler": handler}


async def _children(tx: Transaction, job_id: str, node: View, tenant: str, query: NodeView) -> ChildrenView:
    if node["children"] is None:
        return ChildrenView()
    name, after = node["node_id"], -1 if query.after is None else query.after
    letters, seconds = await store.strip_of_children(tx, job_id, name, tenant)
    children = await store.list_children(
        tx, job_id, name, tenant, status=_status(query), after=after, limit=CHILDREN
    )
    return ChildrenView([LETTERS[letter] for letter in letters], children, seconds)


async def _past_children(
    tx: Transaction, job_id: str, node: View, tenant: str, board: store.JobSnapshot, query: NodeView
) -> ChildrenView:
    """Return the children at an earlier event."""
    card = board.nodes.get(node["node_id"])
    if card is None or card.total is None or query.at is None:
        return ChildrenView()
    last = await store.strip_at(tx, job_id, card.node_id, tenant, query.at)
    states = strip_at(last, card)
    after, status = -1 if query.after is None else query.after, _status(query)
    children = [
        {"node_id": f"{card.node_id}__{index}", "index": index, "status": state}
        for index, state in enumerate(states)
        if index > after and status in (None, state)
    ]
    return ChildrenView(states, children[:CHILDREN])


def _status(query: NodeView) -> str | None:
    return query.status if query.status in NODE_STATES else None


def _as_it_was(node: View, board: store.JobSnapshot, events: Sequence[View], seq: int) -> View:
    """Return the node at an event: with its input once it had started, with its output once it had completed."""
    node_id, parent = node["node_id"], node["parent_node_id"]
    card = board.nodes[node_id] if parent is None else child_at(events, seq, node_id, board, parent)
    had_begun = card.status not in ("pending", "ready", "skipped") or card.attempt > 0
    had_failed = card.status == "failed" or (card.status == "ready" and card.attempt > 0)
    inputs = (*node["earlier_inputs"], {"until": None, "input": node["input"]})
    return node | {
        "status": card.status,
        "attempt": card.attempt,
        "started_at": card.started_at,
        "completed_at": card.finished_at,
        "input": input_at(inputs, seq) if had_begun else None,
        "output": node["output"] if card.status == "completed" else None,
        "error": {"message": card.error_message} if had_failed and card.error_message else None,
        "progress": None,
        "checkpoint": None,
        "children": node["children"] if card.total is not None else None,
        "child_job": None,
        "not_before": None,
        "worker": None,
        "skip_reason": card.skip_reason,
    }


def input_at(inputs: Iterable[View], seq: int) -> Json:
    """Return the input of the node at this event; `inputs` are in order, the last one has no end."""
    return next(
        given_input["input"]
        for given_input in inputs
        if given_input["until"] is None or seq <= given_input["until"]
    )


def can_retry(job: View, node: View) -> bool:
    """Return whether a retry from here is possible: of a failed node, or of any that ran in an ended job."""
    if job["completed_at"] is None:
        return bool(node["status"] == "failed")
    return node["status"] in ("failed", "completed", "cancelled")


def attempts_of(events: Iterable[View], inputs: Sequence[View]) -> list[View]:
    """Return the attempts with their results and inputs, from the events of the node."""
    attempts: list[View] = []
    for event in events:
        kind, data, at = event["event_type"], event["data"], event["created_at"]
        if kind in ("node_dispatched", "child_started"):
            attempts.append(_new_attempt(event, input_at(inputs, event["seq"])))
        elif not attempts:
            continue
        elif kind == "node_started":
            attempts[-1] |= {"worker": data.get("worker"), "started_at": data.get("started_at")}
        elif kind == "task_failed":
            error = data.get("error") or {}
            details = error.get("details") if isinstance(error.get("details"), dict) else {}
            attempts[-1] |= {"ended_at": at, "outcome": "failed", "error": error}
            attempts[-1]["traceback"] = (details or {}).get("traceback")
        elif kind == "warning" and data.get("code") == "released":
            attempts[-1] |= {"ended_at": at, "outcome": "released"}
        elif kind in ("node_completed", "node_timeout"):
            attempts[-1].setdefault("ended_at", at)
            attempts[-1].setdefault("outcome", "completed" if kind == "node_completed" else "timeout")
    return attempts


def _new_attempt(event: View, node_input: Json) -> View:
    data = event["data"]
    return {
        "number": data.get("attempt"),
        "queue": data.get("queue"),
        "child_job": data.get("job_id"),
        "dispatched_at": event["created_at"],
        "input": node_input,
    }


def histogram(seconds: Sequence[float]) -> list[View]:
    """Return a histogram of durations, with bars of equal width, or of equal ratio for a wide range."""
    if not seconds:
        return []
    edges = _edges(max(min(seconds), 0.0), max(seconds))
    counts = [0] * BARS
    for value in seconds:
        counts[min(BARS, max(1, bisect_right(edges, value))) - 1] += 1
    highest = max(counts)
    return [
        {
            "x": index * 20,
            "height": max(round(60 * count / highest, 1), 1.5 if count else 0),
            "title": f"{count} took {span(edges[index])} to {span(edges[index + 1])}",
        }
        for index, count in enumerate(counts)
    ]


def _edges(low: float, high: float) -> list[float]:
    """Return the edges of the bars."""
    first = max(low, 0.001)
    if high < FAR * first:
        width = (high - low) / BARS or 0.001
        return [low + width * index for index in range(BARS + 1)]
    ratio = (high / first) ** (1 / BARS)
    return [first * ratio**index for index in range(BARS + 1)]


LETTERS = dict(
    zip("pydrwcfsx", ("pending", "ready", "dispatched", "running", "waiting", *NODE_STATES[5:]), strict=True)
)
LETTER_OF = {status: letter for letter, status in LETTERS.items()}


def _counts(states: Sequence[str]) -> list[tuple[str, int]]:
    return [(status, number) for status in LETTER_OF if (number := states.count(status))]


@node_pages.get("/jobs/{job_id}/nodes/{node_id}/strip", "viewer", query=NodeView)
async def show_strip(request: PageRequest) -> Response:
    """Return the states of all children of a fan-out, a letter for each, now or at an earlier event."""
    node_id, tenant, query = request.path["node_id"], request.caller.tenant, request.query
    async with request.transaction("show") as tx:
        job, workflow = await find_job(as_call(request), tx)
        if query.at is None:
            letters, _ = await store.strip_of_children(tx, job["job_id"], node_id, tenant)
        else:
            board = await past_board(request, tx, job["job_id"], workflow, query.at)
            past = await _past_children(tx, job["job_id"], {"node_id": node_id}, tenant, board, query)
            letters = "".join(LETTER_OF[state] for state in past.states)
    return reply({"strip": letters})
