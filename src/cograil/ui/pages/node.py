"""One node of a job, or one child: attempts, what it took and returned, logs, checkpoints, its children."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from cograil.engine.states import NODE_STATES
from cograil.errors import NodeNotFound
from cograil.intake.http.door import reply
from cograil.intake.http.jobs import find_job
from cograil.intake.http.reading import Query
from cograil.model.workflow import NodeType, Workflow
from cograil.store import board as store
from cograil.store import reading
from cograil.store.database import Transaction
from cograil.store.reading import View
from cograil.ui.pages.job import past_board
from cograil.ui.rendering import page, span
from cograil.ui.visits import HTML, Visit, as_call, pages

node_pages = pages("node")
CHILDREN = 100
EVENTS = 300
BARS = 24


class NodeView(Query):
    """At which event, and which children."""

    at: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    status: Annotated[str, Field(max_length=20)] = ""
    after: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None


@node_pages.get("/jobs/{job_id}/nodes/{node_id}", "viewer", query=NodeView, media_type=HTML)
async def show_node(visit: Visit) -> Response:
    """A node from close by, now or as it was."""
    asked: NodeView = visit.query
    node_id, tenant = visit.path["node_id"], visit.caller.tenant
    async with visit.transaction("show") as tx:
        job, workflow = await find_job(as_call(visit), tx)
        job_id = job["job_id"]
        node = await _find(tx, job_id, node_id, workflow, tenant)
        events = await reading.list_events(tx, job_id, tenant=tenant, limit=EVENTS, node=node_id)
        logs = await store.newest_logs(tx, job_id, node_id, tenant)
        strip, seconds, children = "", list[float](), list[View]()
        if node["children"] is not None:
            strip, seconds = await store.strip_of_children(tx, job_id, node_id, tenant)
            children = await _children(tx, job_id, node_id, tenant, asked)
        if asked.at is not None and node_id in workflow.nodes:
            past = await past_board(visit, tx, job_id, workflow, asked.at)
            node = _as_it_was(node, past, node_id)
            events = [event for event in events if event["seq"] <= asked.at]
            logs = []
    definition = workflow.nodes.get(node["parent_node_id"] or node_id)
    return page(
        visit,
        "node.html",
        job=job,
        node=node,
        definition=definition,
        attempts=attempts_of(events),
        events=events[-60:],
        logs=logs,
        strip=strip,
        bars=histogram(seconds),
        children=children,
        child_counts=_counts(strip),
        child_status=asked.status,
        more_after=children[-1]["index"] if len(children) == CHILDREN else None,
        at_seq=asked.at,
        can_retry=can_retry(job, node),
        states=NODE_STATES,
    )


async def _find(tx: Transaction, job_id: str, node_id: str, workflow: Workflow, tenant: str) -> View:
    """The node with its type. Raises NodeNotFound."""
    found = await store.show_node(tx, job_id, node_id, tenant)
    if found is None and node_id not in workflow.nodes:
        raise NodeNotFound(job_id, node_id[:80])
    node = found or reading.pending_view(node_id) | {"checkpoint": None}
    definition = workflow.nodes.get(node_id)
    kind = NodeType.TASK if definition is None else definition.type
    handler = node["handler"] or (workflow.nodes[node["parent_node_id"] or node_id].handler or None)
    return node | {"type": kind.value, "handler": handler}


async def _children(tx: Transaction, job_id: str, node_id: str, tenant: str, asked: NodeView) -> list[View]:
    status = asked.status if asked.status in NODE_STATES else None
    after = -1 if asked.after is None else asked.after
    return await store.list_children(tx, job_id, node_id, tenant, status=status, after=after, limit=CHILDREN)


def _as_it_was(node: View, board: store.Board, node_id: str) -> View:
    """What was known of it then: it has an input once it was begun, and an output once it was completed."""
    card = board.nodes[node_id]
    had_begun = card.status not in ("pending", "ready", "skipped") or card.attempt > 0
    had_failed = card.status == "failed" or (card.status == "ready" and card.attempt > 0)
    return node | {
        "status": card.status,
        "attempt": card.attempt,
        "started_at": card.started_at,
        "completed_at": card.finished_at,
        "input": node["input"] if had_begun else None,
        "output": node["output"] if card.status == "completed" else None,
        "error": {"message": card.error_message} if had_failed and card.error_message else None,
        "progress": None,
        "checkpoint": None,
        "skip_reason": card.skip_reason,
    }


def can_retry(job: View, node: View) -> bool:
    """Whether a retry from here is offered: a failed node, or in a job that is over any that had run."""
    if job["completed_at"] is None:
        return bool(node["status"] == "failed")
    has_run = node["status"] in ("failed", "completed", "cancelled")
    return has_run and node["parent_node_id"] is None


def attempts_of(events: Iterable[View]) -> list[View]:
    """What became of each attempt, from the events of the node."""
    found: list[View] = []
    for event in events:
        kind, data, at = event["event_type"], event["data"], event["created_at"]
        if kind == "node_dispatched":
            found.append({"number": data.get("attempt"), "queue": data.get("queue"), "dispatched_at": at})
        elif not found:
            continue
        elif kind == "node_started":
            found[-1] |= {"worker": data.get("worker"), "started_at": data.get("started_at")}
        elif kind == "task_failed":
            error = data.get("error") or {}
            details = error.get("details") if isinstance(error.get("details"), dict) else {}
            found[-1] |= {"ended_at": at, "outcome": "failed", "error": error}
            found[-1]["traceback"] = (details or {}).get("traceback")
        elif kind in ("node_completed", "node_timeout"):
            found[-1].setdefault("ended_at", at)
            found[-1].setdefault("outcome", "completed" if kind == "node_completed" else "timeout")
    return found


def histogram(seconds: Sequence[float]) -> list[View]:
    """How many took how long, in bars of equal width."""
    if not seconds:
        return []
    low, high = min(seconds), max(seconds)
    width = (high - low) / BARS or 0.001
    counts = [0] * BARS
    for one in seconds:
        counts[min(BARS - 1, int((one - low) / width))] += 1
    most = max(counts)
    return [
        {
            "x": place * 20,
            "height": round(60 * count / most, 1),
            "title": f"{count} took {span(low + place * width)} to {span(low + (place + 1) * width)}",
        }
        for place, count in enumerate(counts)
    ]


LETTERS = dict(
    zip("pydrwcfsx", ("pending", "ready", "dispatched", "running", "waiting", *NODE_STATES[5:]), strict=True)
)


def _counts(strip: str) -> list[tuple[str, int]]:
    return [(status, strip.count(letter)) for letter, status in LETTERS.items() if letter in strip]


@node_pages.get("/jobs/{job_id}/nodes/{node_id}/strip", "viewer")
async def show_strip(visit: Visit) -> Response:
    """The states of all children of a fan-out, a letter for each."""
    node_id, tenant = visit.path["node_id"], visit.caller.tenant
    async with visit.transaction("show") as tx:
        job, _ = await find_job(as_call(visit), tx)
        letters, _ = await store.strip_of_children(tx, job["job_id"], node_id, tenant)
    return reply({"strip": letters})
