"""The states of jobs, nodes and tasks, and the moves between them.

This is the only list. Tests compare the SQL statements, the CHECK constraints and the documentation with it.
"""

from __future__ import annotations

JOB_STATES = ("pending", "running", "completed", "failed", "cancelled")
JOB_TERMINAL = frozenset({"completed", "failed", "cancelled"})
# Display statuses of lists and filters: a job that waits for a person or a time is `waiting`.
DISPLAY_STATUSES = ("pending", "running", "waiting", "completed", "failed", "cancelled")

NODE_STATES = (
    "pending",
    "ready",
    "dispatched",
    "running",
    "waiting",
    "completed",
    "failed",
    "skipped",
    "cancelled",
)
NODE_TERMINAL = frozenset({"completed", "failed", "skipped", "cancelled"})

TASK_STATES = ("held", "ready", "running")

Moves = dict[str, tuple[frozenset[str], str]]

JOB_MOVES: Moves = {
    "start": (frozenset({"pending"}), "running"),
    "complete": (frozenset({"running"}), "completed"),
    "fail": (frozenset({"pending", "running"}), "failed"),
    "cancel": (frozenset({"pending", "running"}), "cancelled"),
}

# A node without a row is pending. `start` is derived from the running task and is never written.
NODE_MOVES: Moves = {
    "ready": (frozenset({"pending"}), "ready"),
    "dispatch": (frozenset({"ready"}), "dispatched"),
    "start": (frozenset({"dispatched"}), "running"),
    "expand": (frozenset({"ready"}), "running"),
    "wait": (frozenset({"ready"}), "waiting"),
    "complete": (frozenset({"ready", "dispatched", "running", "waiting"}), "completed"),
    "fail": (frozenset({"ready", "dispatched", "running", "waiting"}), "failed"),
    "retry": (frozenset({"dispatched", "running", "waiting", "failed"}), "ready"),
    "skip": (frozenset({"pending"}), "skipped"),
    "reopen": (frozenset({"skipped", "failed"}), "pending"),
    "resume": (
        frozenset({"completed"}),
        "running",
    ),  # a fan-out, when one of its children is retried manually
    "cancel": (frozenset({"pending", "ready", "dispatched", "running", "waiting"}), "cancelled"),
}

# A task that ends is deleted: its outcome goes to the job's inbox.
TASK_MOVES: Moves = {
    "let_go": (frozenset({"held"}), "ready"),
    "claim": (frozenset({"ready"}), "running"),
    "release": (frozenset({"running"}), "gone"),
    "report": (frozenset({"running"}), "gone"),
    "rescue": (frozenset({"running"}), "gone"),
    "revoke": (frozenset({"held", "ready", "running"}), "gone"),
}

# The types of events of a job.
EVENT_TYPES = (
    "job_created",
    "job_started",
    "job_completed",
    "job_failed",
    "job_cancelled",
    "node_ready",
    "node_dispatched",
    "node_started",
    "node_completed",
    "node_failed",
    "node_skipped",
    "node_retry",
    "node_timeout",
    "approval_requested",
    "approval_decided",
    "child_started",
    "task_failed",
    "warning",
)


def moved(moves: Moves, verb: str, current: str) -> str:
    """Return the state after `verb`. Raises ValueError for a move that is not in the list: that is a bug."""
    sources, target = moves[verb]
    if current not in sources:
        raise ValueError(f"no move {verb!r} from {current!r}")
    return target
