"""Why a job failed: the node, its error, where it broke, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cograil.model.workflow import Json, Workflow
from cograil.store.board import Board
from cograil.store.reading import Traceback, View

SAME = "With the same input and the same code it fails the same way."
LESS = f"{SAME} Return less, or store it elsewhere and return its address."
UNKNOWN = "Whether its effect took place is not known"
AWAY = "The other server did not answer. Check it, then retry."
HINTS: Mapping[str, str] = {
    "invalid_params": f"The params do not fit the handler. {SAME} Change the input, or the workflow.",
    "invalid_input": f"The input does not fit the workflow. {SAME} Change the input.",
    "handler_missing": "No worker has this handler. Start one with its module (--app), then retry.",
    "no_branch": f"No branch of the condition fits. {SAME} Change the input, or add a default branch.",
    "result_too_large": LESS,
    "too_large": LESS,
    "out_of_memory": "Give the worker more memory, or the handler less to do, then retry.",
    "timeout": f"It took longer than its timeout. {UNKNOWN}: check the other system, then retry. A longer "
    "timeout needs a new version of the workflow.",
    "worker_lost": f"The worker was lost in the middle. {UNKNOWN}; a retry is safe where the handler passes "
    "on ctx.idempotency_key.",
    "poison": "Every worker that ran it was lost. Look at the logs of the workers before you retry.",
    "job_timeout": "The job took longer than the timeout of its workflow. A retry keeps what completed.",
    "approval_timeout": "Nobody answered in time. Retry from the approval to ask again.",
    "upstream_failed": "A node before it failed. Look at that one.",
    "children_failed": "Too many children failed. A retry runs only those that did not complete.",
    "child_cancelled": "The child job was cancelled. A retry starts it again.",
    "http_unreachable": AWAY,
    "unreachable": AWAY,
    "outbound_refused": f"This address is not allowed from here. {SAME} Change it, or the outbound settings.",
}
USUAL = (
    "Unless the cause was temporary it fails the same way again: change the input, or correct the handler or "
    "what it depends on, then retry."
)
TRANSIENT = frozenset(
    {
        "timeout",
        "worker_lost",
        "poison",
        "job_timeout",
        "approval_timeout",
        "handler_missing",
        "child_cancelled",
        "children_failed",
        "http_unreachable",
        "unreachable",
        "out_of_memory",
        "http_status",
        "stalled",
        "loop_blocked",
        "child_died",
    }
)


@dataclass(frozen=True, slots=True)
class Failure:
    """What ended a job: `attempt` of `max_attempts` failed last; `others` are further nodes that failed."""

    code: str
    message: str
    hint: str
    node_id: str | None = None
    attempt: int = 0
    max_attempts: int | None = None
    traceback: Traceback | None = None
    others: tuple[str, ...] = ()


def hint_of(code: str) -> str:
    """What to do about an error of this code."""
    return HINTS.get(code, USUAL)


def fails_again(code: str) -> bool:
    """Whether the same attempt with the same input is bound to fail again, as far as the code says."""
    return code not in TRANSIENT


def failure_of(job: View, board: Board, workflow: Workflow, traceback: Traceback | None) -> Failure | None:
    """Why the job failed, or None."""
    error = job["error"]
    if job["status"] != "failed" or not error:
        return None
    code, node_id = str(error.get("code", "failed")), error.get("node_id")
    card = board.nodes.get(node_id or "")
    node = workflow.nodes.get(str(node_id or "").rsplit("__", 1)[0]) or workflow.nodes.get(node_id or "")
    return Failure(
        code,
        str(error.get("message", "")),
        hint_of(code),
        node_id,
        0 if card is None else card.attempt,
        node.retry.max_attempts if node is not None and node.handler else None,
        traceback,
        tuple(_others(error.get("failed_nodes"), node_id)),
    )


def _others(names: Json, node_id: str | None) -> Iterable[str]:
    return (name for name in names or () if name != node_id)
