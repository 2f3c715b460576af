"""Events and ends of jobs as sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cograil.cli.display.formatting import ago, duration, printable, timestamp
from cograil.cli.display.output import error_line

Event = dict[str, Any]
Data = dict[str, Any]

REASONS = {
    "branch": "its branch was not taken",
    "upstream_failed": "a node it depends on failed",
    "when": "its `when` condition is false",
}


def event_sentence(event: Event) -> str:
    """Return what happened, without the name of the node."""
    describe = _SENTENCES.get(event["event_type"])
    return printable(describe(event["data"]) if describe else event["event_type"].replace("_", " "))


def event_subject(event: Event) -> str:
    """Return the node, or "job"; empty for other events."""
    return event["node_id"] or ("job" if event["event_type"].startswith("job_") else "")


def describe_end(
    job: dict[str, Any], command: Callable[[str], str], failures: Sequence[str] = ()
) -> list[str]:
    """Return lines about a job that has ended, with one line per failed node; empty while it runs.

    `command` turns arguments into a command that addresses the same instance when pasted.
    """
    if job["completed_at"] is None:
        return []
    ended_ago = ago(job["completed_at"])
    if job["status"] == "completed":
        return [f"it completed {ended_ago}; see {command('show ' + job['job_id'])}"]
    ended = f"it {'failed' if job['status'] == 'failed' else 'was cancelled'} {ended_ago}"
    first, *rest = failures or [error_line(job["error"])]
    lines = [f"{ended}: {first}", *rest]
    if job["status"] == "failed":
        lines.append(f"{command('retry ' + job['job_id'])} runs the nodes that did not complete again")
    return lines


def _started(data: Data) -> str:
    if "children" in data:
        return f"started with {data['children']} children"
    if "waits_until" in data:
        return f"waits until {timestamp(data['waits_until'])}"
    at = f" at {timestamp(data['started_at'])[11:]}" if data.get("started_at") else ""
    return f"started attempt {data.get('attempt', 1)} on {data.get('worker', 'a worker')}{at}"


def _ended(data: Data) -> str:
    seconds = data.get("duration_seconds")
    return "completed" if seconds is None else f"completed in {duration(seconds)}"


def _retried(data: Data) -> str:
    if "delay_seconds" not in data:
        return f"retried by {data.get('by') or 'an operator'}"
    return f"retried in {duration(data['delay_seconds'])}: {error_line(data.get('error'))}"


def _approval_requested(data: Data) -> str:
    approvers = ", ".join(data.get("approvers") or ()) or "anyone"
    until = f" until {timestamp(data['deadline'])}" if data.get("deadline") else ""
    return f"waits for approval by {approvers}{until}: {data.get('message')}"


def _cancelled(data: Data) -> str:
    return "cancelled" + (f" by {data['by']}" if data.get("by") else "") + _reason(data.get("reason"))


def _reason(reason: str | None) -> str:
    return f": {reason}" if reason else ""


_SENTENCES: dict[str, Callable[[Data], str]] = {
    "job_created": lambda data: (
        f"created from {data.get('workflow_id')} version {data.get('workflow_version')}"
    ),
    "job_started": lambda data: "started",
    "job_completed": _ended,
    "job_failed": lambda data: f"failed: {error_line(data.get('error'))}",
    "job_cancelled": _cancelled,
    "node_ready": lambda data: "ready",
    "node_dispatched": lambda data: f"queued on {data.get('queue')}, attempt {data.get('attempt')}",
    "node_started": _started,
    "node_completed": _ended,
    "node_failed": lambda data: f"failed: {error_line(data.get('error'))}",
    "node_skipped": lambda data: f"skipped, {REASONS.get(data.get('reason', ''), data.get('reason'))}",
    "node_retry": _retried,
    "node_timeout": lambda data: f"attempt {data.get('attempt')} timed out",
    "approval_requested": _approval_requested,
    "approval_decided": lambda data: (
        f"{data.get('decision')} by {data.get('by') or 'unknown'}{_reason(data.get('reason'))}"
    ),
    "child_started": lambda data: f"started job {data.get('job_id')}, attempt {data.get('attempt')}",
    "task_failed": lambda data: f"attempt {data.get('attempt')} failed: {error_line(data.get('error'))}",
    "warning": lambda data: str(data.get("message", "warning")),
}
