"""An event of a job, and its end, as a sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cograil.cli.display.formatting import ago, duration, moment, printable
from cograil.cli.display.output import error_line

Event = dict[str, Any]
Data = dict[str, Any]

REASONS = {
    "branch": "its branch was not taken",
    "upstream_failed": "a node it needs has failed",
    "when": "its `when` does not hold",
}


def sentence(event: Event) -> str:
    """What happened, without the node's name."""
    speak = _SENTENCES.get(event["event_type"])
    return printable(speak(event["data"]) if speak else event["event_type"].replace("_", " "))


def subject(event: Event) -> str:
    """What it happened to."""
    return event["node_id"] or ("job" if event["event_type"].startswith("job_") else "")


def how_it_ended(job: dict[str, Any], failures: Sequence[str] = ()) -> list[str]:
    """What to say of a job that has ended, with a line for each node that failed; else nothing."""
    if job["completed_at"] is None:
        return []
    when = ago(job["completed_at"])
    if job["status"] == "completed":
        return [f"it completed {when}; see `cograil show {job['job_id']}`"]
    ended = f"it {'failed' if job['status'] == 'failed' else 'was cancelled'} {when}"
    first, *rest = failures or [error_line(job["error"])]
    said = [f"{ended}: {first}", *rest]
    if job["status"] == "failed":
        said.append(f"`cograil retry {job['job_id']}` runs again what did not complete")
    return said


def _started(data: Data) -> str:
    if "children" in data:
        return f"started with {data['children']} children"
    if "waits_until" in data:
        return f"waits until {moment(data['waits_until'])}"
    at = f" at {moment(data['started_at'])[11:]}" if data.get("started_at") else ""
    return f"started attempt {data.get('attempt', 1)} on {data.get('worker', 'a worker')}{at}"


def _ended(data: Data) -> str:
    seconds = data.get("duration_seconds")
    return "completed" if seconds is None else f"completed in {duration(seconds)}"


def _retried(data: Data) -> str:
    if "delay_seconds" not in data:
        return f"tried again by {data.get('by') or 'hand'}"
    return f"tried again in {duration(data['delay_seconds'])}: {error_line(data.get('error'))}"


def _asked(data: Data) -> str:
    asked = ", ".join(data.get("approvers") or ()) or "anybody"
    until = f" until {moment(data['deadline'])}" if data.get("deadline") else ""
    return f"asks {asked}{until}: {data.get('message')}"


def _cancelled(data: Data) -> str:
    return "cancelled" + (f" by {data['by']}" if data.get("by") else "") + _because(data.get("reason"))


def _because(reason: str | None) -> str:
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
    "node_timeout": lambda data: f"attempt {data.get('attempt')} ran out of time",
    "approval_requested": _asked,
    "approval_decided": lambda data: (
        f"{data.get('decision')} by {data.get('by') or 'nobody'}{_because(data.get('reason'))}"
    ),
    "child_started": lambda data: f"started job {data.get('job_id')}, attempt {data.get('attempt')}",
    "task_failed": lambda data: f"attempt {data.get('attempt')} failed: {error_line(data.get('error'))}",
    "warning": lambda data: str(data.get("message", "warning")),
}
