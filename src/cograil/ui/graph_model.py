"""The graph of a job: its structure, its current state, and its state at any earlier event.

Scripts of the page draw it. Their data is small: it has no inputs and outputs of nodes, and only counts of the
children of a fan-out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from cograil.model.states import JOB_TERMINAL, NODE_STATES, NODE_TERMINAL
from cograil.model.workflow import Json, NodeType, Workflow, WorkflowNode
from cograil.store.job_queries import View
from cograil.store.job_snapshot import JobSnapshot, NodeSnapshot

MAX_TEXT = 160

# The status of a node after an event. Waiting for a time, a person or a child has its own event.
AFTER = {
    "node_ready": "ready",
    "node_dispatched": "dispatched",
    "node_started": "running",
    "approval_requested": "waiting",
    "child_started": "waiting",
    "node_completed": "completed",
    "node_failed": "failed",
    "node_skipped": "skipped",
    "node_retry": "ready",
}
ENDED = {"job_completed": "completed", "job_failed": "failed", "job_cancelled": "cancelled"}


def graph_of(workflow: Workflow) -> View:
    """Return the nodes and edges of a workflow."""
    edges = [
        {"from": edge.source, "to": name, "branches": sorted(edge.branches or ())}
        for name, node in workflow.nodes.items()
        for edge in _edges(node)
    ]
    return {"nodes": [_outline(node) for node in workflow.nodes.values()], "edges": edges}


def _edges(node: WorkflowNode) -> Iterable[Json]:
    seen = set()
    for edge in (*node.all_of, *node.any_of):
        if edge.source not in seen:
            seen.add(edge.source)
            yield edge


def _outline(node: WorkflowNode) -> View:
    target = node.handler
    if node.subworkflow is not None:
        target = node.subworkflow.workflow_id
    return {"id": node.node_id, "type": node.type.value, "what": target, "required": node.required}


def state_of(board: JobSnapshot, workflow: Workflow) -> View:
    """Return the state of a job, for the scripts of its page."""
    cards = {name: board.nodes.get(name) or NodeSnapshot(name) for name in workflow.nodes}
    counts: Counter[str] = Counter()
    for card in cards.values():
        counts.update(card.children or {card.status: 1})
    return {
        "seq": board.seq,
        "status": board.status,
        "shown": _shown_status(board, cards, workflow),
        "is_over": board.status in JOB_TERMINAL,
        "is_paused": board.paused_at is not None and board.status not in JOB_TERMINAL,
        "now": _millis(board.now),
        "started": _millis(board.started_at),
        "finished": _millis(board.finished_at),
        "percent": _percent(board.status, counts),
        "counts": {status: counts[status] for status in NODE_STATES if counts[status]},
        "nodes": {name: _shown(card) for name, card in cards.items()},
    }


def _shown_status(board: JobSnapshot, cards: Mapping[str, NodeSnapshot], workflow: Workflow) -> str:
    """Return the status as lists show it: `waiting` while all open nodes wait for a person or a time."""
    begun = [card for card in cards.values() if card.status in ("ready", "dispatched", "running", "waiting")]
    is_idle = board.status == "running" and begun
    return "waiting" if is_idle and all(_waits(card, workflow) for card in begun) else board.status


def _waits(card: NodeSnapshot, workflow: Workflow) -> bool:
    if card.status == "ready":
        return card.not_before is not None
    return card.status == "waiting" and workflow.nodes[card.node_id].subworkflow is None


def _percent(status: str, counts: Counter[str]) -> float:
    """Return the share of finished nodes. In a job that did not complete, skipped nodes do not count."""
    if status == "completed":
        return 100.0
    done = counts["completed"] + (0 if status in JOB_TERMINAL else counts["skipped"])
    return round(100 * done / max(1, counts.total()), 1)


def _shown(card: NodeSnapshot) -> View:
    """Return the fields that are set; without the progress of a completed node."""
    percent = round(100 * card.current / card.out_of, 1) if card.current is not None and card.out_of else None
    fields = {
        "status": card.status,
        "attempt": card.attempt,
        "started": _millis(card.started_at),
        "finished": _millis(card.finished_at),
        "until": _millis(card.not_before) if card.status in ("ready", "waiting") else None,
        "total": card.total,
        "children": dict(card.children) or None,
        "percent": None if card.status == "completed" else percent,
        "message": (card.message or "")[:MAX_TEXT] or None if card.status != "completed" else None,
        "error": (card.error_message or card.error_code or "")[:MAX_TEXT] or None,
        "branch": card.taken_branch,
        "why": card.skip_reason,
        "worker": card.worker or None,
        "child_job": card.child_job,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _millis(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp() * 1000)


# -- the past ---------------------------------------------------------------------------------------------


def board_at(
    events: Iterable[View],
    children: Mapping[str, Mapping[str, int]],
    seq: int,
    workflow: Workflow,
    at: datetime | None = None,
) -> JobSnapshot:
    """Return the snapshot of the job just after this event; `events` are all except those of children, in order.

    `at` is the time of the event, if it may be one of a child. A task that a worker had started by then counts as
    running, although its event is written later, with its report.
    """
    past = [event for event in events if event["seq"] <= seq]
    later = [event for event in events if event["seq"] > seq]
    replay = EventReplay(workflow)
    for event in past:
        replay.apply(event)
    at = at or past[-1]["created_at"]
    replay.apply_earlier_starts(later, at)
    nodes = {
        name: replace(card, children=_children_at(card, children.get(name, {})))
        for name, card in replay.cards.items()
    }
    return JobSnapshot(seq, replay.status, replay.started_at, replay.finished_at, None, at, 0, nodes)


def child_at(events: Iterable[View], seq: int, child: str, board: JobSnapshot, parent: str) -> NodeSnapshot:
    """Return a child at an event: `events` are its own, `board` is the snapshot at that event."""
    replay = EventReplay(None, (child,))
    later = []
    for event in events:
        if event["seq"] <= seq:
            replay.apply(event)
        else:
            later.append(event)
    replay.apply_earlier_starts(later, board.now)
    card, fan_out = replay.cards[child], board.nodes[parent]
    if card.status not in NODE_TERMINAL and _is_given_up(fan_out):
        return replace(card, status="cancelled", finished_at=fan_out.finished_at)
    return card


def strip_at(last: Mapping[int, str], card: NodeSnapshot) -> list[str]:
    """Return the states of the children of a fan-out at an event, from the last event of each."""
    if card.total is None:
        return []
    states = [AFTER[last[index]] if index in last else "pending" for index in range(card.total)]
    if _is_given_up(card):
        return [state if state in NODE_TERMINAL else "cancelled" for state in states]
    return states


def _is_given_up(fan_out: NodeSnapshot) -> bool:
    return fan_out.status in NODE_TERMINAL and fan_out.status != "completed"


def _children_at(card: NodeSnapshot, last: Mapping[str, int]) -> dict[str, int]:
    if card.total is None:
        return {}
    counts: Counter[str] = Counter()
    for kind, number in last.items():
        counts[AFTER[kind]] += number
    if _is_given_up(card):
        counts = Counter({s: n for s, n in counts.items() if s in NODE_TERMINAL})
        counts["cancelled"] += card.total - counts.total()
    else:
        counts["pending"] += card.total - counts.total()
    return {status: number for status, number in counts.items() if number > 0}


class EventReplay:
    """Rebuilds the state of a job from its events; `names` are further nodes, such as a child."""

    def __init__(self, workflow: Workflow | None, names: Iterable[str] = ()) -> None:
        nodes = {} if workflow is None else workflow.nodes
        self.cards = {name: NodeSnapshot(name) for name in (*nodes, *names)}
        self.waits = {name for name, node in nodes.items() if node.type is NodeType.WAIT}
        self.status = "pending"
        self.started_at: datetime | None = None
        self.finished_at: datetime | None = None

    def apply(self, event: View) -> None:
        """Apply the next event."""
        kind, data, at = event["event_type"], event["data"], event["created_at"]
        if kind == "job_started":
            self.status, self.started_at = "running", at
        elif kind in ENDED:
            self._end(ENDED[kind], at)
        elif event["node_id"] in self.cards and kind in AFTER:
            self._move(event["node_id"], kind, data, at)

    def _move(self, name: str, kind: str, data: View, at: datetime) -> None:
        card, status = self.cards[name], AFTER[kind]
        if kind == "node_started" and name in self.waits:
            status = "waiting"
        changes: View = {"status": status, "finished_at": at if status in NODE_TERMINAL else None}
        if kind in ("node_dispatched", "child_started"):
            changes |= {"attempt": data.get("attempt", card.attempt + 1), "error_message": None}
        if kind in ("node_started", "approval_requested", "child_started"):
            changes |= {
                "started_at": _time(data.get("started_at")) or at,
                "total": data.get("children", card.total),
            }
        elif kind in ("node_failed", "node_retry"):
            changes |= {"error_message": (data.get("error") or {}).get("message")}
        elif kind == "node_skipped":
            changes |= {"skip_reason": data.get("reason")}
        self.cards[name] = replace(card, **changes)
        for other in data.get("reopened") or ():
            if other in self.cards:
                self.cards[other] = NodeSnapshot(other)
        for other in data.get("resumed") or ():
            if other in self.cards:
                self.cards[other] = replace(self.cards[other], status="running", finished_at=None)

    def _end(self, status: str, at: datetime) -> None:
        """End the job; its open nodes are cancelled."""
        self.status, self.finished_at = status, at
        for name, card in self.cards.items():
            if card.status not in NODE_TERMINAL:
                self.cards[name] = replace(card, status="cancelled", finished_at=at)

    def apply_earlier_starts(self, later: Iterable[View], at: datetime) -> None:
        """Apply the starts before `at` from later events."""
        for event in later:
            card = self.cards.get(event["node_id"] or "")
            if event["event_type"] != "node_started" or card is None or card.status != "dispatched":
                continue
            begun = _time(event["data"].get("started_at"))
            if event["data"].get("attempt") == card.attempt and begun is not None and begun <= at:
                self.cards[card.node_id] = replace(card, status="running", started_at=begun)


def _time(text: Json) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) else None
