"""The failure of a job: the node, its error, the traceback, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cograil.model.workflow import Json, Workflow
from cograil.store.job_queries import Traceback, View
from cograil.store.job_snapshot import JobSnapshot

SAME = "With the same input and the same code it fails the same way."
LESS = f"{SAME} Return less, or store it elsewhere and return its address."
UNKNOWN = "Whether its effect took place is not known"
NO_RESPONSE = "The other server did not answer. Check it, then retry."
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
    "worker_lost": f"The worker was lost during the attempt. {UNKNOWN}; a retry is safe where the handler passes "
    "on ctx.idempotency_key.",
    "poison": "Every worker that ran it was lost. Check the logs of the workers before you retry.",
    "job_timeout": "The job took longer than the timeout of its workflow. A retry keeps what completed.",
    "approval_timeout": "The approval was not answered in time. Retry from the approval to ask again.",
    "upstream_failed": "A node before it failed. See that node.",
    "children_failed": "Too many children failed. A retry runs only those that did not complete.",
    "child_cancelled": "The child job was cancelled. A retry starts it again.",
    "http_unreachable": NO_RESPONSE,
    "unreachable": NO_RESPONSE,
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
class JobFailure:
    """The failure of a job: `attempt` of `max_attempts` failed last; `others` are further failed nodes."""

    code: str
    message: str
    hint: str
    node_id: str | None = None
    attempt: int = 0
    max_attempts: int | None = None
    traceback: Traceback | None = None
    others: tuple[str, ...] = ()


def hint_of(code: str) -> str:
    """Return what to do about an error code."""
    return HINTS.get(code, USUAL)


def fails_again(code: str) -> bool:
    """Return whether the same attempt with the same input will probably fail again, according to the code."""
    return code not in TRANSIENT


def failure_of(
    job: View, board: JobSnapshot, workflow: Workflow, traceback: Traceback | None
) -> JobFailure | None:
    """Return why the job failed, or None."""
    error = job["error"]
    if job["status"] != "failed" or not error:
        return None
    code, node_id = str(error.get("code", "failed")), error.get("node_id")
    card = board.nodes.get(node_id or "")
    node = workflow.nodes.get(str(node_id or "").rsplit("__", 1)[0]) or workflow.nodes.get(node_id or "")
    return JobFailure(
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
