"""One node of a job, or one child: attempts, what it took and returned, logs, checkpoints, its children."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from cograil.engine.states import NODE_STATES
from cograil.errors import NodeNotFound
from cograil.intake.http.door import reply
from cograil.intake.http.jobs import find_job
from cograil.intake.http.reading import Query
from cograil.model.workflow import Json, NodeType, Workflow
from cograil.store import board as store
from cograil.store import reading
from cograil.store.database import Transaction
from cograil.store.reading import View
from cograil.ui.board import child_at, strip_at
from cograil.ui.pages.job import past_board
from cograil.ui.pages.logs import in_order
from cograil.ui.rendering import page
from cograil.ui.times import span
from cograil.ui.visits import HTML, Visit, as_call, pages

node_pages = pages("node")
CHILDREN = 50
EVENTS = 300
BARS = 24
FAR = 20


class NodeView(Query):
    """At which event, and which children."""

    at: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    status: Annotated[str, Field(max_length=20)] = ""
    after: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None


@dataclass
class Children:
    """What is shown of the children of a fan-out: the state of each, a page of them, how long they took."""

    states: Sequence[str] = ()
    page: Sequence[View] = ()
    seconds: Sequence[float] = ()


@node_pages.get("/jobs/{job_id}/nodes/{node_id}", "viewer", query=NodeView, media_type=HTML)
async def show_node(visit: Visit) -> Response:
    """A node from close by, now or as it was."""
    asked: NodeView = visit.query
    node_id, tenant = visit.path["node_id"], visit.caller.tenant
    async with visit.transaction("show") as tx:
        job, workflow = await find_job(as_call(visit), tx)
        job_id = job["job_id"]
        node = await _find(tx, job_id, node_id, workflow, tenant)
        events = await store.newest_node_events(tx, job_id, node_id, tenant, EVENTS)
        logs = await store.newest_logs(tx, job_id, node_id, tenant)
        has_child = node["type"] == NodeType.SUBWORKFLOW and node["status"] == "failed"
        traceback = await reading.find_traceback(tx, job_id, node_id) if has_child else None
        inputs = (*node["earlier_inputs"], {"until": None, "input": node["input"]})
        board = None
        if asked.at is not None:
            board = await past_board(visit, tx, job_id, workflow, asked.at)
            children = await _past_children(tx, job_id, node, tenant, board, asked)
            node = _as_it_was(node, board, events, asked.at)
            events, logs = [event for event in events if event["seq"] <= asked.at], []
        else:
            children = await _children(tx, job_id, node, tenant, asked)
    return page(
        visit,
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
        child_status=asked.status,
        more_after=children.page[-1]["index"] if len(children.page) == CHILDREN else None,
        at_seq=asked.at,
        as_of=None if board is None else board.now,
        can_retry=can_retry(job, node),
        states=NODE_STATES,
    )


async def _find(tx: Transaction, job_id: str, node_id: str, workflow: Workflow, tenant: str) -> View:
    """The node with its type. Raises NodeNotFound."""
    found = await store.show_node(tx, job_id, node_id, tenant)
    if found is None and node_id not in workflow.nodes:
        raise NodeNotFound(job_id, node_id[:80])
    node = found or reading.pending_view(node_id) | {"earlier_inputs": [], "checkpoint": None}
    definition = workflow.nodes.get(node_id)
    kind = NodeType.TASK if definition is None else definition.type
    handler = node["handler"] or (workflow.nodes[node["parent_node_id"] or node_id].handler or None)
    return node | {"type": kind.value, "handler": handler}


async def _children(tx: Transaction, job_id: str, node: View, tenant: str, asked: NodeView) -> Children:
    if node["children"] is None:
        return Children()
    name, after = node["node_id"], -1 if asked.after is None else asked.after
    letters, seconds = await store.strip_of_children(tx, job_id, name, tenant)
    shown = await store.list_children(
        tx, job_id, name, tenant, status=_status(asked), after=after, limit=CHILDREN
    )
    return Children([LETTERS[letter] for letter in letters], shown, seconds)


async def _past_children(
    tx: Transaction, job_id: str, node: View, tenant: str, board: store.Board, asked: NodeView
) -> Children:
    """The children as they were: what each of them was is on its own page."""
    card = board.nodes.get(node["node_id"])
    if card is None or card.total is None or asked.at is None:
        return Children()
    last = await store.strip_at(tx, job_id, card.node_id, tenant, asked.at)
    states = strip_at(last, card)
    after, status = -1 if asked.after is None else asked.after, _status(asked)
    shown = [
        {"node_id": f"{card.node_id}__{index}", "index": index, "status": state}
        for index, state in enumerate(states)
        if index > after and status in (None, state)
    ]
    return Children(states, shown[:CHILDREN])


def _status(asked: NodeView) -> str | None:
    return asked.status if asked.status in NODE_STATES else None


def _as_it_was(node: View, board: store.Board, events: Sequence[View], seq: int) -> View:
    """What was known of it then: it has an input once it was begun, and an output once it was completed."""
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
    """What the node was given as of this event; `inputs` are in order, the last of them holds for good."""
    return next(one["input"] for one in inputs if one["until"] is None or seq <= one["until"])


def can_retry(job: View, node: View) -> bool:
    """Whether a retry from here is offered: a failed node, or in a job that is over any that had run."""
    if job["completed_at"] is None:
        return bool(node["status"] == "failed")
    return node["status"] in ("failed", "completed", "cancelled")


def attempts_of(events: Iterable[View], inputs: Sequence[View]) -> list[View]:
    """What became of each attempt, from the events of the node, and what it was given."""
    found: list[View] = []
    for event in events:
        kind, data, at = event["event_type"], event["data"], event["created_at"]
        if kind in ("node_dispatched", "child_started"):
            found.append(_begun(event, input_at(inputs, event["seq"])))
        elif not found:
            continue
        elif kind == "node_started":
            found[-1] |= {"worker": data.get("worker"), "started_at": data.get("started_at")}
        elif kind == "task_failed":
            error = data.get("error") or {}
            details = error.get("details") if isinstance(error.get("details"), dict) else {}
            found[-1] |= {"ended_at": at, "outcome": "failed", "error": error}
            found[-1]["traceback"] = (details or {}).get("traceback")
        elif kind == "warning" and data.get("code") == "released":
            found[-1] |= {"ended_at": at, "outcome": "released"}
        elif kind in ("node_completed", "node_timeout"):
            found[-1].setdefault("ended_at", at)
            found[-1].setdefault("outcome", "completed" if kind == "node_completed" else "timeout")
    return found


def _begun(event: View, given: Json) -> View:
    data = event["data"]
    return {
        "number": data.get("attempt"),
        "queue": data.get("queue"),
        "child_job": data.get("job_id"),
        "dispatched_at": event["created_at"],
        "input": given,
    }


def histogram(seconds: Sequence[float]) -> list[View]:
    """How many took how long, in bars of equal width; of equal ratio where the longest took far longer."""
    if not seconds:
        return []
    edges = _edges(max(min(seconds), 0.0), max(seconds))
    counts = [0] * BARS
    for one in seconds:
        counts[min(BARS, max(1, bisect_right(edges, one))) - 1] += 1
    most = max(counts)
    return [
        {
            "x": place * 20,
            "height": max(round(60 * count / most, 1), 1.5 if count else 0),
            "title": f"{count} took {span(edges[place])} to {span(edges[place + 1])}",
        }
        for place, count in enumerate(counts)
    ]


def _edges(low: float, high: float) -> list[float]:
    """Where each bar begins, and where the last one ends."""
    first = max(low, 0.001)
    if high < FAR * first:
        width = (high - low) / BARS or 0.001
        return [low + width * place for place in range(BARS + 1)]
    ratio = (high / first) ** (1 / BARS)
    return [first * ratio**place for place in range(BARS + 1)]


LETTERS = dict(
    zip("pydrwcfsx", ("pending", "ready", "dispatched", "running", "waiting", *NODE_STATES[5:]), strict=True)
)
LETTER_OF = {status: letter for letter, status in LETTERS.items()}


def _counts(states: Sequence[str]) -> list[tuple[str, int]]:
    return [(status, number) for status in LETTER_OF if (number := states.count(status))]


@node_pages.get("/jobs/{job_id}/nodes/{node_id}/strip", "viewer", query=NodeView)
async def show_strip(visit: Visit) -> Response:
    """The states of all children of a fan-out, a letter for each, now or as they were."""
    node_id, tenant, asked = visit.path["node_id"], visit.caller.tenant, visit.query
    async with visit.transaction("show") as tx:
        job, workflow = await find_job(as_call(visit), tx)
        if asked.at is None:
            letters, _ = await store.strip_of_children(tx, job["job_id"], node_id, tenant)
        else:
            board = await past_board(visit, tx, job["job_id"], workflow, asked.at)
            past = await _past_children(tx, job["job_id"], {"node_id": node_id}, tenant, board, asked)
            letters = "".join(LETTER_OF[state] for state in past.states)
    return reply({"strip": letters})
